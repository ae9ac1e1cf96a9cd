"""Duets on simulated clocks with known truth, as noisy as the fitted ones (`noise.py`).

A launch has an offset (its true log ratio of head over base) and blocks around it, whose median is
the launch's value, as in `stats.pair_ratio`. The clock's own path within a launch (warm-up, drift)
hits both arms; what palindromes leave of it is computed with `stats.block_values`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from gpulift.verdicts import stats
from tests.noise import NORMAL, NoiseModel

Values = NDArray[np.float64]

BLOCKS = 8  # the fewest that the engine takes
WARM_UP_BLOCKS = 1.0  # a clock's warm-up falls by e in this many blocks
WARM_UP_LAUNCHES = 4.0
SLOW = 0.95  # correlation of neighbours in a slow wander
MODE_SHARE = 0.3


@dataclass(frozen=True)
class Clock:
    """Log ratios. `offset_*` and `mode_*` are drawn once a launch, `block_*` once a block.

    `*_tail`: degrees of a Student t, whose quartiles are those of a normal of that SD.
    `mode_gap`: either arm is slower by it in 30 % of launches. `placement`: sign alternates from
    launch to launch. `wander`: SD of an AR(1) over launches in the ratio itself, `correlation` its
    memory. `first_launches`: SD of a per-case excess that decays over launches. `bias`: the same in
    every launch although both arms run one code. `warm_up`, `drift`: of the clock, both arms.
    """

    offset_sd: float
    block_sd: float
    offset_tail: float = NORMAL
    block_tail: float = NORMAL
    mode_gap: float = 0.0
    placement: float = 0.0
    wander: float = 0.0
    correlation: float = SLOW
    first_launches: float = 0.0
    bias: float = 0.0
    warm_up: float = 0.0
    drift: float = 0.0

    @property
    def remembers(self) -> bool:
        """Whether launches of a case depend on those before them."""
        return bool(self.wander or self.first_launches)

    def offsets(self, random: Generator, cases: int, launches: int) -> Values:
        """True log ratios of each launch of each case, both arms being the same code."""
        shape = (cases, launches)
        made = self.bias + self.offset_sd * _draw(random, self.offset_tail, shape)
        if self.mode_gap:
            slow = random.random((2, *shape)) < MODE_SHARE
            made += self.mode_gap * (slow[0].astype(np.float64) - slow[1])
        made += self.placement * (-1.0) ** np.arange(launches)
        if self.wander:
            made += self.wander * _autoregressive(random, self.correlation, shape)
        if self.first_launches:
            decay = np.exp(-np.arange(launches) / WARM_UP_LAUNCHES)
            made += self.first_launches * random.standard_normal((cases, 1)) * decay
        return made

    def measure(self, random: Generator, offsets: Values) -> Values:
        """Launch values: medians of blocks around the offsets."""
        shape = (*offsets.shape, BLOCKS)
        blocks = self.block_sd * _draw(random, self.block_tail, shape)
        if self.warm_up or self.drift:
            blocks += self._path_left(random, offsets.shape)
        made: Values = offsets + np.median(blocks, axis=-1)
        return made

    def values(self, random: Generator, cases: int, launches: int) -> Values:
        """Launch values of an A/A duet."""
        return self.measure(random, self.offsets(random, cases, launches))

    def _path_left(self, random: Generator, shape: tuple[int, ...]) -> Values:
        """What is left in block values of a clock's path, which starts at A or at B."""
        left = np.array([self._left_of(start) for start in (0, 1)])
        made: Values = left[random.integers(0, 2, shape)]
        return made

    def _left_of(self, start: int) -> Values:
        orders = [[0, 1, 1, 0], [1, 0, 0, 1]]
        turns = [orders[(start + block) % 2] for block in range(BLOCKS)]
        times: dict[int, list[float]] = {0: [], 1: []}
        for position, arm in enumerate(arm for block in turns for arm in block):
            decay = self.warm_up * math.exp(-position / (4 * WARM_UP_BLOCKS))
            times[arm].append(math.exp(decay + self.drift * position / (4 * BLOCKS)))
        values = {arm: np.asarray(one) for arm, one in times.items()}
        return stats.block_values(turns, 1, 0, values)


