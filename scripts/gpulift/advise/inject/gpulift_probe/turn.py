"""A process that differs from the script as it is in what has to be set ahead of its start."""

from __future__ import annotations

import torch

from .arms import switches
from .constructed import change_first_step, host_bytes
from .span import Course, Span


class Turn(Span):
    """Live steps, with the losses of all and the memory they took."""

    def steps(self) -> Course:
        """All of it."""
        self._losses = list(self.anchors.losses)
        for _ in self._course():
            yield
            self._losses += self.anchors.losses

    def _course(self) -> Course:
        change_first_step(self.plan, self.anchors.optimizers.values())
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
        self.tell_facts(0)
        device_bytes = torch.cuda.max_memory_allocated(self.device) if self.on_cuda else 0
        self.say("memory", device_bytes=device_bytes, host_bytes=host_bytes())
        self.say("course", losses=[float(loss) for loss in self._losses])
