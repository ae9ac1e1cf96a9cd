"""Many nodes: measured by what their scheduler starts there, and judged among each other."""
