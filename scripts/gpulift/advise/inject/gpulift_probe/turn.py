"""A process that differs from the script as it is in what has to be set ahead of its start."""

from __future__ import annotations

import torch

from .arms import switches
from .constructed import change_first_step, host_bytes
from .rounded import Rounded
from .span import Course, Span

COURSE_STEPS = 10  # whose losses are told: behind them batches are thrown away


class Turn(Span):
    """The losses of the first steps, live steps, and the memory they took."""

    def steps(self) -> Course:
        """All of it."""
        losses = list(self.anchors.losses)
        change_first_step(self.plan, self.anchors.optimizers.values())
        rounded = bool(self.plan.get("rounded"))
        if rounded:
            Rounded(self.anchors.optimizers.values()).flip()
        for _ in range(COURSE_STEPS - 1):
            yield
            losses += self.anchors.losses
        yield from self.until_flat()
        yield from self.observe()
        flipped = self.plan.get("switches")
        if flipped:
            for switch in switches(self.seen):
                if switch.name in flipped:
                    switch.flip()
            yield from self.until_flat()
        if self.on_cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
        yield from self.live()
        self.tell_facts()
        device_bytes = torch.cuda.max_memory_allocated(self.device) if self.on_cuda else 0
        self.say("memory", device_bytes=device_bytes, host_bytes=host_bytes())
        self.say("course", losses=[float(loss) for loss in losses], rounded=rounded)
