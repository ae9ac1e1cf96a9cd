"""Ranks that Slurm, torchrun or mpirun started, maybe on several hosts: the first plans, measures
and records, each other one starts its worker of an arm and ends it."""
