"""What a launch of a case checks that is not its first: that a training repeats what that one did.

The first launch checks a training whole, and keeps what it found as metrics; a later one takes two
steps from the same weights on the same data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from gpulift_worker import Failed, earlier

from gpulift_work.training import Training

STEPS = 2
LOSSES = ("check_loss_1", "check_loss_2")
NORM = "check_gradient_norm"
PARAMETERS = "check_parameters"
# Kernels add in any order, and another one may be chosen: emulated on a host, BF16's losses are
# 1.2e-5 off where sums are in another order, of a toy and of gpt_small, and norms 2.6e-5; 1e-4 and
# 3.5e-4 where all is rounded otherwise, in FP32. A layer of two that is skipped has 2e-3 in the
# second loss and 5e-2 in the norm at least, a halved gradient of one 4e-2 in the norm: of 32
# layers that is 0.012.
LOSS_TOLERANCE = 1e-3
NORM_TOLERANCE = 0.005
SAID = (  # in a note of the record, which all arms share
    "of arms that the first launch checked, losses of two steps, the gradients' norm and the work"
    " against those of that launch"
)


def expected() -> Mapping[str, float] | None:
    """What the first launch found of this arm; None where it did not, and all is to be checked."""
    found = earlier()
    known = found is not None and {*LOSSES, NORM, PARAMETERS} <= found.keys()
    return found if known else None


def found_of(training: Training, norm: float, work: Mapping[str, object]) -> dict[str, float]:
    """What a later launch is held against: of a training that has taken its first steps, whose
    first gradients had this norm, and the numbers of what its arm says of a step's work."""
    counted = {f"check_{name}": one for name, one in work.items() if isinstance(one, int | float)}
    return {
        **dict(zip(LOSSES, training.losses, strict=False)),
        NORM: norm,
        PARAMETERS: float(sum(one.numel() for one in training.model.parameters())),
        **counted,
    }


def take_steps(training: Training, work: Mapping[str, object]) -> dict[str, float]:
    """Two, of a training that is about to begin; found_of() them."""
    training.losses = []
    training.make_gradients()
    norm = norm_of_gradients(training)
    training.update()
    training.record()
    training.train_until(STEPS)
    return found_of(training, norm, work)


def deviation(
    found: Mapping[str, float], wanted: Mapping[str, float], tolerance: float = LOSS_TOLERANCE
) -> float:
    """The largest of the losses, relative to the first; Failed where one of them is beyond the
    tolerance, or the gradients' norm or the work is another."""
    for name in sorted(found.keys() - {*LOSSES, NORM}):
        if found[name] != wanted.get(name):
            first = wanted.get(name, math.nan)
            raise Failed(f"{name} is {found[name]:g}, in the first launch it was {first:g}")
    apart = max(abs(found[name] - wanted[name]) for name in LOSSES) / abs(wanted[LOSSES[0]])
    if not all(math.isfinite(found[name]) for name in LOSSES) or not apart <= tolerance:
        told = " and ".join(f"{found[name]:.5g}" for name in LOSSES)
        before = " and ".join(f"{wanted[name]:.5g}" for name in LOSSES)
        raise Failed(f"losses of two steps are {told}, in the first launch they were {before}")
    if not abs(found[NORM] / wanted[NORM] - 1) <= NORM_TOLERANCE:
        raise Failed(
            f"gradients have a norm of {found[NORM]:.5g}, in the first launch {wanted[NORM]:.5g}"
        )
    return apart


def norm_of_gradients(training: Training) -> float:
    """Of all in the last backward pass."""
    scale = training.scaler.get_scale() if training.scaler else 1.0
    gradients = (one.grad for one in training.model.parameters() if one.grad is not None)
    return math.sqrt(sum(map(squared_norm, gradients))) / scale


def squared_norm(values: torch.Tensor) -> float:
    """In FP32."""
    return float(torch.linalg.vector_norm(values.float())) ** 2
