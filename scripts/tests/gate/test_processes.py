"""Runs that leave processes behind."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from gpulift.gate.processes import Ended, run_to_end

LONG_S = 20.0


def run(folder: Path, script: str, limit_s: float = LONG_S, *, alone: bool = True) -> Ended:
    return run_to_end(["sh", "-c", script], limit_s, folder, dict(os.environ), alone=alone)


def alive(file: Path) -> bool:
    """Whether the process runs whose number is in the file."""
    try:
        state = (
            Path(f"/proc/{int(file.read_text())}/stat").read_text().rpartition(")")[2].split()[0]
        )
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60 & echo $! > pid",
        "sleep 60 > /dev/null 2>&1 < /dev/null & echo $! > pid",
        "setsid sh -c 'echo $$ > pid; exec sleep 60' & while [ ! -s pid ]; do :; done",
        "(setsid sh -c 'sleep 60 & echo $! > pid; wait' &) & while [ ! -s pid ]; do :; done",
    ],
)
def test_a_run_ends_with_its_process_and_what_it_left_is_ended(tmp_path: Path, script: str) -> None:
    started_s = time.monotonic()
    done = run(tmp_path, f"{script}; echo out; echo error >&2; exit 3")
    assert time.monotonic() - started_s < LONG_S
    assert (done.code, done.printed, done.errors) == (3, b"out\n", b"error\n")
    assert done.seconds < LONG_S
    assert "sleep" in done.left or "sh" in done.left
    assert not alive(tmp_path / "pid")


def test_a_set_up_may_leave_what_runs_need(tmp_path: Path) -> None:
    done = run(tmp_path, "sleep 60 & echo $! > pid", alone=False)
    assert done.left == ()
    assert alive(tmp_path / "pid")
    again = run(tmp_path, "true")
    assert again.left == ()
    assert alive(tmp_path / "pid")
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_run_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = "setsid sleep 60 & echo $! > pid; sleep 60"
    with pytest.raises(subprocess.TimeoutExpired):
        run(tmp_path, script, 0.5, alone=False)
    assert not alive(tmp_path / "pid")


def test_a_run_that_leaves_nothing_says_so(tmp_path: Path) -> None:
    assert run(tmp_path, "true | true").left == ()
