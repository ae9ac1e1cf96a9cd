"""What GPU models are known to reach."""
