"""Report of a measurement of thinking drafts."""
