"""The record of everything: result store (Parquet), run directory, MLflow tracker, progress."""
