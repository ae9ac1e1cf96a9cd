"""state/format: every format loads every byte, and is on the disk when it says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Arm, Skip  # noqa: E402
from technique_script import error_of, load, manifest  # noqa: E402

formats = load(__file__)
MANIFEST = manifest(__file__)
OPERATIONS = [case["point"]["operation"] for case in MANIFEST["cases"][:3]]


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk, and work of a small size."""
    monkeypatch.setattr(formats, "SMALL", (30, (7, 11)))
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
def test_every_byte_is_loaded_also_in_a_second_window(name: str, operation: str) -> None:
    arm = make(name, operation)
    assert error_of(arm) == 0
    arm.rest()
    arm.before()
    arm.step()
    assert error_of(arm) == 0
    assert arm.bytes == 30 * 7 * 11 * 4
    assert arm.metrics()["file_bytes"] > arm.bytes


@pytest.mark.parametrize("name", ["torch_save", "safetensors", "dcp"])
def test_a_wrong_byte_of_a_file_is_found(folder: Path, name: str) -> None:
    arm = make(name, "load_warm")
    file = folder / name / ("__0_0.distcp" if name == "dcp" else "state")
    weights = formats.seeded_state("small", 7, torch.device("cpu"))["part.00005"].numpy().tobytes()
    content = bytearray(file.read_bytes())
    content[content.index(weights) + 1] ^= 1
    file.write_bytes(content)
    arm.step()
    assert error_of(arm) == 1


def test_a_save_waits_for_files_and_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = make("torch_save", "save")
    seen: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    arm.before()
    assert list((folder / "torch_save").iterdir()) == []
    arm.step()
    assert seen == [str(folder / "torch_save" / "state"), str(folder / "torch_save")]


def test_only_the_arm_without_checksums_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(torch.serialization, "set_crc32_options", asked.append)
    make("torch_save", "save")
    make("no_checksum", "save")
    assert asked == [True, False]


def test_a_cold_arm_says_what_was_left_in_memory_and_a_warm_one_what_was_not() -> None:
    cold, warm = (make("torch_save", f"load_{how}").precondition for how in ("cold", "warm"))
    assert cold is not None
    assert warm is not None
    assert (cold.name, warm.name) == ("resident_share", "absent_share")
    assert warm.look() in (0, None)


@pytest.mark.parametrize(("name", "operation"), [("mapped", "save"), ("no_checksum", "load_cold")])
def test_an_arm_that_would_be_the_baseline_once_more_is_skipped(name: str, operation: str) -> None:
    with pytest.raises(Skip, match="torch_save does the same"):
        formats.make(name, {"tensors": "small", "operation": operation}, 7, None)


def test_the_large_case_is_of_a_gpu() -> None:
    with pytest.raises(Skip, match="a GPU's memory"):
        formats.make("dcp", {"tensors": "llama_1b", "operation": "save"}, 7, None)


@pytest.mark.parametrize(
    ("tensors", "count", "size"), [("gpt2", 148, 497_903_616), ("llama_1b", 146, 4_943_257_600)]
)
def test_models_have_so_many_tensors_and_bytes(tensors: str, count: int, size: int) -> None:
    shapes = formats.shapes_of(tensors)
    assert len(shapes) == count
    assert sum(4 * torch.Size(shape).numel() for shape in shapes.values()) == size


def test_tensors_of_other_names_are_not_loaded() -> None:
    with pytest.raises(ValueError, match="holds other tensors"):
        formats.copy_into({"a": torch.ones(1)}, {"b": torch.ones(1)})
