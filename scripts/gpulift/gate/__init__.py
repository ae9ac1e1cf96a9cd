"""Two builds on one machine, measured in turns and judged."""
