"""Pure statistics: estimates with intervals, and how well a score separates two classes."""
