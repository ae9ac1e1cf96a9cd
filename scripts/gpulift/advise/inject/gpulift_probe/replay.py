"""Steps that were saved, and are taken again by each arm."""

from __future__ import annotations

from .arms import Switch
from .checks import Checks
from .saved import Saved
from .span import Course
from .windows import Windows

KEPT_STEPS, SLOW_S = 4, 0.25  # whose batches are replayed; of slow steps that of one


class Replay(Windows):
    """Live steps, a check of each arm, their windows in turns, live steps again."""

    def steps(self) -> Course:
        """All of it."""
        yield from self.until_flat()
        yield from self.observe()
        yield from self.live()
        batches = self.anchors.batches
        self.multiple = KEPT_STEPS if self.step_s < SLOW_S else 1
        batches.notes = True
        for _ in range(self.multiple):
            yield
        batches.notes, batches.playing = False, True
        self.synchronize()
        self.saved = Saved(self.anchors.optimizers.values())
        self.tell_facts()
        arms = list(self.told(("bits", "step", "work")))
        self.checks = Checks(self.anchors, self.saved, self.seen, self.say)
        yield from self.checks.steps(arms)
        self.begin(None)
        yield from self.taken(2 * self.multiple)
        yield from self.windows(arms)
        self.saved.restore()
        self.saved.release()
        batches.playing = False
        yield from self.live()

    def current(self) -> str:
        """See base."""
        return self.checks.arm or self.arm if hasattr(self, "checks") else ""

    def begin(self, arm: Switch | None) -> None:
        """The saved state and the first batch again, the arm's way."""
        self.saved.restore()
        self.anchors.batches.rewind()
        super().begin(arm)
