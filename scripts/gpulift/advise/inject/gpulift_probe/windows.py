"""Windows of steps, of each arm in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

import torch

from .arms import Switch, switches
from .span import Course, Span

BASELINE = "as it is"
WINDOW_S = 0.5
SLOW = 3  # times the step as it is: fewer steps of such an arm tell as much, in one block
LEAST_BLOCKS, MOST_BLOCKS = 4, 24
CLOSE = 0.003  # three standard errors of a gain: launches differ by more


class Windows(Span):
    """Arms that are taken against the step as it is."""

    multiple = 1  # of which the steps of a window are

    def begin(self, arm: Switch | None) -> None:
        """Whatever comes ahead of the steps of an arm."""
        if arm is not None:
            self.arm = arm.name
            arm.flip()

    def end(self, arm: Switch | None) -> None:
        """As it was."""
        if arm is not None:
            arm.back()
            self.arm = ""

    def told(self, kept: Sequence[str]) -> Iterator[Switch]:
        """Switches that can be measured here, of those that keep one of these alike; of each is
        said whether it can."""
        only, without = self.plan.get("only"), self.plan.get("without", ())
        chosen = [
            one
            for one in switches(self.seen)
            if one.name not in without and (only is None or one.name in only) and one.keeps in kept
        ]
        told = self.ranks.gather([one.state(self.seen) for one in chosen])
        for switch, *states in zip(chosen, *told, strict=True):
            state, why = min(states)  # of ranks that can do less
            facts = {"label": switch.label, "keeps": switch.keeps, "state": state, "why": why}
            self.say("arm", arm=switch.name, **facts)
            if state != "not applicable":
                yield switch

    def windows(self, arms: Sequence[Switch]) -> Course:
        """Blocks of all arms, and again the other way round, so that drift cancels: until blocks
        agree, or time is over. What took far longer throughout a block is in no further one."""
        count = self._steps_per_window(self.step_s)
        as_it_is_s = self.step_s
        every: list[Switch | None] = [None, *arms]
        block_s = 2 * len(every) * (count + 1) * as_it_is_s
        blocks = round(float(self.plan["windows_s"]) / block_s)
        blocks = min(MOST_BLOCKS, max(1, blocks))  # one has each arm twice
        self._took: list[dict[str, list[float]]] = []  # steps of each arm in each block
        until_s = time.monotonic() + float(self.plan["windows_s"])
        for block in range(blocks):
            if self._agree() or (block and self.ranks.first(time.monotonic() > until_s)):
                break
            self._took.append({})
            turn = block % len(every)
            order = every[turn:] + every[:turn]
            for place, arm in enumerate((*order, *reversed(order))):
                self.say("phase", text=f"block {block + 1} of {blocks}: {name_of(arm)}")
                self.begin(arm)
                yield from self.taken(1)
                slow = self.step_s > SLOW * as_it_is_s
                few = self._steps_per_window(self.step_s) if slow else count
                yield from self._window(arm, block, place, few)
                self.end(arm)
            took = self._took[-1]
            most_s = SLOW * max(took[BASELINE])
            every = [one for one in every if min(took[name_of(one)]) <= most_s]

    def _agree(self) -> bool:
        if len(self._took) < LEAST_BLOCKS:
            return False
        for arm in self._took[-1]:
            logs = [math.log(fmean(took[arm]) / fmean(took[BASELINE])) for took in self._took]
            if 3 * stdev(logs) / math.sqrt(len(logs)) > CLOSE:
                return False
        return True

    def _steps_per_window(self, step_s: float) -> int:
        lots = round(WINDOW_S / step_s / self.multiple)
        return self.multiple * max(1, lots)

    def _window(self, arm: Switch | None, block: int, place: int, count: int) -> Course:
        """So many steps, behind one that was not counted."""
        if self.on_cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
        yield from self.taken(count)
        self._took[-1].setdefault(name_of(arm), []).append(self.step_s)
        self.say(
            "window",
            arm=name_of(arm),
            block=block,
            place=place,
            steps=count,
            seconds=self.seconds,
            issued_s=self.issued_s,
            peak_bytes=torch.cuda.max_memory_allocated(self.device) if self.on_cuda else 0,
        )


def name_of(arm: Switch | None) -> str:
    """The arm's; of none that of the script as it is."""
    return BASELINE if arm is None else arm.name