@dataclass(frozen=True)
class Extremes:
    """The worst of each kind of noise among the fitted cases."""

    launch_tail: float
    block_tail: float
    warm_up: float
    drift: float
    placement: float
    mode_gap_sd: float
    bias: float
    correlation: float

    @classmethod
    def of(cls, models: Collection[NoiseModel]) -> Extremes:
        """`mode_gap_sd`: in SDs of launches, where a split into two explains over 80 %."""
        return cls(
            launch_tail=min(one.launch_tail for one in models),
            block_tail=min(one.block_tail for one in models),
            warm_up=max(abs(one.warm_up) for one in models),
            drift=max(abs(one.drift) for one in models),
            placement=max(abs(one.placement) for one in models),
            mode_gap_sd=max(o.mode_gap / o.launch_sd for o in models if o.mode_explained > 0.8),
            bias=max(abs(one.mean) for one in models if not one.planted),
            correlation=max(one.launch_autocorrelation for one in models),
        )


def clocks(noise: NoiseModel, worst: Extremes, factor: float = 1.0) -> dict[str, Clock]:
    """Clocks as noisy as a fitted case, or `factor` times worse.

    None of them breaks what the verdicts assume: launches that differ independently of each other
    and in both directions alike, once the order of allocation has been swapped.
    """
    offset_sd = factor * noise.launch_sd
    white = Clock(offset_sd, factor * noise.block_quartile_sd)
    return {
        "white": white,
        "drift": replace(white, drift=factor * worst.drift),
        "warm-up": replace(white, warm_up=factor * worst.warm_up),
        "heavy tails": replace(white, offset_tail=worst.launch_tail, block_tail=worst.block_tail),
        "two modes": replace(
            white, offset_sd=offset_sd / 3, mode_gap=worst.mode_gap_sd * offset_sd
        ),
        "placement": replace(white, placement=factor * worst.placement),
    }


def hostile(noise: NoiseModel, worst: Extremes, factor: float = 1.0) -> dict[str, Clock]:
    """Clocks that break the assumptions: launches that depend on those before, a steady bias.

    How strong these are is chosen, not fitted, apart from the bias and what is named so.
    """
    offset_sd = factor * noise.launch_sd
    white = Clock(offset_sd, factor * noise.block_quartile_sd)
    return {
        "neighbours as fitted": replace(
            white, offset_sd=0.0, wander=offset_sd, correlation=worst.correlation
        ),
        "neighbours 0.6": replace(white, offset_sd=0.0, wander=offset_sd, correlation=0.6),
        "slow wander": replace(white, wander=offset_sd),
        "first launches": replace(white, first_launches=3 * offset_sd),
        "bias as fitted": replace(white, bias=worst.bias),
        "bias x3": replace(white, bias=3 * worst.bias),
    }


def _draw(random: Generator, degrees: float, shape: tuple[int, ...]) -> Values:
    """Standard normals, or Student t with a standard normal's quartiles (its SD may not exist)."""
    if degrees >= NORMAL:
        return random.standard_normal(shape)
    quartiles = scipy_stats.norm.ppf(0.75) / scipy_stats.t.ppf(0.75, degrees)
    made: Values = float(quartiles) * random.standard_t(degrees, shape)
    return made


def _autoregressive(random: Generator, correlation: float, shape: tuple[int, int]) -> Values:
    """AR(1) of unit SD along the second axis, in its steady state from the start."""
    steps = random.standard_normal(shape)
    fresh = math.sqrt(1 - correlation**2)
    for launch in range(1, shape[1]):
        steps[:, launch] = correlation * steps[:, launch - 1] + fresh * steps[:, launch]
    return steps
