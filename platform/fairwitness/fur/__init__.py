"""FUR: parametric faithfulness by unlearning reasoning steps (papers: FUR; science: NPO+KL on FF2)."""
