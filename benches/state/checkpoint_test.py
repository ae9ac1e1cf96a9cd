"""state/checkpoint: what is on the disk, when, and what is said where it cannot be."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.checkpoint import (  # noqa: E402
    Checkpoints,
    State,
    Synchronous,
    bytes_of,
    differing_bytes,
    make_saving,
    shards_of,
    state_of,
)
from gpulift_worker import Arm, Skip, scratch  # noqa: E402
from technique_script import load, manifest  # noqa: E402

SCRIPT = Path(__file__).with_name("checkpoint.py")

checkpoint = load(__file__)
MANIFEST = manifest(__file__)
ARMS = MANIFEST["arms"]
SAVING = ARMS[1:]
TOY_BYTES = 106_240 * 12  # weights and two moments in FP32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk wherever tests have their files."""
    named = tmp_path / "case"
    monkeypatch.setenv("GPULIFT_SCRATCH", str(named))
    monkeypatch.setattr(checkpoint, "disk_facts", lambda _: {"in_memory": False})
    scratch.cache_clear()
    yield named
    scratch.cache_clear()


def make(name: str) -> Arm:
    """An arm of the toy on the host."""
    arm: Arm = checkpoint.make(name, {"model": "gpt_toy"}, 7, None)
    return arm


def take_step(arm: Arm) -> None:
    """As a window does."""
    arm.before()
    arm.step()
    arm.rest()


def state_with(number: int) -> State:
    """A small state, of which every tensor has this number."""
    shapes = {"weight": (64, 32), "bias": (32,), "step": ()}
    return {name: torch.full(shape, float(number)) for name, shape in shapes.items()}


def files_in(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file()]


# --- The technique ---


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("name", "times"), list(zip(ARMS, [0, 1, 1, 1], strict=True)))
def test_only_an_arm_that_saves_gathers_the_state_in_a_step(
    monkeypatch: pytest.MonkeyPatch, name: str, times: int
) -> None:
    arm = make(name)
    gathered = []

    def note(training: Any) -> State:
        gathered.append(training)
        return state_of(training)

    monkeypatch.setattr(checkpoint, "state_of", note)
    take_step(arm)
    assert len(gathered) == times


class SavesTooLate(Synchronous):
    """Leaves the state to a thread without a copy, which comes to it after the training."""

    def save(self, state: State) -> None:
        self._late = state

    def wait(self) -> None:
        super().save(self._late)


@pytest.mark.usefixtures("folder")
def test_an_arm_that_takes_no_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_late(_: str, folder: Path, __: State) -> tuple[SavesTooLate, Checkpoints]:
        checkpoints = Checkpoints(folder)
        return SavesTooLate(checkpoints), checkpoints

    monkeypatch.setattr(checkpoint, "make_saving", make_late)
    arm = make("synchronous")
    take_step(arm)
    assert arm.error is not None
    assert arm.error() > TOY_BYTES / 4


def test_a_file_that_is_lost_is_found(folder: Path) -> None:
    arm = make("sharded_4")
    take_step(arm)
    files_in(folder)[0].unlink()
    assert arm.error is not None
    assert arm.error() == pytest.approx(TOY_BYTES / 4, rel=0.2)


@pytest.mark.parametrize(("name", "files"), list(zip(ARMS, [0, 1, 1, 4], strict=True)))
def test_ahead_of_a_window_nothing_of_the_last_one_is_left(
    folder: Path, name: str, files: int
) -> None:
    arm = make(name)
    take_step(arm)
    assert len(files_in(folder)) == files
    arm.before()
    assert files_in(folder) == []


def test_what_an_earlier_process_left_is_removed(folder: Path) -> None:
    (folder / "none" / "checkpoint-9").mkdir(parents=True)
    make("none")
    assert list((folder / "none").iterdir()) == []


@pytest.mark.usefixtures("folder")
def test_counts_the_tokens_between_two_saves() -> None:
    arm = make("none")
    assert (arm.items, arm.item) == (5 * 8 * 32, "token")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", SAVING)
def test_metrics_say_what_a_save_costs(name: str) -> None:
    found = make(name).metrics()
    assert set(found) == {"blocked_s", "durable_s", "checkpoint_bytes", "write_bytes_per_s"}
    assert 0 < found["blocked_s"] <= found["durable_s"]
    assert TOY_BYTES < found["checkpoint_bytes"] < 1.1 * TOY_BYTES
    assert found["write_bytes_per_s"] == found["checkpoint_bytes"] / found["durable_s"]


@pytest.mark.usefixtures("folder")
def test_without_a_save_there_is_nothing_to_say_of_one() -> None:
    assert make("none").metrics() == {}


# --- Where it cannot run ---


def refusal(name: str = "synchronous", model: str = "gpt_toy") -> tuple[str, str]:
    """Why the arm is skipped, and the remedy."""
    with pytest.raises(Skip) as skip:
        checkpoint.make(name, {"model": model}, 7, None)
    return str(skip.value), skip.value.remedy


@pytest.mark.usefixtures("folder")
def test_gpt2_needs_a_gpu() -> None:
    reason = "a training step of GPT-2 takes seconds on a processor"
    assert refusal(model="gpt2") == (reason, "use a GPU")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ARMS)
def test_a_folder_in_memory_is_no_disk(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "disk_facts", lambda _: {"in_memory": True})
    reason = "the scratch folder is in memory"
    assert refusal(name) == (reason, "name one on a disk: --scratch DIR")


