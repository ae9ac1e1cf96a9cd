"""What the authors run: figures of README, coverage, the page of certificates."""
