"""One record by its id: shown whole, or cited with its conditions."""
