"""Data sets read into multiple-choice problems."""
