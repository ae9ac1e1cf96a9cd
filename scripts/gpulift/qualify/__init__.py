"""Whether this machine is as fast and as sound as it should be."""
