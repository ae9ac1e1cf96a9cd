"""What held the clock down while records were measured, as far as the driver said it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpulift.records.model import Record


@dataclass(frozen=True)
class Throttle:
    """Reasons for which the clock was held down in any of some launches, by name.

    Of `unread` of the `launches` nobody knows: the driver did not say it, or was not asked.
    """

    reasons: tuple[str, ...]
    unread: int = 0
    launches: int = 1

    @property
    def unread_words(self) -> str:
        """`not read in 1 of 3 launches`; empty where all were read."""
        if not self.unread:
            return ""
        everywhere = self.unread == self.launches
        return (
            "not read" if everywhere else f"not read in {self.unread} of {self.launches} launches"
        )

    @property
    def words(self) -> str:
        """For people; that there was none is said only of what was read."""
        seen = list(self.reasons)
        if not seen and self.unread < self.launches:
            seen = ["none seen"]
        return ", ".join([*seen, self.unread_words] if self.unread else seen)

    @property
    def data(self) -> list[str] | None:
        """For programs: an empty list only where there was none, None where nobody knows that."""
        return None if self.unread and not self.reasons else list(self.reasons)


def throttle_of(records: Sequence[Record]) -> Throttle:
    """Of one launch per record; a launch is read where all of its GPUs were."""
    found: set[str] = set()
    unread = 0
    for record in records:
        cards = (record.telemetry, *record.telemetry_others)
        read = [one.throttle if one else None for one in cards]
        found.update(reason for reasons in read for reason in reasons or ())
        unread += None in read
    return Throttle(tuple(sorted(found)), unread, len(records))
