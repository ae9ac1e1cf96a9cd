"""Two sets of records, and whether they differ."""
