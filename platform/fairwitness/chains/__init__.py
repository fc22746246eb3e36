"""What a base model does: chains of thought, their steps and the answers around them, for every measure that needs them."""
