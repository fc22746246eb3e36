"""Judges: models and rules that read texts and give verdicts."""
