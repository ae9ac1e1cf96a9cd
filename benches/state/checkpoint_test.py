"""state/checkpoint: what is on the disk, when, what a window holds, and what is said where it
cannot be."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from gpulift_work import checkpoint as saves  # noqa: E402
from gpulift_work.checkpoint import (  # noqa: E402
    Dcp,
    DcpAsync,
    Manner,
    State,
    TorchSave,
    bytes_of,
    differing_bytes,
)
from gpulift_worker import Arm, Skip  # noqa: E402
from technique_script import error_of, load, manifest  # noqa: E402

SCRIPT = Path(__file__).with_name("checkpoint.py")

checkpoint = load(__file__)
ARMS = manifest(__file__)["arms"]
SAVING = [name for name in ARMS if name != "none"]
TOY_BYTES = 106_240 * 12  # weights and two moments in FP32


def make(name: str, cadence: str = "falls_behind") -> Arm:
    """An arm of the toy on the host."""
    arm: Arm = checkpoint.make(name, {"model": "gpt_toy", "cadence": cadence}, 7, None)
    return arm


def take_step(arm: Arm) -> None:
    """As a window does."""
    arm.wake()
    arm.before()
    arm.step()
    arm.rest()


def manner_of(name: str, folder: Path) -> Manner:
    """A manner on the host."""
    folder.mkdir(exist_ok=True)
    manner: Manner = checkpoint.MANNERS[name](folder, False)
    return manner


def state_with(number: float) -> State:
    """A small state, of which every tensor has this number."""
    shapes = {"weight": (64, 32), "bias": (32,), "step": ()}
    return {name: torch.full(shape, float(number)) for name, shape in shapes.items()}


def wrong_bytes(manner: Manner, number: float) -> int:
    """Once the newest checkpoint is restored into other tensors."""
    found = state_with(-1)
    manner.restore(found)
    return differing_bytes(state_with(number), found)


# --- The technique ---


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("name", SAVING)
def test_metrics_say_what_a_save_costs_and_restoring(name: str) -> None:
    arm = make(name)
    take_step(arm)
    assert error_of(arm) == 0
    found = arm.metrics()
    assert 0 < found["blocked_s"] <= found["stood_still_s"]
    assert TOY_BYTES < found["checkpoint_bytes"] < 1.2 * TOY_BYTES
    assert found["write_bytes_per_s"] == found["checkpoint_bytes"] / found["durable_s"]
    assert found["restore_s"] > 0


@pytest.mark.parametrize("name", SAVING)
def test_a_window_ends_when_its_save_is_durable_and_the_one_before_is_gone(
    disk: Path, name: str
) -> None:
    arm = make(name)
    take_step(arm)
    arm.wake()
    arm.step()
    assert [one.name for one in (disk / "checkpoints").iterdir()] == ["checkpoint-2"]


@pytest.mark.usefixtures("disk")
def test_an_arm_that_takes_no_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class SavesTooLate(TorchSave):
        """Leaves the state without a copy until the training has changed it."""

        def save(self, state: State) -> None:
            self._late = state

        def wait(self) -> None:
            super().save(self._late)

    late = {"torch_save": lambda folder, _: SavesTooLate(folder)}
    monkeypatch.setattr(checkpoint, "MANNERS", late)
    arm = make("torch_save")
    take_step(arm)
    assert error_of(arm) > TOY_BYTES / 4


@pytest.mark.usefixtures("disk")
def test_without_saves_there_is_the_training_alone() -> None:
    arm = make("none", "keeps_up")
    take_step(arm)
    assert (arm.items, arm.item) == (20 * 8 * 32, "token")
    assert arm.metrics() == {}


def test_all_arms_take_as_many_steps_as_the_first_one_measured(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "seconds_to_save", lambda *_: 2.0)

    class Measured:
        """A training whose steps take as long as that."""

        def __init__(self, step_s: float) -> None:
            self.step_s = step_s

        def step_time_s(self, _: int) -> float:
            return self.step_s

    disk.mkdir()
    first = checkpoint.Pace("gpt2", "keeps_up", Measured(0.04), disk)
    other = checkpoint.Pace("gpt2", "keeps_up", Measured(0.01), disk)
    assert (first.steps, other.steps) == (63, 63)
    assert other.facts == {"training_step_s": 0.04, "torch_save_s": 2.0}
    (disk / "measured.json").unlink()
    monkeypatch.setattr(checkpoint, "earlier", lambda: {**other.facts, "restore_s": 1.0})
    assert checkpoint.Pace("gpt2", "keeps_up", Measured(0.01), disk).steps == 63, "a later launch"


@pytest.mark.parametrize(
    ("step_s", "save_s", "keeps_up", "falls_behind"),
    [(0.19, 21.0, 140, 35), (0.042, 2.1, 63, 15), (1.0, 1.0, 2, 1), (1.0, 0.1, 1, 1)],
)
def test_a_disk_that_keeps_up_has_a_quarter_more_time_than_it_needs(
    step_s: float, save_s: float, keeps_up: int, falls_behind: int
) -> None:
    found = [checkpoint.steps_between(one, step_s, save_s) for one in ("keeps_up", "falls_behind")]
    assert found == [keeps_up, falls_behind]


# --- Where it cannot run ---


@pytest.mark.usefixtures("disk")
def test_a_large_model_needs_a_gpu() -> None:
    with pytest.raises(Skip, match="a training step of gpt2 takes seconds on a processor"):
        checkpoint.make("torch_save", {"model": "gpt2", "cadence": "keeps_up"}, 7, None)


@pytest.mark.usefixtures("disk")
def test_too_little_memory_says_how_much_is_needed_and_which_model_needs_less() -> None:
    with pytest.raises(Skip, match="need 1000000000 MB of the host's memory") as skip:
        checkpoint.require_memory(10**15)
    assert "gpt2" in skip.value.remedy


@pytest.mark.parametrize("name", SAVING)
def test_a_folder_that_is_deleted_meanwhile_is_one_line_without_a_path(
    disk: Path, name: str
) -> None:
    arm = make(name)
    shutil.rmtree(disk)
    with pytest.raises(OSError, match="cannot be written") as error:
        take_step(arm)
    said = "the checkpoint cannot be written: No such file or directory"
    assert str(error.value) == said


# Wherever tests have their files passes for a disk.
WORKER = """
import sys, gpulift_files, gpulift_worker
gpulift_files.disk_facts = lambda folder: {"in_memory": False}
sys.exit(gpulift_worker.main(sys.argv[1:]))
"""


def test_a_disk_that_is_full_is_one_line(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    point = {"model": "gpt_toy", "cadence": "falls_behind"}
    question = {"arm": "dcp_async", "point": point, "seed": 7, "plant": 0.0, "gpu": None}
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" 3>&1 1>/dev/null', sys.executable, "-c", WORKER, str(SCRIPT)],
        input=json.dumps({**question, "launch_counter": None, "rank": 0, "ranks": 1}),
        env={
            **os.environ,
            "GPULIFT_SCRATCH": str(tmp_path / "case"),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    hello = json.loads(ended.stdout)
    assert hello == {"error": "OSError: the checkpoint cannot be written: File too large"}


# --- Durable checkpoints ---


@pytest.mark.parametrize("name", SAVING)
def test_has_its_name_when_all_of_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls = []
    flushed = {}
    fsync, rename = os.fsync, os.rename

    def note_fsync(descriptor: int) -> None:
        calls.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        flushed[calls[-1]] = os.fstat(descriptor).st_size
        fsync(descriptor)

    def note_rename(old: Any, new: Any, **_: Any) -> None:
        calls.append(f"{Path(old).name} to {Path(new).name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    manner = manner_of(name, tmp_path / "saves")
    manner.save(state_with(1))
    manner.wait()
    partial, whole = "checkpoint-1.partial", "checkpoint-1"
    files = {path.name: path.stat().st_size for path in manner.checkpoints.files()}
    assert files.items() <= flushed.items(), "what Python still held is not on the disk"
    assert calls[-3:] == [partial, f"{partial} to {whole}", "saves"]


@pytest.mark.parametrize("name", SAVING)
def test_the_newest_replaces_the_one_before_whoever_wrote_it(tmp_path: Path, name: str) -> None:
    manner = manner_of(name, tmp_path)
    for number in range(1, 11):
        TorchSave(tmp_path).save(state_with(-number))
    for number in (1, 2):
        manner.save(state_with(number))
    manner.wait()
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint-12"]
    assert wrong_bytes(manner, 2) == 0


def test_async_save_returns_while_its_copy_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    write_data = saves.DcpWriter.write_data

    def held(self: Any, *given: Any) -> Any:
        may_write.wait()
        return write_data(self, *given)

    monkeypatch.setattr(saves.DcpWriter, "write_data", held)
    manner = DcpAsync(tmp_path)
    state = state_with(1)
    manner.save(state)
    for one in state.values():
        one.fill_(2.0)
    assert manner.checkpoints.newest() is None
    may_write.set()
    manner.wait()
    assert wrong_bytes(manner, 1) == 0


KILLED = """
import os, sys, time
from pathlib import Path
import torch
from gpulift_work.checkpoint import Dcp, DcpAsync, TorchSave

