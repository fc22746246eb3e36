"""What a base model does, for every measure that needs it: chains of thought, their steps, the answers around them."""
