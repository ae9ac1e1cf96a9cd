"""How ranks meet, or say that they cannot, and messages between them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.ranks import store
from gpulift.ranks.launched import Launched
from gpulift.ranks.store import Forged, Lost, Reader, Store, Writer
from tests.ranks.conftest import KEY, free_port

pytest.importorskip("torch")


@pytest.fixture
def place() -> Launched:
    return Launched("environment", 0, 2, 0, "127.0.0.1", free_port())


@pytest.fixture
def shared(place: Launched) -> Iterator[Store]:
    made = store.meet(place, KEY)
    yield made
    made.close()


def test_messages_come_in_order_and_are_then_gone(place: Launched, shared: Store) -> None:
    writer = Writer(shared, "line")
    reader = Reader(store.meet(replace(place, rank=1), KEY), "line")
    for number in range(3):
        writer.put({"number": number})
    assert [reader.take(5.0) for _ in range(3)] == [{"number": number} for number in range(3)]
    assert reader.take(0.0) is None
    assert not shared.wait("line/0", 0.0)


def test_what_another_signed_is_not_believed(place: Launched, shared: Store) -> None:
    other = store.meet(replace(place, rank=1), b"another key of 16")
    other.put("key", {"start": {"environment": {"LD_PRELOAD": "evil.so"}}})
    with pytest.raises(Forged):
        shared.get("key", 5.0)


def test_messages_of_another_run_are_not_believed(place: Launched, shared: Store) -> None:
    other = store.meet(replace(place, rank=1), KEY)
    shared.bind(["first", "second"])
    shared.put("key", {})
    with pytest.raises(Forged):
        other.get("key", 5.0)
    other.bind(["first", "second"])
    assert other.get("key", 5.0) == {}
    assert other.again().get("key", 5.0) == {}


def test_an_attempt_hears_nothing_of_the_one_before(place: Launched, shared: Store) -> None:
    shared.put("key", {})
    again = store.meet(replace(place, rank=1, attempt="1"), KEY)
    assert again.get("key", 0.0) is None


def test_waits_end_when_one_connection_is_closed(shared: Store) -> None:
    other = shared.again()
    shared.close()
    with pytest.raises(Lost):
        other.wait("key", 60.0)


def test_a_store_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Launched("environment", 0, 2, 0, "127.0.0.1", free_port())
    held = store.meet(place, KEY)
    other = store.meet(replace(place, rank=1), KEY)
    del held
    with pytest.raises(Lost):
        other.wait("key", 60.0)
    monkeypatch.setattr(store, "MEETING_S", 0.5)
    with pytest.raises(Lost):
        other.again()


def test_further_connections_leave_the_environment_to_others(
    shared: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads make them at the same time."""
    monkeypatch.setattr(store, "os", None)
    shared.again()


@pytest.mark.parametrize(("address", "seen"), [("127.0.0.1", False), ("localhost", True)])
def test_a_meeting_at_the_loopback_is_on_no_other_address(
    place: Launched, address: str, seen: bool
) -> None:
    held = store.meet(replace(place, address=address), KEY)
    with socket.socket() as caller:
        assert (caller.connect_ex(("127.0.0.2", place.port)) == 0) is seen
    held.close()


def test_a_name_that_does_not_resolve_is_one_line(place: Launched) -> None:
    with pytest.raises(GpuliftError, match=r"MASTER_ADDR no\.invalid does not resolve") as told:
        store.meet(replace(place, address="no.invalid"), KEY)
    assert "\n" not in str(told.value)


def test_a_closed_port_is_one_line(place: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MEETING_S", 0.5)
    with pytest.raises(GpuliftError, match=r"rank 1 does not reach rank 0 at .*refused") as told:
        store.meet(replace(place, rank=1), KEY)
    assert "\n" not in str(told.value)


def test_who_holds_the_port_and_never_answers_is_no_store(
    place: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MEETING_S", 0.5)
    told = pytest.raises(
        GpuliftError, match=r"rank 1 cannot meet .*: who listens there is no store"
    )
    with socket.create_server(("127.0.0.1", place.port)), told:
        store.meet(replace(place, rank=1), KEY)


def test_a_port_that_another_holds_is_told(place: Launched) -> None:
    told = pytest.raises(GpuliftError, match="rank 0 cannot meet the others")
    with socket.create_server(("", place.port)), told:
        store.meet(place, KEY)
