"""The real gate over the builds with real faults, which the C++ build makes beside its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError
from tests.sample import Json

ARM_TIME_S = 0.1
SEED = 14  # the controls are the two plain streams over device memory
ATTEMPTS = 5  # a busy machine is what the controls are there to find
CODE = "the code: "
HOST = "issuing work on the host: "
CAUSES = {
    "testing/vector_loads": CODE,
    "testing/extra_pass": CODE,
    "testing/low_occupancy": CODE,
    "testing/unfused_epilogue": CODE,
    "testing/fp32_fallback": CODE,
    "testing/stray_synchronisation": HOST,
    "testing/graph_capture_off": HOST,
    "testing/pageable_memory": HOST,
    "testing/host_extra_pass": "the host's work: ",
}


def faults_folder() -> Path:
    """The folder with both builds; skips the test where nothing was built."""
    try:
        folder = machine.find_bench().parent / "faults"
    except GpuliftError as error:
        pytest.skip(str(error))
    if not all((folder / side / "gpulift-bench").is_file() for side in ("base", "head")):
        pytest.skip(f"{folder} holds no builds: run ./gpulift setup")
    return folder


def gate_of_faults(above: Path, *filters: str) -> tuple[int, list[Json]]:
    """Exit code and rows of a gate of the faulty build against the sound one.

    Where a control fails, the machine was too busy for a verdict: then it is tried again.
    """
    for attempt in range(ATTEMPTS):
        code, document = _gate(above, f"gate{attempt}", *filters)
        if all(control["passed"] for control in document["controls"]):
            rows: list[Json] = document["rows"]
            return code, rows
    pytest.fail(f"in none of {ATTEMPTS} gates the controls passed: {document['controls']}")


def _gate(above: Path, name: str, *filters: str) -> tuple[int, Json]:
    folder = faults_folder()
    sides = [f"--{side}={folder / side}" for side in ("base", "head")]
    more = [
        "--out",
        str(above / name),
        "--arm-time",
        str(ARM_TIME_S),
        "--seed",
        str(SEED),
        "--json",
    ]
    command = [sys.executable, "-m", "gpulift", "gate", *sides, *more, *filters]
    # The lock is among the temporary files: a test neither waits for another run nor stops it.
    own = {**os.environ, "TMPDIR": str(above)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
    assert done.stdout, done.stderr
    document: Json = json.loads(done.stdout)
    return done.returncode, document
