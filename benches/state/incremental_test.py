"""state/incremental: what is restored is the newest state, and only what changed is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.checkpoint import differing_bytes  # noqa: E402
from gpulift_worker import Arm, Skip  # noqa: E402
from technique_script import error_of, load, manifest  # noqa: E402

incremental = load(__file__)
ARMS = manifest(__file__)["arms"]
pytestmark = pytest.mark.usefixtures("disk")
COMPRESSED = [name for name in ARMS if "zstd" in name]
TOY_BYTES = 106_240 * 4  # of its weights
LAYER_BYTES = 49_984 * 4


def make(name: str, trained: str) -> Arm:
    """An arm of the toy on the host."""
    if name in COMPRESSED:
        pytest.importorskip("pyarrow")
    arm: Arm = incremental.make(name, {"model": "gpt_toy", "trained": trained}, 7, None)
    return arm


def take_step(arm: Arm) -> None:
    """As a window does."""
    arm.before()
    arm.step()
    arm.rest()


@pytest.mark.parametrize("trained", ["last_layer", "all"])
@pytest.mark.parametrize("name", ARMS)
def test_what_is_restored_is_the_newest_state(name: str, trained: str) -> None:
    arm = make(name, trained)
    for _ in range(3):
        take_step(arm)
        assert error_of(arm) == 0
    arm.before()  # trains on
    assert error_of(arm) > 0
    assert arm.metrics()["restore_s"] > 0


@pytest.mark.parametrize("name", ["trained_only", "changed_only"])
@pytest.mark.parametrize(
    ("trained", "all_bytes", "written"),
    [
        ("last_layer", TOY_BYTES + 2 * LAYER_BYTES, 3 * LAYER_BYTES),
        ("all", 3 * TOY_BYTES, 3 * TOY_BYTES),
    ],
)
def test_written_are_the_trained_layers_with_their_two_moments(
    name: str, trained: str, all_bytes: int, written: int
) -> None:
    arm = make(name, trained)
    take_step(arm)
    archive_bytes = 400 * 130  # torch's own, and step counts
    assert written < arm.metrics()["checkpoint_bytes"] < written + archive_bytes
    assert all_bytes < arm.bytes < all_bytes + 1000


@pytest.mark.parametrize(
    ("name", "trained", "kept"),
    [
        ("full", "last_layer", 1),
        ("trained_only", "last_layer", 2),  # the frozen layers' file stays
        ("changed_only", "last_layer", 2),
        ("changed_only", "all", 1),
    ],
)
def test_a_file_of_which_nothing_counts_is_removed_by_the_save(
    disk: Path, name: str, trained: str, kept: int
) -> None:
    arm = make(name, trained)
    for _ in range(3):
        arm.before()
        arm.step()
        assert len(list((disk / name).iterdir())) == kept


@pytest.mark.parametrize(
    ("change", "written"),
    [({}, set()), ({"a": 1.0}, {"a"}), ({"a": 2.0, "b": 3.0}, {"a", "b"})],
)
def test_a_tensor_is_written_again_when_it_changed(
    change: dict[str, float], written: set[str]
) -> None:
    saving = incremental.ChangedOnly(None)
    state: dict[str, Any] = {"a": torch.zeros(5), "b": torch.zeros(5)}
    assert saving.part_of(state).keys() == {"a", "b"}
    for _ in range(2):
        for name, number in change.items():
            state[name] += number
        assert saving.part_of(state).keys() == written


def test_what_changed_is_told_by_bits_not_by_numbers() -> None:
    saving = incremental.ChangedOnly(None)
    state: dict[str, Any] = {"a": torch.zeros(5), "b": torch.full((2,), float("nan"))}
    saving.part_of(state)
    state["a"][3] = -0.0
    assert saving.part_of(state).keys() == {"a"}


def test_a_save_of_which_nothing_changed_leaves_no_file(tmp_path: Path) -> None:
    chain = incremental.Chain(tmp_path, incremental.ChangedOnly(None))
    state: dict[str, Any] = {"a": torch.ones(5)}
    for _ in range(2):
        chain.save(state)
    assert [one.name for one in tmp_path.iterdir()] == ["1.pt"]
    found = {"a": torch.zeros(5)}
    chain.restore(found)
    assert differing_bytes(state, found) == 0


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_tensors_keep_type_shape_and_every_bit(name: str) -> None:
    pytest.importorskip("pyarrow")
    state = {
        "half": torch.randn(3, 5).half(),
        "scalar": torch.tensor(3.0),
        "nan": torch.full((2, 2, 2), float("nan")),
        "double": torch.randn(7).double(),
    }
    saving = incremental.SAVINGS[name](None)
    assert differing_bytes(state, saving.restored(saving.part_of(state))) == 0


def test_planes_of_bytes_make_floats_smaller() -> None:
    pytest.importorskip("pyarrow")
    state = {"weight": torch.randn(1 << 16)}
    sizes = [incremental.SAVINGS[name](None).part_of(state)["weight"][0] for name in COMPRESSED]
    assert sizes[1].numel() < 0.97 * sizes[0].numel()


def test_a_large_model_needs_a_gpu() -> None:
    with pytest.raises(Skip, match="takes seconds on a processor"):
        incremental.make("full", {"model": "gpt2", "trained": "all"}, 7, None)
