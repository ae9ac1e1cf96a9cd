"""Proofs of what the package promises, run by hand on a GPU, once for each decision method."""
