"""A candidate against a reference, where the candidate may be written to win."""
