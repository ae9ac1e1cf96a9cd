"""How far another clock is ahead, by round trips: simulated ones, whose truth is known."""

from __future__ import annotations

import random

import pytest

from gpulift.ranks.clocks import DRIFT, Clock, RoundTrip

AHEAD_S = 60.0


def trip(sent_s: float, there_s: float, back_s: float, drift: float = 0.0) -> RoundTrip:
    """That takes so long each way."""
    arrived_s = sent_s + there_s
    return RoundTrip(sent_s, AHEAD_S + arrived_s * (1 + drift), arrived_s + back_s)


def test_it_is_told_as_well_as_the_shortest_trip_does() -> None:
    clock = Clock()
    for there_s in (3e-3, 1e-3, 5e-3):
        clock.hear(trip(100.0, there_s, 1e-3))
    here_s, error_s = clock.here(AHEAD_S + 100.0)
    assert error_s == pytest.approx(1e-3)
    assert here_s == pytest.approx(100.0, abs=1e-9)


def test_without_a_trip_nothing_is_known() -> None:
    with pytest.raises(ValueError, match="no round trip"):
        Clock().here(1.0)


def test_what_is_known_grows_stale_until_a_worse_trip_tells_more() -> None:
    clock = Clock()
    clock.hear(trip(0.0, 1e-4, 1e-4))
    assert clock.here(AHEAD_S + 10.0)[1] == pytest.approx(1e-4 + DRIFT * 10, rel=1e-3)
    clock.hear(trip(10.0, 1e-3, 1e-3))
    assert clock.here(AHEAD_S + 10.0)[1] == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("drift", [-50e-6, 0.0, 50e-6])
def test_the_error_holds_the_truth(drift: float) -> None:
    generator = random.Random(7)
    clock = Clock()
    for second in range(1, 200):
        there_s, back_s = (generator.expovariate(1e4) for _ in range(2))
        clock.hear(trip(second, there_s, back_s, drift))
        for then_s in (second + generator.random(), second - 30.0):  # a long window began then
            here_s, error_s = clock.here(AHEAD_S + then_s * (1 + drift))
            assert abs(here_s - then_s) <= error_s + 1e-9
