"""General capability: accuracy on a set of questions before and after unlearning single steps (FUR §4.2)."""
