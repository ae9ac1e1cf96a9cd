"""Statistics, and what differs between two measurements."""
