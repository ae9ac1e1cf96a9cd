"""What each technique is worth in a user's own training script, which nobody edits."""
