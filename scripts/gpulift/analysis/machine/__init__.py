"""What a run says of its machine."""
