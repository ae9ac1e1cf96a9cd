"""What comes between steps and is part of none: an evaluation every so many of them."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from torch import nn

LEAST_S = 1e-3  # shorter ones are no evaluations


class Aside:
    """Times from where the script turns to evaluating until it trains again. A step of an optimizer
    in between tells that it was none: some models have parts that always evaluate. One at each step
    is a part of the step."""

    def __init__(self) -> None:
        self.every: list[tuple[int, float]] = []  # behind which step, and its seconds
        self.thread = 0  # that trains
        self.settle: Callable[[], None] = lambda: None  # waits for what was issued
        self.steps, self._last = 0, -1  # of the training, and behind which the last one came
        self._began_s: float | None = None

    def watch(self) -> None:
        """Models say by themselves what they are used for."""
        evaluate, train = nn.Module.eval, nn.Module.train

        @functools.wraps(evaluate)
        def evaluating(module: Any) -> Any:
            self.begin()
            return evaluate(module)

        @functools.wraps(train)
        def training(module: Any, mode: bool = True) -> Any:
            if mode and self._began_s is not None:
                self.end()
            return train(module, mode)

        nn.Module.eval, nn.Module.train = evaluating, training

    def begin(self) -> None:
        """Unless it has begun."""
        if self._began_s is None and threading.get_ident() == self.thread:
            self._began_s = time.perf_counter()

    def end(self) -> None:
        """The script trains again."""
        if self._began_s is None or threading.get_ident() != self.thread:
            return
        if time.perf_counter() - self._began_s > LEAST_S:
            if self.steps > self._last + 1:
                self.settle()
                self.every.append((self.steps, time.perf_counter() - self._began_s))
            self._last = self.steps
        self._began_s = None

    def step(self, steps: int) -> None:
        """An optimizer's, of which so many were taken."""
        self.thread, self.steps, self._began_s = threading.get_ident(), steps, None

    def per_step_s(self) -> float:
        """Seconds for each step; 0 where they are not known to come again."""
        if len(self.every) < 2:
            return 0.0
        (first, _), *others = self.every
        return sum(seconds for _, seconds in others) / (others[-1][0] - first)
