"""What runs show: pure frames in, estimates out; each quantity is computed here and nowhere else."""
