"""What talks to gpulift-bench: machines, techniques, runs."""
