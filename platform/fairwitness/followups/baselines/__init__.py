"""Other measures of faithfulness on the problems and steps of a finished sweep: the CoT is changed, not the weights."""
