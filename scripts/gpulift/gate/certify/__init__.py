"""How often the gate is wrong, shown by trials."""
