"""distributed/launcher: ranks are asked whoever started them, and who cannot is skipped."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from gpulift_worker import Arm, Skip
from technique_script import load

SCRIPT = Path(__file__).with_name("launcher.py")

launcher = load(__file__)

# In place of a launcher and of torch: ranks that answer as training ones do.
FAKE = """
import os, socket, sys
sys.path.insert(0, {folder!r})
import launcher
rank, address = int(sys.argv[1]), sys.argv[2]
asking = socket.socket(socket.AF_UNIX)
asking.connect(address)
lines = asking.makefile("rw")
launcher.say(lines, rank=rank, omp=os.environ.get("OMP_NUM_THREADS", ""), threads=rank + 1,
             cores=2, torch="2.0")
for line in lines:
    launcher.say(lines, rank=rank, loss=0.5 - rank)
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of which a step takes milliseconds."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(launcher, "MODEL", "gpt_toy")


def make(arm: str, threads: str = "as_launched") -> Arm:
    """The arm, of the smallest case."""
    made: Arm = launcher.make(arm, {"threads": threads}, 7, None)
    return made


def start_with(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """Whoever is asked to start ranks runs this."""
    monkeypatch.setattr(launcher, "LAUNCHERS", {"mpirun": lambda: command})


def fakes(folder: Path, tail: str = "") -> list[str]:
    """The command of a launcher that starts two ranks in reverse."""
    script = folder / "fake.py"
    script.write_text(FAKE.format(folder=str(SCRIPT.parent)) + tail)
    line = f'for rank in 1 0; do {sys.executable} {script} $rank "$1" & done; wait'
    return ["sh", "-c", line, "launcher"]


def test_ranks_are_asked_for_steps_and_the_first_ones_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start_with(monkeypatch, fakes(tmp_path))
    arm = make("mpirun", "one")
    arm.step()
    assert arm.value is not None
    assert arm.value() == 0.5
    found = "OMP_NUM_THREADS 1; 1 threads on 2 cores, 2 threads on 2 cores"
    assert arm.notes["ranks_of_mpirun"] == found
    assert arm.versions == {"torch": "2.0"}
    first_s = arm.metrics()["time_to_first_step_s"]
    arm.step()
    assert 0 < arm.metrics()["time_to_first_step_s"] == first_s, "of the first step alone"


def test_a_rank_that_ends_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = fakes(tmp_path)
    text = (tmp_path / "fake.py").read_text()
    (tmp_path / "fake.py").write_text(text.replace("for line in lines:", "for line in ():"))
    start_with(monkeypatch, script)
    arm = make("mpirun")
    with pytest.raises(RuntimeError, match="a rank has ended"):
        arm.step()


def test_a_launcher_that_ends_at_once_skips_its_arm_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "echo first >&2; echo 'srun: error: /etc/slurm/slurm.conf is missing' >&2; exit 1"
    start_with(monkeypatch, ["sh", "-c", said])
    with pytest.raises(Skip) as skip:
        make("mpirun")
    assert str(skip.value) == "mpirun cannot start ranks: srun: error: slurm.conf is missing"
    assert skip.value.remedy


def test_ranks_that_never_come_are_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launcher, "START_S", 0.1)
    start_with(monkeypatch, ["sh", "-c", "exec sleep 60"])
    with pytest.raises(Skip, match=r"cannot start ranks: there are 0 of 2 in 0\.1 s"):
        make("mpirun")


def test_ranks_of_torchrun_meet_and_it_listens_nowhere_whatever_this_machines_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    fakes(tmp_path)
    script = tmp_path / "fake.py"
    text = script.read_text().replace("int(sys.argv[1])", 'int(os.environ["RANK"])')
    text = text.replace("cores=2", "cores=ports_open_to_others(os.getppid())")
    text = "from listening import ports_open_to_others\n" + text
    script.write_text(text.replace("OMP_NUM_THREADS", "MASTER_ADDR"))
    names = "import socket\nsocket.getfqdn = socket.gethostname = lambda *_: 'name.invalid'\n"
    (tmp_path / "sitecustomize.py").write_text(names)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(launcher, "SELF", [sys.executable, str(script)])
    notes = make("torchrun").notes
    each = "1 threads on [] cores, 2 threads on [] cores"
    assert notes["ranks_of_torchrun"] == f"OMP_NUM_THREADS 127.0.0.1; {each}"


@pytest.mark.parametrize("arm", ["mpirun", "srun", "ray"])
def test_what_is_not_installed_is_skipped_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Skip, match="is not installed") as skip:
        make(arm)
    assert skip.value.remedy


def test_an_mpirun_of_others_is_not_taken_for_open_mpi(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho HYDRA build details\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(Skip, match="this mpirun is not Open MPI's"):
        make("mpirun")


def test_a_variable_that_is_set_would_hide_what_launchers_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with pytest.raises(Skip, match="OMP_NUM_THREADS is set"):
        make("torchrun")


@pytest.mark.parametrize("name", launcher.RANK_BY)
def test_a_rank_knows_its_place_by_its_launchers_variable(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for other in launcher.RANK_BY:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "1")
    assert launcher.own_rank() == 1
