"""A step of each arm beside the same step as it is: how far results are apart."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import torch

from .anchors import Anchors
from .arms import Switch
from .exact import Exact
from .forward import is_crowded
from .gradients import Gradients
from .inputs import Inputs
from .rounded import Rounded
from .said import Said
from .saved import Saved, drawn_alike, random_numbers
from .seen import Seen
from .span import Course
from .windows import BASELINE

# How far gradients may be from those as it is, relative to their norm: at least what these are in
# usual models, more where the step is that far from FP32 or from itself, or turns by the rounding.
ROUNDING, BANDS = 1e-3, {"tf32": 1e-2, "bf16": 0.1}
SHARES = {"tf32": 2.0**-11, "bf16": 2.0**-8}  # by which these round
OF_ROUNDING, OF_ITSELF = 3, 10  # times
TELLING = 0.5  # a wider band tells nothing of gradients: losses have to do
OF_LOSSES = 1e-2


class Flipped(Protocol):
    """A switch, or another way of taking a step."""

    def flip(self) -> None:
        """From the next step on."""

    def back(self) -> None:
        """As it was."""


class Checks:
    """Steps from the saved state."""

    def __init__(self, anchors: Anchors, saved: Saved, seen: Seen, say: Said) -> None:
        self.arm = ""  # whose step is taken now
        self._anchors, self._saved, self._seen, self._say = anchors, saved, seen, say
        self._gradients, self._inputs = Gradients(saved.beside), Inputs(seen.modules)
        self._repeats = True  # the step, when it is taken once more
        anchors.on_step = self._gradients.look

    def steps(self, arms: Sequence[Switch]) -> Course:
        """All checks, told; first what the script as it is turns by chance, by the last bit of
        its weights, and by its own precision."""
        yield from self._once(None, self._gradients.keep)
        inputs = self._inputs.marks
        self._loss, self._marks = self._mean_loss(), self._saved.marks()
        self._numbers = random_numbers()
        null = yield from self._distance(None)
        self._repeats = self._inputs.marks == inputs
        self._tell(BASELINE, null, ROUNDING)
        itself = max(null or 0, (yield from self._rounded(0)))
        if self._seen.autocast and is_crowded(self._seen.device):  # no room for one in FP32
            exact: float | None = yield from self._rounded(SHARES["bf16"])
        else:
            exact = yield from self._distance(Exact(self._seen))
        inherent = max(ROUNDING, OF_ITSELF * itself, OF_ROUNDING * (exact or 0))
        for arm in arms:
            yield from self._check(arm, inherent)

    def _check(self, arm: Switch, inherent: float) -> Course:
        self._say("phase", text=f"checks a step: {arm.name}")
        band = max(inherent, BANDS.get(arm.name, ROUNDING))
        if arm.name in SHARES:
            band = max(band, OF_ROUNDING * (yield from self._rounded(SHARES[arm.name])))
        self.arm = arm.name
        distance = yield from self._distance(arm)
        self.arm = ""
        if band <= TELLING:
            self._tell(arm.name, distance, band)
        else:
            self._tell(arm.name, None, OF_LOSSES, "rounding alone turns its gradients")

    def _rounded(self, share: float) -> Generator[None, None, float]:
        """The distance of a step whose weights are off by that share."""
        rounded = Rounded(self._anchors.optimizers.values(), share)
        return (yield from self._distance(rounded)) or 0.0

    def _distance(self, arm: Flipped | None) -> Generator[None, None, float | None]:
        """Takes the step; how far its gradients are, where it drew the same random numbers."""
        yield from self._once(arm, self._gradients.compare)
        self._drew_alike = drawn_alike(self._numbers, random_numbers())
        return self._gradients.distance() if self._drew_alike else None

    def _once(self, arm: Flipped | None, look: Callable[[], None]) -> Course:
        """The step behind another, since some loops ask for a batch ahead of using the last."""
        self._saved.restore()
        self._anchors.batches.rewind()
        yield
        self._saved.restore()
        look()
        self._inputs.watch()
        if arm is not None:
            arm.flip()
        yield
        self._gradients.stop()
        if arm is not None:
            arm.back()
        self._inputs.stop()

    def _tell(self, name: str, gradient: float | None, band: float, why: str = "") -> None:
        losses = self._loss, self._mean_loss()
        self._say(
            "check",
            arm=name,
            losses=[loss for loss in losses if loss is not None],
            bits=self._saved.marks() == self._marks,
            gradient=gradient if self._repeats else None,
            band=band,
            why=self._incomparable() or why,
        )

    def _incomparable(self) -> str:
        """Why the step cannot be held against the one as it is; empty where it can."""
        if not self._repeats:
            return "its batches come of random numbers that cannot be put back"
        return "" if self._drew_alike else "it draws other random numbers, as for dropout"

    def _mean_loss(self) -> float | None:
        """Of the batches of the last step."""
        losses = self._anchors.losses
        return float(torch.stack(losses).double().mean()) if losses else None