@pytest.mark.usefixtures("folder")
def test_says_how_much_space_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(free=4 * TOY_BYTES - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    reason, remedy = refusal()
    assert reason == "the disk of the scratch folder has less than 5 MB free"
    assert remedy == "free some space, or name another disk: --scratch DIR"


def test_without_a_scratch_folder_says_why_there_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("a file where the folder should be")
    assert refusal()[0] == "the scratch folder cannot be made: File exists"
    monkeypatch.delenv("GPULIFT_SCRATCH")
    monkeypatch.setenv("GPULIFT_SCRATCH_MISSING", "the scratch folder is read-only")
    assert refusal()[0] == "the scratch folder is read-only"


@pytest.mark.parametrize("name", SAVING)
def test_a_folder_that_is_deleted_meanwhile_is_one_line_without_a_path(
    folder: Path, name: str
) -> None:
    arm = make(name)
    shutil.rmtree(folder)
    with pytest.raises(OSError, match="cannot be written") as error:
        take_step(arm)
    said = "the checkpoint cannot be written: No such file or directory"
    assert str(error.value) == said


def hello_with_small_files(name: str, folder: Path, most_bytes: int) -> Any:
    """What the arm's process says first where no file may grow beyond this, as on a full disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    question = {"arm": name, "point": {"model": "gpt_toy"}, "seed": 7, "plant": 0.0, "gpu": None}
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" 3>&1 1>/dev/null', sys.executable, "-c", WORKER, str(SCRIPT)],
        input=json.dumps({**question, "launch_counter": None, "rank": 0, "ranks": 1}),
        env={
            **os.environ,
            "GPULIFT_SCRATCH": str(folder),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    return json.loads(ended.stdout)


# Wherever tests have their files passes for a disk.
WORKER = """
import sys, gpulift_files, gpulift_worker
gpulift_files.disk_facts = lambda folder: {"in_memory": False}
sys.exit(gpulift_worker.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("name", ["snapshot_thread", "sharded_4"])
def test_a_disk_that_is_full_is_one_line(tmp_path: Path, name: str) -> None:
    hello = hello_with_small_files(name, tmp_path / "case", 100_000)
    assert hello == {"error": "OSError: the checkpoint cannot be written: File too large"}


def test_the_same_process_has_no_error_on_a_disk_with_space(tmp_path: Path) -> None:
    assert hello_with_small_files("synchronous", tmp_path / "case", 10**9)["check_error"] == 0


# --- Durable checkpoints ---


@pytest.mark.parametrize("files", [1, 4])
def test_has_its_name_when_all_of_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    calls = []
    fsync, rename = os.fsync, os.rename

    def note_fsync(descriptor: int) -> None:
        calls.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def note_rename(old: Path, new: Path) -> None:
        calls.append(f"{old.name} to {new.name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    Checkpoints(tmp_path, files).write(state_with(1))
    assert sorted(calls[:files]) == [f"{index}.pt" for index in range(files)]
    partial, whole = "checkpoint-1.partial", "checkpoint-1"
    assert calls[files:] == [partial, f"{partial} to {whole}", tmp_path.name]


def test_the_newest_replaces_the_one_before_also_beyond_nine(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in range(1, 12):
        checkpoints.write(state_with(number))
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint-11"]
    assert differing_bytes(state_with(11), checkpoints.load()) == 0


def test_where_nothing_was_written_there_is_nothing_to_load(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path).load() == {}


def test_a_snapshot_waits_for_the_one_before(tmp_path: Path) -> None:
    saving, checkpoints = make_saving("snapshot_thread", tmp_path, state_with(0))
    for number in (1, 2, 3):
        saving.save(state_with(number))
    saving.wait()
    assert differing_bytes(state_with(3), checkpoints.load()) == 0


KILLED = """
import os, sys, time
from pathlib import Path
import torch
from gpulift_work.checkpoint import make_saving

def stop(*_):
    os.write(1, b"stopped\\n")  # in one go: shards stop at once
    time.sleep(600)

name, folder, call = sys.argv[1:]
state = {key: torch.full((64, 32), 1.0) for key in ("a", "b", "c", "d")}
saving, _ = make_saving(name, Path(folder), state)
saving.save(state)
saving.wait()
setattr(os, call, stop)
for one in state.values():
    one.fill_(2.0)
saving.save(state)
saving.wait()
"""


@pytest.mark.parametrize(
    ("name", "call"), [*((name, "fsync") for name in SAVING), ("synchronous", "rename")]
)
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
    checkpoints = Checkpoints(tmp_path)
    found = checkpoints.load()
    assert sorted(found) == ["a", "b", "c", "d"]
    assert all(bool((one == 1).all()) for one in found.values())
    checkpoints.write(state_with(3))
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint-2"]


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


def test_shards_hold_every_tensor_once_and_are_about_equal() -> None:
    state = {f"{size}": torch.zeros(size) for size in (200, 900, 1, 300, 500, 250, 400)}
    shards = shards_of(state, 4)
    assert sorted(name for shard in shards for name in shard) == sorted(state)
    assert sorted(map(bytes_of, shards)) == [4 * 501, 4 * 550, 4 * 600, 4 * 900]


def test_more_shards_than_tensors_leaves_some_empty(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, files=4)
    checkpoints.write({"a": torch.ones(2)})
    assert differing_bytes({"a": torch.ones(2)}, checkpoints.load()) == 0
