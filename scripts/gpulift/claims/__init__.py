"""Published statements about GPU training, and what records say of each."""
