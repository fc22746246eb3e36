"""Search for the learning rate: highest efficacy among the rates that keep specificity (FUR, App. E.1)."""
