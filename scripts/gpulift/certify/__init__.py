"""How often the gate is wrong: trials, and the certificate made of them."""
