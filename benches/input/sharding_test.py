"""input/sharding: readers deliver each sample once between them, and read what they should."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("sharding.py")
sys.path.insert(0, str(ROOT / "core" / "python"))

import gpulift_samples  # noqa: E402
from gpulift_manifest import manifest_of  # noqa: E402
from gpulift_worker import Arm, Skip, scratch  # noqa: E402


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("sharding_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sharding = load()
MANIFEST = manifest_of("input/sharding", SCRIPT)
POINTS = [case["point"] for case in MANIFEST["cases"]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk, and work of a small size."""
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    monkeypatch.setattr(gpulift_samples, "disk_facts", lambda _: {"in_memory": False})
    monkeypatch.setattr(sharding, "COUNT", 24)
    monkeypatch.setattr(sharding, "SHARD_BYTES", 3 * sharding.SIZE)  # 8 shards
    monkeypatch.setattr(sharding, "BYTES_PER_S", 1e12)
    monkeypatch.setattr(sharding, "LATENCY_S", 0.0)
    scratch.cache_clear()
    yield tmp_path / "case"
    scratch.cache_clear()


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    try:
        arm: Arm = sharding.make(name, point, 7, None)
    except (ModuleNotFoundError, Skip) as missing:
        pytest.skip(str(missing))
    arm.before()
    arm.step()
    return arm


@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(map(str, point.values())))
@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_an_arm_passes_its_check_in_every_case(name: str, point: dict[str, Any]) -> None:
    arm = make(name, point)
    assert arm.error is not None
    assert arm.error() == 0
    arm.before()
    arm.step()  # a second one
    assert arm.error() == 0


@pytest.mark.parametrize("readers", [1, 2, 4])
@pytest.mark.parametrize("store", ["cold_disk", "emulated_200MB_s"])
@pytest.mark.parametrize(
    ("name", "shared_out"),
    [("scan_and_skip", False), ("strided_index", True), ("contiguous_shards", True)],
)
def test_metrics_say_what_a_reader_reads(
    name: str, shared_out: bool, readers: int, store: str
) -> None:
    arm = make(name, {"readers": readers, "store": store})
    (read,) = arm.metrics().values()
    wanted = 24 * sharding.SIZE / (readers if shared_out else 1)
    assert wanted <= read < 1.05 * wanted


def delivery(links: int) -> Any:
    """Readers of one pack."""
    content = gpulift_samples.seeded_samples(24, sharding.SIZE, 7)
    store = gpulift_samples.Pack(gpulift_samples.folder_for("own", 1.0), content, range(24))
    reader = gpulift_samples.ThrottledReader(1e12, 0.0)
    return sharding.Delivery("strided_index", store, [reader] * links), content


def test_a_sample_that_comes_twice_or_never_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    readers, content = delivery(2)
    readers.step()
    assert readers.error(content) == 0
    readers._readers[1]._rank = 0
    readers.step()
    with pytest.raises(RuntimeError, match="sample 0 came 2 times"):
        readers.error(content)
    readers._readers = [readers._readers[0]]
    readers.step()
    with pytest.raises(RuntimeError, match="sample 1 came 0 times"):
        readers.error(content)


def test_wrong_bytes_are_found() -> None:
    readers, content = delivery(3)
    readers.step()
    changed = content.copy()
    changed[5, 100] ^= 1
    assert readers.error(changed) == 1


def test_a_truncated_shard_names_the_sample(folder: Path) -> None:
    arm = make("contiguous_shards", POINTS[0])
    with open(folder / "contiguous_shards" / "000007.tar", "ab") as file:
        file.truncate(600)
    with pytest.raises(ValueError, match=r"sample 0000\d\d.bin is truncated: 88 of"):
        arm.step()
