"""Numbers of a run of somebody's command: its wall time, what its processes did, what it prints,
what it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.records.values import LARGEST, Positive

WALL, CPU, INSTRUCTIONS = "wall", "cpu", "instructions"
CPU_UNIT = "CPU s"
OF_RUN = {WALL: "s", CPU: CPU_UNIT, INSTRUCTIONS: INSTRUCTIONS}  # their units
NOT_TIME = {  # what is said of a unit
    CPU_UNIT: "CPU seconds, not elapsed time: a change that only waits, as for a disk or a GPU, or"
    " that uses more cores at once, is not seen",
    INSTRUCTIONS: "instructions of user code, not time: a change that waits, misses caches or is"
    " the kernel's work is not seen",
}
STDOUT = "stdout:"
STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
PATH = re.compile(r"[^.\[\]]+(\.[^.\[\]]+|\[\d+\])*")
SHOWN = 3  # of several numbers where one was expected


class NoNumberError(GpuliftError):
    """A run that did not say its number; the message begins with the metric."""


@dataclass(frozen=True)
class Reading:
    """A number and its unit, where it is known; `higher`: more of it is better."""

    value: Positive
    unit: str = ""
    higher: bool = False


@dataclass(frozen=True)
class Untimed:
    """A row that a run had no number of, and why; `skipped`: it was not to be measured here."""

    reason: str
    skipped: bool = False


@dataclass(frozen=True)
class Finished:
    """A run that ended well: seconds from start to end, what it printed and wrote to stderr, the
    folder it ran in, the file that it was told to write (`{out}`), when it began by the clock
    of files (ns), and CPU seconds and instructions of it with all that it started."""

    seconds: float
    printed: str
    errors: str
    folder: Path
    out: Path
    began_ns: int
    cpu_s: float = 0.0
    instructions: float = 0.0


@dataclass(frozen=True)
class Metric:
    """One number of a run: `wall`, `cpu`, `instructions`, `stdout:REGEX` or `FILE.json:PATH`;
    `higher`: more is better."""

    source: str
    higher: bool = False

    def __post_init__(self) -> None:
        if self.source in OF_RUN:
            return
        if self._printed:
            self._pattern()
            return
        file, _, what = self.source.rpartition(":")
        if not file or not PATH.fullmatch(what):
            raise GpuliftError(
                f"--metric {self.source!r}: give {', '.join(OF_RUN)}, {STDOUT}REGEX with one"
                " group, or FILE.json:PATH such as out.json:train.step_ms or out.json:runs[0].loss"
            )

    @property
    def name(self) -> str:
        """`wall` or the like, the group's name or the words before it, a path's last words."""
        if self.source in OF_RUN:
            return self.source
        if not self._printed:
            return self.source.rpartition(":")[2]
        pattern = self._pattern()
        named = next((name for name in pattern.groupindex if name != "unit"), "")
        before = re.findall(r"\w+", pattern.pattern.partition("(")[0])
        return named or "_".join(before) or "stdout"

    def read(self, run: Finished) -> Reading:
        """The number of a run. Raises NoNumberError."""
        if self.source in OF_RUN:
            numbers = {WALL: run.seconds, CPU: run.cpu_s, INSTRUCTIONS: run.instructions}
            return Reading(numbers[self.source], OF_RUN[self.source])
        value, unit = self._of_text(run) if self._printed else self._of_file(run)
        return Reading(value, unit, self.higher)

    @property
    def _printed(self) -> bool:
        return self.source.startswith(STDOUT)

    def _pattern(self) -> re.Pattern[str]:
        try:
            pattern = re.compile(self.source.removeprefix(STDOUT), re.MULTILINE)
        except re.error as error:
            raise GpuliftError(f"--metric {self.source!r}: {error}") from None
        if pattern.groups - ("unit" in pattern.groupindex) != 1:
            raise GpuliftError(
                f"--metric {self.source!r}: put the number in one group: 'stdout:step: ([0-9.]+)';"
                " a group (?P<unit>...) may name its unit"
            )
        return pattern

    def _of_text(self, run: Finished) -> tuple[float, str]:
        """In what it prints, or else, as of loggers, on stderr."""
        pattern = self._pattern()
        found = list(pattern.finditer(run.printed)) or list(pattern.finditer(run.errors))
        if len(found) != 1:
            numbers = [visible(match[0]) for match in found[:SHOWN]]
            told = f"{len(found)} times, as {', '.join(map(repr, numbers))}" if found else "nowhere"
            raise NoNumberError(f"{self.name}: {pattern.pattern!r} stands {told} in what it prints")
        match = found[0]
        unit = match["unit"] if "unit" in pattern.groupindex else ""
        group = next(n for n in range(1, pattern.groups + 1) if pattern.groupindex.get("unit") != n)
        try:
            return float(match[group]), visible(unit or "")
        except (TypeError, ValueError):
            raise NoNumberError(f"{self.name}: {visible(match[0])!r} holds no number") from None

    def _of_file(self, run: Finished) -> tuple[float, str]:
        name, _, path = self.source.rpartition(":")
        file = run.folder / name
        try:
            if file.stat().st_mtime_ns < run.began_ns:
                raise NoNumberError(f"{self.name}: the run did not write {name}")
            value: Any = json.loads(file.read_bytes())
        except OSError as error:
            raise NoNumberError(f"{self.name}: {name}: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise NoNumberError(f"{self.name}: {name} is no JSON") from None
        return _number(_inside(value, path, self.name), self.name), ""


def _inside(value: Any, path: str, name: str) -> Any:
    for key, index in STEP.findall(path):
        try:
            value = value[int(index)] if index else value[key]
        except (KeyError, IndexError, TypeError):
            raise NoNumberError(f"{name}: the file has no {path}") from None
    return value


def _number(value: Any, name: str) -> float:
    """Of several numbers the median."""
    numbers = value if isinstance(value, list) and value else [value]
    if not all(type(one) in (int, float) and abs(one) <= LARGEST for one in numbers):
        raise NoNumberError(f"{name}: {visible(json.dumps(value)[:80])} is no number")
    return float(median(numbers))


def read_all(metrics: tuple[Metric, ...], run: Finished) -> Mapping[str, Reading]:
    """All numbers of a run by name. Raises NoNumberError."""
    return {metric.name: metric.read(run) for metric in metrics}
