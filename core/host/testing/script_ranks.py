"""Two ranks in Python, of which rank 1 or what they meet at goes wrong."""

import os
import socket

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "Do ranks in Python find their place and each other?",
    "expectation": "Yes, by the variables that torch.distributed looks for.",
    "arms": ["one", "pair"],
    "sweep": {"rank_1": ["fine", "raises", "port"]},
    "check": {"meaning": "the rank, as its variables say", "tolerance": 0},
    "ranks": {"pair": 2},
    "environment": {"pair": {"OMP_NUM_THREADS": "1"}},
}


def make(arm, point, seed, gpu):
    """Ranks meet at the port, as they do to make a process group."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    address = (os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0")))
    if arm == "pair" and point["rank_1"] == "port" and rank == 0:
        with socket.socket() as taken:
            taken.bind(address)
            socket.create_server(address)
    if arm == "pair" and rank == 0:
        with socket.create_server(address) as server:
            server.accept()[0].close()
    if arm == "pair" and rank == 1:
        meet(address)
    steps = []

    def step():
        steps.append(sum(range(20000)))
        if arm == "pair" and rank == 1 and point["rank_1"] == "raises" and len(steps) == 10:
            raise ValueError("in its tenth step, of [node1.example]:29500")

    return Arm(
        step=step,
        error=lambda: 0.0 if ranks == (2 if arm == "pair" else 1) and rank < ranks else 1.0,
        items=8,
        item="sample",
    )


def meet(address):
    """Waits until rank 0 listens."""
    while True:
        try:
            socket.create_connection(address).close()
            return
        except ConnectionRefusedError:
            continue
