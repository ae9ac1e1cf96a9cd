"""Lists the nodes of a Ray cluster as JSON, or runs a command on one; called by `ray_nodes`.

usage: ray_task.py ADDRESS list | run NODE_ID COMMAND...

It runs in the Python that has Ray, which may have nothing of gpulift.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# Modules beside this one are no packages of Ray's.
sys.path[:] = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]

import ray  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402


def main() -> int:
    """The exit code of the command."""
    address, action, *more = sys.argv[1:]
    ray.init(address, log_to_driver=False, logging_level="error")
    listed = ray.nodes()
    if action == "list":
        print(json.dumps([_told(node) for node in listed]))
        return 0
    node_id, *command = more
    resources = next(node["Resources"] for node in listed if node["NodeID"] == node_id)
    task = ray.remote(_run).options(
        num_cpus=resources.get("CPU", 0),
        num_gpus=resources.get("GPU", 0),
        max_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
    )
    code, said, errors = ray.get(task.remote(command, sys.stdin.readline()))
    sys.stdout.buffer.write(said)
    sys.stderr.buffer.write(errors)
    return int(code)


def _told(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": node["NodeID"],
        "host": node["NodeManagerHostname"],
        "address": node["NodeManagerAddress"],
        "alive": node["Alive"],
        "gpus": int(node["Resources"].get("GPU", 0)),
    }


def _run(command: list[str], line: str) -> tuple[int, bytes, bytes]:
    """Its input has that line, and stays open as long as this task lives: a command sees by that
    when to end."""
    ending, held = os.pipe()
    try:
        os.write(held, line.encode())
        done = subprocess.run(
            command, stdin=ending, capture_output=True, start_new_session=True, check=False
        )
    finally:
        os.close(ending)
        os.close(held)
    return done.returncode, done.stdout, done.stderr


if __name__ == "__main__":
    sys.exit(main())
