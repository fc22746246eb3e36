"""Entry points: from a configuration file to a finished run."""
