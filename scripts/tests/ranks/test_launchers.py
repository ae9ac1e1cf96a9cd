"""The same run by launchers that are there, on this host."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpulift.records.read import read_results
from tests.ranks.conftest import BUILD, Ended, Ranks, ended, environment

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(
        not (BUILD / "gpulift-bench").is_file(), reason="gpulift-bench is not built"
    ),
]
pytest.importorskip("torch")

WRAPPER = """#!/bin/sh
case $2 in *Python*) echo Python 3 12 ;; *) echo '{"torch": "1.0"}' ;; esac
"""


def common(folder: Path) -> list[str]:
    options = ["--techniques", str(folder / "works"), "--arm-time", "0.1", "--launches", "1"]
    return ["run", "does:fine", *options, "--out", str(folder / "out")]


def launcher_of(folder: Path) -> tuple[str, int, int]:
    """Who started the ranks of the one record, and how many on how many hosts."""
    (run,) = read_results([folder / "out"])
    (record,) = run.records
    assert record.outcome == "ok", record.reason
    assert record.case_id == "ranks:2/does:fine", "as it is where gpulift starts them"
    assert record.context.ranks is not None
    return record.context.ranks.launcher, record.context.ranks.ranks, record.context.ranks.nodes


def start(folder: Path, command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_by_two_agents_of_torchrun(one_host: Ranks) -> None:
    folder = one_host.folder
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node=1"]
    agent += ["--master-addr", "127.0.0.1", "--master-port", str(one_host.port), "--node-rank"]
    agents = [
        start(folder, [*agent, node, "-m", "gpulift.ranks", *common(folder)]) for node in "01"
    ]
    first, other = (ended(agent) for agent in agents)
    assert (first.code, other.code) == (0, 0), first.said + other.said
    assert launcher_of(folder) == ("torchrun", 2, 1)


def test_by_mpirun(one_host: Ranks) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    folder = one_host.folder
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "-x", "PYTHONPATH"]
    command = [*mpirun, sys.executable, "-m", "gpulift", *common(folder), "--ranks", "given"]
    done = ended(start(folder, command))
    assert done.code == 0, done.said
    assert launcher_of(folder) == ("mpirun", 2, 1)


def processes_of(folder: Path) -> list[str]:
    """That measure for it."""
    lines = (" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))
    return [line for line in lines if f"--records {folder}" in line]


def test_nothing_is_left_where_the_first_rank_is_killed(one_host: Ranks) -> None:
    """What launchers start in its place would find the machine in use."""
    first, other = (one_host.start(rank, "does:(ends|hangs)") for rank in range(2))
    while not (one_host.folder / "lost_at").exists() and first.poll() is None:
        time.sleep(0.1)
    assert processes_of(one_host.folder / "out")
    first.kill()
    told = ended(other)
    assert (told.code, "no longer hears of rank 0" in told.said) == (1, True), told.said
    assert processes_of(one_host.folder / "out") == []
    ended(first)


def test_another_version_is_named_and_no_rank_goes_on(one_host: Ranks, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(WRAPPER)
    python.chmod(0o755)
    other = one_host.start(1, "does:fine", "--python", str(python))
    first = ended(one_host.start(0, "does:fine"))
    assert (first.code, ended(other)) == (2, Ended(2, "")), first.said
    assert "rank 1 (node 0) has torch 1.0, and rank 0" in first.said
    assert len(first.said.splitlines()) == 1
    assert not (one_host.folder / "out").exists()
