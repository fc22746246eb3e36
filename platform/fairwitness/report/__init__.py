"""Reports made from a run directory alone: one HTML file that works offline, and the same as CSV."""
