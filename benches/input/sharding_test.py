"""input/sharding: readers deliver each sample once between them, and read what they should."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gpulift_work import samples
from gpulift_worker import Skip
from technique_script import error_of, load, made, points

sharding = load(__file__)
POINTS = points(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(sharding, "COUNT", 24)
    monkeypatch.setattr(sharding, "SHARD_BYTES", 3 * sharding.SIZE)  # 8 shards
    return disk


make = partial(made, sharding)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point['store']}-{point['readers']}")
@pytest.mark.parametrize("name", sharding.TECHNIQUE["arms"])
def test_each_sample_comes_once(name: str, point: dict[str, Any]) -> None:
    arm = make(name, point)
    assert error_of(arm) == 0
    assert (arm.precondition is None) == (point["store"] != "cold_disk")


def test_no_reader_is_without_a_shard() -> None:
    with pytest.raises(Skip, match="8 shards are too few for 9 readers"):
        sharding.make("scan_and_skip", {"readers": 9, "store": "cold_disk"}, 7, None)
    case = {"readers": sharding.SHARDS, "store": "cold_disk"}
    assert error_of(make("contiguous_shards", case)) == 0


@pytest.mark.parametrize(
    ("way", "wanted"),
    [("scan_and_skip", range(8)), ("contiguous_shards", range(1, 8, 2))],
)
def test_who_has_shards_of_its_own_reads_no_others(
    way: str, wanted: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = samples.seeded_samples(24, sharding.SIZE, 7)
    own = samples.folder_for("own", 1.0)
    store = samples.TarShards(own, content, range(24), sharding.SHARD_BYTES)
    opened: list[Path] = []
    local = sharding.Reader._opened

    def told(self: Any, shards: list[Path]) -> Any:
        opened.extend(shards)
        return local(self, shards)

    monkeypatch.setattr(sharding.Reader, "_opened", told)
    assert len(list(getattr(sharding.Reader(store, 1, 2), way)())) == 12
    assert opened == [store.files[number] for number in wanted]


def delivery(readers: int) -> Any:
    """Readers of one pack."""
    content = samples.seeded_samples(24, sharding.SIZE, 7)
    store = samples.Pack(samples.folder_for("own", 1.0), content, range(24))
    return [sharding.Reader(store, rank, readers) for rank in range(readers)], content


def test_a_sample_that_comes_twice_or_never_is_found() -> None:
    (first, second), content = delivery(2)
    both = sharding.Delivery("strided_index", [first, second])
    both.step()
    assert both.error(content) == 0
    twice = sharding.Delivery("strided_index", [first, first])
    twice.step()
    with pytest.raises(RuntimeError, match="sample 0 came 2 times"):
        twice.error(content)
    alone = sharding.Delivery("strided_index", [first])
    alone.step()
    with pytest.raises(RuntimeError, match="sample 1 came 0 times"):
        alone.error(content)


def test_wrong_bytes_are_found() -> None:
    readers, content = delivery(3)
    three = sharding.Delivery("strided_index", readers)
    three.step()
    changed = content.copy()
    changed[5, 100] ^= 1
    assert three.error(changed) == 1


def test_a_truncated_shard_names_the_sample(folder: Path) -> None:
    arm = make("contiguous_shards", POINTS[0])
    with open(folder / "contiguous_shards" / "store" / "samples" / "000007.tar", "ab") as file:
        file.truncate(600)
    with pytest.raises(RuntimeError, match=r"sample 0000\d\d.bin is truncated: 88 of"):
        arm.step()


def test_a_reader_that_is_killed_ends_the_step() -> None:
    readers, _ = delivery(1)
    one = sharding.Delivery("strided_index", readers)
    (process,) = one.processes
    process.kill()
    process.join()
    with pytest.raises(BrokenPipeError):
        one.step()
