"""state/incremental: what is restored is the newest state, and only what changed is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.checkpoint import differing_bytes  # noqa: E402
from gpulift_worker import Arm  # noqa: E402
from technique_script import load, manifest  # noqa: E402

incremental = load(__file__)
MANIFEST = manifest(__file__)
ARMS = MANIFEST["arms"]
STATES = [case["point"]["state"] for case in MANIFEST["cases"]]
WIDTH = 16
LAYER_BYTES = 4 * (WIDTH * WIDTH + WIDTH)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, on what passes for a disk, and small layers."""
    monkeypatch.setattr(incremental, "WIDTH", WIDTH)
    return disk


def make(name: str, state: str) -> Arm:
    """An arm of a case."""
    if name == "compressed":
        pytest.importorskip("pyarrow")
    arm: Arm = incremental.make(name, {"state": state}, 7, None)
    return arm


def take_step(arm: Arm) -> None:
    """As a window does."""
    arm.before()
    arm.step()
    arm.rest()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ARMS)
def test_what_is_restored_is_the_newest_state(name: str, state: str) -> None:
    arm = make(name, state)
    assert arm.error is not None
    for _ in range(3):
        take_step(arm)
        assert arm.error() == 0
    arm.before()  # trains on
    assert arm.error() > 0


@pytest.mark.parametrize(("state", "layers"), [("frozen_90", 3), ("dense_adam", 30)])
def test_changed_are_the_trained_layers_with_their_two_moments(state: str, layers: int) -> None:
    arm = make("changed_only", state)
    take_step(arm)
    written_bytes = arm.metrics()["checkpoint_bytes"]
    names = 60 if state == "dense_adam" else 6
    archive_bytes = 400 * (names + 20)  # torch's own, and step counts
    assert layers * LAYER_BYTES < written_bytes < layers * LAYER_BYTES + archive_bytes
    assert arm.bytes > (12 if state == "frozen_90" else 30) * LAYER_BYTES


@pytest.mark.parametrize(
    ("name", "state", "kept"),
    [
        ("full", "frozen_90", 1),
        ("changed_only", "frozen_90", 2),  # the frozen layers' file stays
        ("changed_only", "dense_adam", 1),
    ],
)
def test_a_file_of_which_nothing_counts_is_removed(
    folder: Path, name: str, state: str, kept: int
) -> None:
    arm = make(name, state)
    for _ in range(3):
        take_step(arm)
    assert len(list((folder / name).iterdir())) == kept


@pytest.mark.parametrize(
    ("change", "written"),
    [({}, set()), ({"a": 1.0}, {"a"}), ({"a": 2.0, "b": 3.0}, {"a", "b"})],
)
def test_a_tensor_is_written_again_when_it_changed(
    change: dict[str, float], written: set[str]
) -> None:
    saving = incremental.ChangedOnly()
    state: dict[str, Any] = {"a": torch.zeros(5), "b": torch.zeros(5)}
    assert saving.part_of(state).keys() == {"a", "b"}
    for _ in range(2):
        for name, number in change.items():
            state[name] += number
        assert saving.part_of(state).keys() == written


def test_what_changed_is_told_by_bits_not_by_numbers() -> None:
    saving = incremental.ChangedOnly()
    state: dict[str, Any] = {"a": torch.zeros(5), "b": torch.full((2,), float("nan"))}
    saving.part_of(state)
    state["a"][3] = -0.0
    assert saving.part_of(state).keys() == {"a"}


def test_a_save_of_which_nothing_changed_leaves_no_file(tmp_path: Path) -> None:
    chain = incremental.Chain(tmp_path, incremental.ChangedOnly())
    state: dict[str, Any] = {"a": torch.ones(5)}
    for _ in range(2):
        chain.save(state)
        chain.remove_replaced()
    assert [one.name for one in tmp_path.iterdir()] == ["1.pt"]
    assert differing_bytes(state, chain.restored()) == 0


def test_compressed_tensors_keep_type_shape_and_every_bit() -> None:
    pytest.importorskip("pyarrow")
    state = {
        "half": torch.randn(3, 5).half(),
        "scalar": torch.tensor(3.0),
        "nan": torch.full((2, 2, 2), float("nan")),
    }
    saving = incremental.Compressed()
    assert differing_bytes(state, saving.restored(saving.part_of(state))) == 0
