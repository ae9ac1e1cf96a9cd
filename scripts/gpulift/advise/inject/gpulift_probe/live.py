"""Arms that keep every bit, in a training that goes on."""

from __future__ import annotations

from .span import Course
from .windows import Windows


class Live(Windows):
    """Nothing is saved, cached or taken again."""

    throws_away = False

    def steps(self) -> Course:
        """All of it."""
        yield from self.until_flat()
        yield from self.observe()
        yield from self.live()
        self.tell_facts()
        self.multiple = self.per_span()
        yield from self.windows(list(self.told(("bits",))))
        yield from self.live()
