"""Runs an arm of a script on several ranks, as the engine does, up to its check."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).parents[1] / "core" / "python" / "gpulift_worker.py"
LIMIT_S = 120

ALTERED = """
import importlib.util
spec = importlib.util.spec_from_file_location("itself", {script!r})
technique = importlib.util.module_from_spec(spec)
spec.loader.exec_module(technique)
make = technique.make
{code}
"""

Hello = dict[str, Any]
Hellos = Callable[..., list[Hello]]

# The worker answers on descriptor 3, which a shell moves standard output to.
COMMAND = ["sh", "-c", 'exec "$0" "$@" 3>&1 1>&2', sys.executable, str(WORKER)]


@pytest.fixture(name="hellos_of_ranks")
def ranks_of_an_arm() -> Hellos:
    """hellos_of_ranks(script, arm, point, ranks=2): what the ranks say after the arm's check."""

    def hellos(
        script: Path, arm: str, point: Mapping[str, int | str], ranks: int = 2
    ) -> list[Hello]:
        question = {"arm": arm, "point": point, "seed": 7, "gpu": None, "plant": 0}
        port = free_port()
        processes = [start(script, rank, ranks, port) for rank in range(ranks)]
        try:
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(json.dumps({**question, "launch_counter": None}) + "\n")
                process.stdin.flush()
            # An arm that has answered waits until its input ends.
            ended = [process.communicate(timeout=LIMIT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [json.loads(said.splitlines()[0]) for said, _ in ended]

    return hellos


@pytest.fixture(name="altered")
def altered_script(tmp_path: Path) -> Callable[[Path, str], Path]:
    """altered(script, code): a script that runs the code over the module `technique` first."""

    def altered(script: Path, code: str) -> Path:
        copy = tmp_path / script.name
        copy.write_text(ALTERED.format(script=str(script), code=code))
        return copy

    return altered


def start(script: Path, rank: int, ranks: int, port: int) -> subprocess.Popen[str]:
    """A rank that waits for its question."""
    place = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return subprocess.Popen(
        [*COMMAND, str(script)],
        env={**os.environ, **place},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    """That nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
