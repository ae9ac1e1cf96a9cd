"""state/format: every format restores every byte, is durable when it says so, and says what is
wrong with a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Arm, Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

formats = load(__file__)
MANIFEST = manifest(__file__)
OPERATIONS = [case["point"]["operation"] for case in MANIFEST["cases"][:4]]


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk, and work of a small size."""
    monkeypatch.setattr(formats, "SMALL", (30, (7, 11)))
    monkeypatch.setattr(formats, "STAGED_BYTES", 8192)  # several, and a tensor in two of them
    yield disk
    torch.serialization.set_crc32_options(True)


def make(name: str, operation: str) -> Arm:
    """An arm of the case, after the step that is checked."""
    try:
        arm: Arm = formats.make(name, {"tensors": "small", "operation": operation}, 7, None)
        arm.before()
        arm.step()
    except (ModuleNotFoundError, Skip) as missing:
        pytest.skip(str(missing))
    return arm


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_every_byte_is_restored_also_in_a_second_window(name: str, operation: str) -> None:
    arm = make(name, operation)
    assert arm.error is not None
    assert arm.error() == 0
    arm.rest()
    arm.before()
    arm.step()
    assert arm.error() == 0
    assert arm.bytes == 30 * 7 * 11 * 4
    assert arm.metrics()["file_bytes"] > arm.bytes


@pytest.mark.parametrize("name", ["torch_save", "safetensors", "direct"])
def test_a_wrong_byte_of_a_file_is_found(folder: Path, name: str) -> None:
    arm = make(name, "restore_warm")
    file = folder / name / "state"
    weights = formats.seeded_state("small", 7)["part.00005"].numpy().tobytes()
    content = bytearray(file.read_bytes())
    content[content.index(weights) + 1] ^= 1
    file.write_bytes(content)
    arm.step()
    assert arm.error is not None
    assert arm.error() == 1


@pytest.mark.parametrize(("operation", "synced"), [("to_return", False), ("to_durable", True)])
def test_a_durable_save_waits_for_files_and_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch, operation: str, synced: bool
) -> None:
    arm = make("torch_save", f"save_{operation}")
    seen: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    arm.before()
    arm.step()
    expected = [str(folder / "torch_save" / "state"), str(folder / "torch_save")]
    assert seen == (expected if synced else [])
    seen.clear()
    arm.rest()  # what an arm leaves to the disk is not left to the next arm
    assert seen == expected


def test_only_the_arm_without_checksums_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(torch.serialization, "set_crc32_options", asked.append)
    make("torch_save", "save_to_return")
    make("no_checksum", "save_to_return")
    assert asked == [True, False]


def test_a_cold_arm_says_what_was_left_in_memory_and_a_warm_one_what_was_not() -> None:
    cold, warm = (make("torch_save", f"restore_{how}").precondition for how in ("cold", "warm"))
    assert cold is not None
    assert warm is not None
    assert (cold.name, warm.name) == ("resident_share", "absent_share")
    assert warm.look() in (0, None)


def test_a_map_writes_no_files() -> None:
    with pytest.raises(Skip, match="a way to read files alone"):
        formats.make("mapped", {"tensors": "small", "operation": "save_to_return"}, 7, None)


def test_gpt2_has_148_tensors_of_498_megabytes() -> None:
    shapes = formats.shapes_of("gpt2")
    assert len(shapes) == 148
    assert sum(4 * torch.Size(shape).numel() for shape in shapes.values()) == 497_903_616


def state_with(*names: str) -> dict[str, Any]:
    """A small state."""
    return {name: torch.arange(3000.0) for name in names}


def test_a_direct_file_of_other_tensors_and_one_cut_short_are_said(tmp_path: Path) -> None:
    try:
        formats.save_direct(state_with("a", "b"), tmp_path)
    except Skip as skip:
        pytest.skip(str(skip))
    with pytest.raises(ValueError, match="holds other tensors"):
        formats.restore_direct(tmp_path, state_with("a", "c"))
    os.truncate(tmp_path / "state", 20_000)
    with pytest.raises(ValueError, match="ends too early"):
        formats.restore_direct(tmp_path, state_with("a", "b"))


def test_tensors_of_other_names_are_not_restored() -> None:
    with pytest.raises(ValueError, match="holds other tensors"):
        formats.copy_into(state_with("a"), state_with("b"))


def test_a_file_system_without_direct_access_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Skip, match="has no O_DIRECT"):
        formats.save_direct(state_with("a"), tmp_path)
