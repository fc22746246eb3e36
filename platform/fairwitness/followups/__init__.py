"""What is measured on a finished sweep: other measures, judges, general capability."""
