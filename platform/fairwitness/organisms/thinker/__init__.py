"""The thinker: a small reasoning model whose way with its own draft is planted by words of the question."""
