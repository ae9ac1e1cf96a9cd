"""How far another host's clock is ahead of this one's, by round trips."""

from __future__ import annotations

from dataclasses import dataclass

DRIFT = 100e-6  # of two clocks against each other, at most: each may be off by 50 ppm


@dataclass(frozen=True)
class RoundTrip:
    """When a question left, what the other clock was before its answer left, and when that came."""

    sent_s: float
    there_s: float
    received_s: float

    @property
    def ahead_s(self) -> float:
        """The other clock, if both ways took as long."""
        return self.there_s - (self.sent_s + self.received_s) / 2

    @property
    def error_s(self) -> float:
        """By which that may be wrong: one of the ways may have taken no time."""
        return (self.received_s - self.sent_s) / 2


class Clock:
    """Another host's."""

    def __init__(self) -> None:
        self._best: RoundTrip | None = None

    def hear(self, trip: RoundTrip) -> None:
        """One more; it counts where it tells more than what is known, which grows stale."""
        if self._best is None or trip.error_s <= _error_s(self._best, trip.received_s):
            self._best = trip

    def here(self, there_s: float) -> tuple[float, float]:
        """What our clock was when that one was so, and by how much that may be wrong, in
        seconds. Raises ValueError where nothing was heard."""
        if self._best is None:
            raise ValueError("no round trip was heard")
        here_s = there_s - self._best.ahead_s
        return here_s, _error_s(self._best, here_s)


def _error_s(trip: RoundTrip, then_s: float) -> float:
    """Before the trip the clocks drifted apart as they did after it."""
    return trip.error_s + DRIFT * max(trip.sent_s - then_s, then_s - trip.received_s, 0.0)
