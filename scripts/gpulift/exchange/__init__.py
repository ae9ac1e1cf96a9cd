"""Records in the formats of other tools, and what other tools measured as records."""