def stop(*_, **__):
    os.write(1, b"stopped\\n")
    time.sleep(600)

name, folder, call = sys.argv[1:]
manner = {"torch_save": TorchSave, "dcp": Dcp, "dcp_async": DcpAsync}[name](Path(folder))
state = {"weight": torch.ones(64, 32), "bias": torch.ones(32), "step": torch.ones(())}
manner.save(state)
manner.wait()
setattr(os, call, stop)
for one in state.values():
    one.fill_(2.0)
manner.save(state)
manner.wait()
"""


@pytest.mark.parametrize(("name", "call"), [("torch_save", "rename"), ("dcp_async", "fsync")])
def test_killed_amid_a_save_the_checkpoint_before_loads_and_the_next_is_written(
    tmp_path: Path, name: str, call: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, name, str(tmp_path), call],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        process.kill()
    assert (tmp_path / "checkpoint-2.partial").is_dir()
    manner = manner_of(name, tmp_path)
    assert wrong_bytes(manner, 1) == 0
    manner.save(state_with(3))
    manner.wait()
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint-2"]


def test_what_holds_other_tensors_is_not_restored(tmp_path: Path) -> None:
    for manner, wrong in (
        (TorchSave(tmp_path), ValueError),
        (Dcp(tmp_path), dcp.CheckpointException),
    ):
        manner.save({"weight": torch.ones(64, 32)})
        with pytest.raises(wrong):
            manner.restore(state_with(0))


# --- States ---


def test_differing_bytes_are_counted_one_by_one() -> None:
    state, other = state_with(1), state_with(1)
    assert differing_bytes(state, other) == 0
    other["weight"][3, 4] = -1.0  # of the four bytes of the sign's number one
    assert differing_bytes(state, other) == 1
    other["step"] = torch.full((), 2.0)  # 0x40000000 where 1.0 is 0x3f800000
    assert differing_bytes(state, other) == 3


def test_a_tensor_that_is_missing_or_of_another_shape_differs_in_all_its_bytes() -> None:
    state, other = state_with(1), state_with(1)
    del other["bias"]
    other["weight"] = torch.ones(64, 33)
    assert differing_bytes(state, other) == 4 * (32 + 64 * 33)
    assert differing_bytes(other, state) == 4 * (32 + 64 * 33)
    assert bytes_of(state) == 4 * (1 + 32 + 64 * 32)
