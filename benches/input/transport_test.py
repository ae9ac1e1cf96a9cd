"""input/transport: every way brings all bytes of each batch, and other bytes are found."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from technique_script import load

torch = pytest.importorskip("torch")

ARMS = ("shared_memory", "shared_memory_by_name", "numpy", "bytes", "arena")


@pytest.fixture(name="transport")
def transport_script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script; how tensors are shared is as before when the test ends. Workers that earlier
    tests left are none of its own: they may end while faults are counted."""
    module: Any = load(__file__)
    strategy = torch.multiprocessing.get_sharing_strategy()
    children, before = multiprocessing.active_children, {*multiprocessing.active_children()}
    monkeypatch.setattr(multiprocessing, "active_children", lambda: [*{*children()} - before])
    yield module
    torch.multiprocessing.set_sharing_strategy(strategy)


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_brings_every_byte_of_every_batch(transport: Any, arm: str) -> None:
    found = transport.make(arm, {"bytes": 4096}, 7, None)
    for _ in range(5):  # an arena's slots are all written again
        found.step()
        found.synchronize()
        found.rest()
        assert found.error() == 0
    assert found.bytes == 2 * 4096 * found.items
    told = found.metrics()
    assert told["loop_cpu_s"] > 0
    if arm.startswith("shared_memory"):  # a new page for each batch, at least
        assert told["worker_faults_per_step"] >= found.items
    assert "malloc" in found.notes


@pytest.mark.parametrize("arm", ["shared_memory", "arena"])
def test_a_wrong_byte_is_found_by_the_check_and_in_every_window(
    transport: Any, arm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = transport.CARRIERS[arm]

    def wrong(size: int) -> Any:
        carrier = right(size)

        def receive(batch: Any) -> Any:
            found = carrier.receive(batch).copy()
            found[7] ^= 1
            return found

        return transport.Carrier(carrier.send, receive)

    monkeypatch.setitem(transport.CARRIERS, arm, wrong)
    found = transport.make(arm, {"bytes": 4096}, 7, None)
    found.step()
    assert found.error() == 1
    with pytest.raises(RuntimeError, match="4 batches of a window came with other bytes"):
        found.rest()


def test_a_slot_is_not_written_while_its_batch_is_read(transport: Any) -> None:
    carrier = transport.arena(16)
    sent = [carrier.send((0, 0), number) for number in range(transport.SLOTS)]
    # What is ahead and what the loop has are in slots of their own.
    assert len(set(sent)) == transport.SLOTS >= transport.PREFETCH + 1
    assert [int(carrier.receive(slot)[0]) for slot in sent] == list(range(transport.SLOTS))


def test_too_little_shared_memory_skips_what_uses_it_alone(
    transport: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaders = sys.modules["gpulift_work.loaders"]
    monkeypatch.setattr(loaders, "SHARED_MEMORY", "/nowhere")
    with pytest.raises(loaders.Skip, match="/nowhere"):
        transport.make("shared_memory", {"bytes": 4096}, 7, None)
    transport.make("arena", {"bytes": 4096}, 7, None)
