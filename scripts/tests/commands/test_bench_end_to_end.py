"""The file of a newcomer, by the program that measures; no stand-in for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpulift.engine.machine import checkout_root
from gpulift.records.read import read_results

BUILD = checkout_root() / "build"
MY_STEP = """
from gpulift_worker import Arm

ARMS = ["loop", "builtin"]

def make(arm, point, seed, gpu):
    numbers = range(200_000)
    total = []

    def step():
        total[:] = [sum(numbers) if arm == "builtin" else sum(number for number in numbers)]

    return Arm(step=step, value=lambda: total[0], items=len(numbers), item="number")
"""

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(
        not (BUILD / "gpulift-bench").is_file(), reason="gpulift-bench is not built"
    ),
]


def bench(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`./gpulift bench`, past the launcher, in the script's folder."""
    found = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {
        "GPULIFT_BUILD": str(BUILD),
        "PYTHONPATH": os.pathsep.join([str(checkout_root() / "scripts"), *found.split(os.pathsep)]),
        "TMPDIR": str(script.parent),
    }
    command = [sys.executable, "-m", "gpulift", "bench", script.name, *options]
    return subprocess.run(
        command, cwd=script.parent, env=environment, capture_output=True, text=True, check=False
    )


def test_ten_lines_are_measured_and_compared_and_kept(tmp_path: Path) -> None:
    script = tmp_path / "my_step.py"
    script.write_text(MY_STEP, encoding="utf-8")
    done = bench(script, "--launches", "2", "--arm-time", "0.1", "--out", "records")
    assert done.returncode == 0, done.stderr
    (run,) = read_results([tmp_path / "records"])
    assert {record.outcome for record in run.records} == {"ok"}
    assert [arm.checked for arm in run.records[0].arms] == [True, True]
    assert all(arm.windows.cpu_s for arm in run.records[0].arms)
    assert set(run.records[0].source) == {"my_step.py"}
    assert "builtin" in done.stdout


def test_values_that_differ_are_a_failure_in_one_line(tmp_path: Path) -> None:
    script = tmp_path / "my_step.py"
    script.write_text(MY_STEP.replace("total[0]", "len(arm)"), encoding="utf-8")
    done = bench(script, "--launches", "1", "--arm-time", "0.1", "--out", "records")
    assert done.returncode == 1
    assert "arm builtin does not give the same result" in done.stdout + done.stderr
