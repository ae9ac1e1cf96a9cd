"""A Python arm in order, which prints wherever a library could, and says something of itself."""

import os
import subprocess

from gpulift_worker import Arm


def make(arm, point, seed, gpu):
    """As many rounds as GPULIFT_TESTING_ROUNDS says, so that an environment can be slower."""
    rounds = int(os.environ.get("GPULIFT_TESTING_ROUNDS", "1000"))
    print("said by the script")
    os.write(1, b"said past Python\n")
    subprocess.run(
        ["sh", "-c", "cat; echo said by a child"],
        check=True,
    )
    done = []

    def step():
        total = 0
        for number in range(rounds):
            total += number
        done.append(total) if not done else None

    return Arm(
        step=step,
        error=lambda: 0.0 if done == [sum(range(rounds))] else 1.0,
        notes={"arm": arm, "seed": str(seed)},
        metrics=lambda: {"peak_allocated_bytes": 4096},
    )
