"""What takes the launches of a gate of techniques: gpulift-bench, of either build."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulift.engine import machine
from gpulift.gate.evidence import (
    BASE,
    CASES,
    HEAD,
    TURNS,
    TURNS_REVERSED,
    TWO_IN_ONE,
    Row,
    batch_folder,
    block_folder,
    stage_folder,
    turn_folder,
)
from gpulift.gate.measure import PILOT, Batch, Budget, BudgetOver
from gpulift.gate.rows import selecting, selecting_by_filter
from gpulift.ground.errors import FAILED, INTERRUPTED, REFUSED, GpuliftError
from gpulift.ground.signals import FORWARDED

OF_PYTHON = {BASE: "--base-python", HEAD: "--python"}  # options of gpulift-bench


@dataclass(frozen=True)
class Program:
    """A gpulift-bench, the modules that it measures, and the interpreter of their Python arms where
    it is not the usual one; one that does not take rows takes a filter."""

    bench: Path
    modules: Path
    python: Path | None = None
    takes_rows: bool = True


@dataclass(frozen=True)
class Settings:
    """What gpulift-bench is told besides the rows."""

    arm_time_s: float
    gpu: int | None = None

    def flags(self) -> list[str]:
        """The command line."""
        gpu = [] if self.gpu is None else ["--gpu", str(self.gpu)]
        return ["--arm-time", str(self.arm_time_s), *gpu]


@dataclass(frozen=True)
class Side:
    """One side of a comparison, and the fraction by which it is slowed down on purpose."""

    program: Program
    planted: float = 0.0

    def plant(self) -> list[str]:
        """What gpulift-bench is told of it."""
        return ["--plant", f"{self.planted:g}"] if self.planted else []


@dataclass(frozen=True)
class Programs:
    """Both builds, in one process where their headers are the same, else in alternating ones."""

    base: Program
    head: Program
    settings: Settings

    def cost(self, rows: int, launches: int) -> int:
        """Rows are measured one after another."""
        return rows * launches

    def take(self, batch: Batch, budget: Budget) -> list[Path]:
        """Measures into a folder of records for each run or block."""
        base, head = ({BASE: self.base, HEAD: self.head}[side] for side in batch.sides)
        sides = {BASE: Side(base), HEAD: Side(head, batch.planted)}
        if batch.mode == TWO_IN_ONE:
            folder = batch_folder(batch.folder, batch.launches)
            self._duet(batch, sides, folder, budget)
            return [folder]
        folders = [block_folder(batch.folder, block) for block in batch.launches]
        for block, folder in zip(batch.launches, folders, strict=True):
            self._alternate(batch, sides, block, folder, budget)
        return folders

    def _duet(self, batch: Batch, sides: Mapping[str, Side], folder: Path, budget: Budget) -> None:
        """One run of gpulift-bench that times both builds.

        Which side prepares first what arms share changes every two launches, counted from the seed
        on, and so goes on from run to run: four launches of a stage hold each order, in however
        many runs.
        """
        modules = [f"--{side}={one.program.modules}" for side, one in sides.items()]
        pythons = [
            f"{OF_PYTHON[side]}={one.program.python}"
            for side, one in sides.items()
            if one.program.python is not None
        ]
        first, count = batch.launches.start, len(batch.launches)
        flags = ["--launches", str(count), "--seed", str(batch.seed + first)]
        # What a search took long to find is noted by the first launches of the screen.
        searched = batch_folder(stage_folder(batch.gate, CASES, 1), range(PILOT))
        flags += ["--recall", str(searched)] if searched.is_dir() else []
        # The program of a duet is the head's, also where base meets base.
        flags += [*modules, *pythons, *sides[HEAD].plant()]
        self._call(batch, self.head, flags, folder, budget)

    def _alternate(
        self, batch: Batch, sides: Mapping[str, Side], block: int, folder: Path, budget: Budget
    ) -> None:
        """One block of four processes on the same inputs."""
        for side, turn in stage_block(folder, block, batch.stage):
            one = sides[side]
            flags = ["--modules", str(one.program.modules), "--launches", "1"]
            flags += ["--seed", str(batch.seed + block), *one.plant()]
            self._call(batch, one.program, flags, turn, budget)

    def _call(
        self, batch: Batch, program: Program, flags: Sequence[str], folder: Path, budget: Budget
    ) -> None:
        left_s = budget.left_s()
        if left_s <= 0:
            raise BudgetOver
        rows: Sequence[Row] = batch.rows
        chosen = selecting(rows, folder) if program.takes_rows else selecting_by_filter(rows)
        selected = [*chosen, "--records", str(folder)]
        # What was planned or seen so far says little of rows that are slower: time ends them, too.
        code = machine.measure(program.bench, [*flags, *self.settings.flags(), *selected], left_s)
        kept = f"what was measured is kept in {batch.gate}"
        if code in (INTERRUPTED, -signal.SIGINT):
            if budget.left_s() <= 0:
                raise BudgetOver
            raise GpuliftError(f"interrupted: {kept}", INTERRUPTED)
        if code < 0:
            name = signal.Signals(-code).name
            forwarded = -code in FORWARDED
            raise GpuliftError(
                f"gpulift-bench ended by {name}: {kept}", 128 - code if forwarded else FAILED
            )
        if code in REFUSED:
            raise GpuliftError(f"gpulift-bench refused, see above; {kept}", code)


def stage_block(folder: Path, block: int, stage: int) -> list[tuple[str, Path]]:
    """The four turns of a block with their folders; every other block starts with the head, and
    the second stage with the other side than the first."""
    turns = TURNS if (block + stage) % 2 else TURNS_REVERSED
    return [(side, turn_folder(folder, turn, side)) for turn, side in enumerate(turns)]
