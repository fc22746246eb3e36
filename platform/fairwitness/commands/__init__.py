"""What `fairwitness …` can do: one module per group of commands."""
