"""Launches of a judge: fresh processes of base and head, asked in turns on one machine."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, geometric_mean, median

from gpulift.gate.evidence import BASE, HEAD, Row, batch_folder
from gpulift.gate.measure import Batch, Budget, BudgetOver
from gpulift.gate.metrics import Reading
from gpulift.gate.pairs import Pair, PairedLaunch, Run, write_launch
from gpulift.ground import text
from gpulift.judge import accuracy, cuda
from gpulift.judge.memory import Layout, sealed
from gpulift.judge.roofs import Roofs
from gpulift.judge.side import Answer, Call, Limits, RefusedError, Side, told
from gpulift.judge.task import Array, Source, Task

ROW = "call"
# Many short windows: what the host does elsewhere is in few of them, and a launch is their median.
LAUNCH_S = 1.0
LEAST_BLOCKS, MOST_BLOCKS = 3, 15
WINDOW_S = 0.006
WINDOWS = 4  # of a block
MOST_CALLS = 6  # of a window, behind a first one that is not counted
CHECKED = 0.25  # of calls, chosen after them
LATE_S = 1e-4
CHANCE = random.SystemRandom()


@dataclass(frozen=True)
class Given:
    """Fresh inputs of one call of each side."""

    dims: Mapping[str, int]
    arrays: Sequence[Array]


@dataclass
class Trials:
    """Takes launches. `times` has the seconds of all calls of a side, untimed first ones apart."""

    task: Task
    sources: Mapping[str, Source]
    roofs: Roofs
    limits: Limits
    blocks: int = LEAST_BLOCKS
    calls: int = 1
    walls: str = ""
    through: str = "memory of the processor"
    times: dict[str, list[float]] = field(default_factory=dict)
    spent_s: float = 0.0  # in the blocks of the last launch
    _arenas: dict[int, cuda.Arena] = field(default_factory=dict)

    def cost(self, rows: int, launches: int) -> int:
        """A launch has one row."""
        return launches if rows else 0

    def take(self, batch: Batch, budget: Budget) -> list[Path]:
        """A folder for each launch. Raises RefusedError."""
        folders = []
        for number in batch.launches:
            if budget.left_s() <= 0:
                raise BudgetOver
            folder = batch_folder(batch.folder, range(number, number + 1))
            folder.mkdir(parents=True, exist_ok=True)
            write_launch(
                folder, self.launch(batch.sides, (number + batch.stage) % 2, batch.planted)
            )
            folders.append(folder)
        return folders

    def launch(
        self, sides: tuple[str, str] = (BASE, HEAD), turn: int = 0, planted: float = 0.0
    ) -> PairedLaunch:
        """Pairs of windows in the order A B B A, the second side first in turns."""
        with ExitStack() as entered:
            both = [entered.enter_context(self._side(*one)) for one in enumerate(sides)]
            for one in both:
                one.ready()
            self.walls = told(both[1].walls)
            if both[1].arena:
                self.through = "device memory that both have mapped"
            elif self.task.arrays == "cuda":
                self.through = "host memory, whose copies are timed: the driver shares no memory"
            delay_s = planted * fmean(self.times[sides[1]]) if planted else 0.0
            began_s = time.monotonic()
            pairs = [
                self._block(both, (turn + number) % 2, delay_s) for number in range(self.blocks)
            ]
            self.spent_s = time.monotonic() - began_s
            if both[1].arena:
                _require_joined(both)
        if not planted:
            return PairedLaunch(tuple(pairs))
        real_s = fmean(pair.head.values[ROW].value for pair in pairs) - delay_s
        return PairedLaunch(tuple(pairs), max(delay_s / max(real_s, delay_s * 0.1), 1e-9))

    def alone(self, side: str) -> float:
        """Seconds of a call of a side whose other one was refused. Raises RefusedError."""
        with self._side(0, side) as one:
            one.ready()
            shapes = [self.task.drawn() for _ in range(self.calls + 1)]
            return self._window(one, [self._fresh(dims) for dims in shapes], 0.0)

    def try_once(self) -> None:
        """Tells how many calls a window and windows a launch have. Raises RefusedError."""
        self.launch()
        call_s = fmean(min(self.times[side]) for side in (BASE, HEAD))
        self.calls = max(1, min(MOST_CALLS, round(WINDOW_S / call_s)))
        each_s = self.spent_s / (self.blocks * WINDOWS * 2)  # with inputs, checks and waits
        fitting = int(LAUNCH_S / (WINDOWS * (self.calls + 1) * each_s)) - 1 | 1
        self.blocks = max(LEAST_BLOCKS, min(MOST_BLOCKS, fitting))

    def _side(self, place: int, side: str) -> Side:
        if self.task.arrays == "cuda" and place not in self._arenas:
            highest = {name: high for name, (_, high, _) in self.task.shapes.items()}
            inputs = Layout.of([(one.dtype.name, one.shape) for one in self.task.inputs(highest)])
            outputs = Layout.of(self.task.outputs(highest))
            self._arenas[place] = cuda.Arena([inputs, outputs])
        return Side(self.sources[side], self.task, self.limits, self._arenas.get(place), place)

    def _block(self, both: Sequence[Side], first: int, delay_s: float) -> Pair:
        """Two windows of each side: both have the same inputs, which either sees once."""
        seconds: tuple[list[float], list[float]] = ([], [])
        shapes = [self.task.drawn() for _ in range(self.calls + 1)]
        for order in ((first, 1 - first), (1 - first, first)):
            given = [self._fresh(dims) for dims in shapes]
            for place in order:
                late_s = delay_s if place == 1 else 0.0
                seconds[place].append(self._window(both[place], given, late_s))
        names = (BASE, HEAD)
        runs = [Run({ROW: Reading(geometric_mean(one), "s")}, sum(one)) for one in seconds]
        return Pair((names[first], names[1 - first]), runs[0], runs[1])

    def _fresh(self, dims: Mapping[str, int]) -> Given:
        return Given(dims, self.task.inputs(dims))

    def _window(self, side: Side, given: Sequence[Given], delay_s: float) -> float:
        """Mean seconds of the calls but the first, which finds the process asleep. What is checked
        is chosen after the calls. What a step carries on ends here: a wrong state that was not
        checked, as NaN, would make all that follows from it right."""
        answers: list[tuple[Given, list[Array], list[Array], float]] = []
        for one in given:
            arrays = [*one.arrays]
            if answers:
                arrays[: self.task.carried] = answers[-1][2][: self.task.carried]
            inputs = Layout.of([(array.dtype.name, array.shape) for array in arrays])
            outputs = Layout.of(self.task.outputs(one.dims))
            with sealed(inputs, arrays) as memory:
                answer = side.call(Call(inputs, memory, outputs), delay_s)
            self._require_possible(side, one, answer)
            answers.append((one, arrays, outputs.arrays(answer.held), answer.seconds))
        for one, arrays, made, _ in answers:
            if CHANCE.random() < CHECKED:
                self._check(side, one.dims, arrays, made)
        times = [seconds for *_, seconds in answers[1:]]
        self.times.setdefault(side.source.side, []).extend(times)
        return fmean(times)

    def _require_possible(self, side: Side, given: Given, answer: Answer) -> None:
        if answer.unwritten:
            raise RefusedError(
                side.source.side, f"leaves {answer.unwritten} words of its output unwritten"
            )
        work = self.task.work(given.dims)
        if answer.seconds < self.roofs.least_s(work):
            raise RefusedError(side.source.side, self.roofs.told(answer.seconds, work))

    def _check(
        self, side: Side, dims: Mapping[str, int], inputs: Sequence[Array], made: Sequence[Array]
    ) -> None:
        wanted = self.task.reference(inputs)
        rule = self.task.rule(dims)
        scales = self.task.scale(inputs, wanted)
        lower = self.task.lowered(inputs) or wanted
        for number, each in enumerate(zip(made, wanted, scales, lower, strict=True)):
            if wrong := accuracy.problem(*each, rule):
                raise RefusedError(side.source.side, f"output {number} is wrong: {wrong}")


def _require_joined(both: Sequence[Side]) -> None:
    """Work that goes on while it says that it is done spares the time that this takes."""
    waits = [median(one.waits_s) for one in both]
    for one, wait_s, others_s in zip(both, waits, reversed(waits), strict=True):
        if wait_s > 2 * others_s + LATE_S:
            raise RefusedError(
                one.source.side,
                f"says that it is done {text.seconds(wait_s)} before its outputs are there, the"
                f" other one {text.seconds(others_s)}",
            )


def row_of(task: Task) -> Row:
    """What is compared."""
    return Row(task.name.removesuffix(".py"), "", ROW)
