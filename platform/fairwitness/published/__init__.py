"""Results of the published implementation of FUR, read into our tables so that theirs and ours stand side by side."""
