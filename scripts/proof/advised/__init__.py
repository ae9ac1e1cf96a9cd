"""Training scripts as users write them, each with faults that can be planted in it."""
