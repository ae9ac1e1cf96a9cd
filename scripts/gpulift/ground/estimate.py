"""A measured quantity with its interval."""

from __future__ import annotations

from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A positive quantity with its interval, which is absent where too little was measured."""

    value: float
    low: float | None = None
    high: float | None = None
    launches: int = 0
    confidence: float = CONFIDENCE

    @property
    def one_launch(self) -> bool:
        """The interval does not hold the variation from launch to launch."""
        return self.launches == 1

    @property
    def half_width(self) -> float | None:
        """Half the interval, relative to the value."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / (2 * self.value)

    def inverse(self) -> Estimate:
        """1 / x: its interval turns around."""
        low = None if self.high is None else 1 / self.high
        high = None if self.low is None else 1 / self.low
        return Estimate(1 / self.value, low, high, self.launches, self.confidence)

    def scaled(self, factor: float) -> Estimate:
        """The quantity times an exact positive factor."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Estimate(self.value * factor, low, high, self.launches, self.confidence)
