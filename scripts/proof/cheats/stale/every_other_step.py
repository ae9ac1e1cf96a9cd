"""Takes only every other step, as if nobody looked at both."""

from sgd_base import honest

calls = []


def run(weights, x, y):
    calls.append(1)
    made = honest(weights, x, y)
    return made if len(calls) % 2 else (weights, made[1])
