"""`gpulift watch`: what a running job does with processor, memory, disk, network and GPUs."""
