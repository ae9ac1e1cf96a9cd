"""input/sharding: readers deliver each sample once between them, and read what they should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpulift_work import samples
from gpulift_worker import Arm
from technique_script import load, made, points

sharding = load(__file__)
POINTS = points(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(sharding, "COUNT", 24)
    monkeypatch.setattr(sharding, "SHARD_BYTES", 3 * sharding.SIZE)  # 8 shards
    monkeypatch.setattr(sharding, "BYTES_PER_S", 1e12)
    monkeypatch.setattr(sharding, "LATENCY_S", 0.0)
    return disk


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    return made(sharding, name, point)


@pytest.mark.parametrize("readers", [1, 2, 4])
@pytest.mark.parametrize("store", ["cold_disk", "emulated_200MB_s"])
@pytest.mark.parametrize(
    ("name", "shared_out"),
    [("scan_and_skip", False), ("strided_index", True), ("contiguous_shards", True)],
)
def test_each_sample_comes_once_and_metrics_say_what_a_reader_reads(
    name: str, shared_out: bool, readers: int, store: str
) -> None:
    arm = make(name, {"readers": readers, "store": store})
    assert arm.error is not None
    assert arm.error() == 0
    (read,) = arm.metrics().values()
    wanted = 24 * sharding.SIZE / (readers if shared_out else 1)
    assert wanted <= read < 1.05 * wanted


def delivery(links: int) -> Any:
    """Readers of one pack."""
    content = samples.seeded_samples(24, sharding.SIZE, 7)
    store = samples.Pack(samples.folder_for("own", 1.0), content, range(24))
    reader = samples.ThrottledReader(1e12, 0.0)
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
