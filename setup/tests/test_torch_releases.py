"""ci/torch_releases: a table of what passed with each release, whose clones are gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import SETUP

SCRIPT = SETUP.parent / "ci" / "torch_releases"
LAUNCHER = """#!/bin/bash
mkdir -p "$(dirname "$0")/build"
count='errors="0" failures="1" skipped="3" tests="10"'
printf '<testsuites name="x"><testsuite name="pytest" %s time="1">' "$count" > "$(dirname "$0")/build/tests_$2.xml"
echo "$GPULIFT_TORCH $CUDACXX ${GPULIFT_PYTHON-none} $*"
[[ $GPULIFT_TORCH == 2.15 ]]
"""


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(script), *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_a_row_tells_what_each_step_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, folder = tmp_path / "checkout", tmp_path / "made"
    (checkout / "ci").mkdir(parents=True)
    shutil.copy(SCRIPT, checkout / "ci")
    (checkout / "gpulift").write_text(LAUNCHER)
    (checkout / "gpulift").chmod(0o755)
    commit = ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "--quiet", "--message", "x"]
    for command in (["init", "--quiet"], ["add", "--all"], commit):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    monkeypatch.setenv("GPULIFT_PYTHON", "mine")
    done = run(checkout / "ci" / "torch_releases", "--steps", "workers", "--folder", str(folder), "2.13", "2.15")
    table = [line.split() for line in done.stdout.partition("\n\n")[2].splitlines()]
    assert [row[:5] + row[6:] for row in table[1:-1]] == [
        ["2.13", "workers", "6", "1", "3", "FAILED:", f"{folder}/2.13.workers.log"],
        ["2.15", "workers", "6", "1", "3", "passed"],
    ]
    assert (done.returncode, " ".join(table[-1])) == (1, "1 passed, 1 failed")
    assert sorted(path.name for path in folder.iterdir()) == ["2.13.workers.log", "2.15.workers.log"]
    assert (folder / "2.15.workers.log").read_text() == "2.15 packages none test workers\n"


@pytest.mark.parametrize("arguments", [(), ("--steps",), ("--keep", "2.13"), ("--folder", "x")])
def test_it_asks_for_releases(arguments: tuple[str, ...]) -> None:
    done = run(SCRIPT, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("torch_releases: ")
