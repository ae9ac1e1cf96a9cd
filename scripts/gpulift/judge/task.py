"""What base and head have to do: a Python file with inputs, a reference and what errors may be."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.judge.accuracy import EXACT, LOWER, UNITS, Rule, rounded

Array = NDArray[Any]
Shape = tuple[int, ...]

KERNEL, STEP = "kernel", "step"
ARRAYS = ("numpy", "torch", "cuda")
MOST_BYTES = 4 << 30  # of the inputs or outputs of a call
MOST_SOURCE = 1 << 20
WANTED = {
    "SHAPES": 'its dimensions and their bounds, as in SHAPES = {"n": (1000, 4000)}',
    "inputs": "def inputs(rng, n), which returns arrays of numpy",
    "outputs": 'def outputs(n), which returns [("float32", (n,)), ...]',
    "reference": "def reference(*inputs), which returns the outputs in float64",
    "work": "def work(n), which returns the bytes and the operations of a call",
}
TOLERANCES = (
    'ROUNDING = "float32" with def terms(n), the longest sum; or TOLERANCE = {"relative": 1e-5,'
    ' "absolute": 1e-8}, or TOLERANCE = 0 for equality'
)


@dataclass(frozen=True)
class Source:
    """A file of base or head."""

    side: str
    name: str
    text: bytes


@dataclass(frozen=True)
class Task:
    """The task of a file; of a step `carried` outputs are the first inputs of the next call."""

    name: str
    arrays: str
    function: str
    carried: int
    shapes: Mapping[str, tuple[int, int, int]]
    space: SimpleNamespace

    def drawn(self) -> dict[str, int]:
        """Dimensions within the bounds, which no one can know beforehand."""
        chance = random.SystemRandom()
        return {
            name: chance.randrange(low, high + 1, multiple)
            for name, (low, high, multiple) in self.shapes.items()
        }

    def inputs(self, dims: Mapping[str, int]) -> list[Array]:
        """Fresh, of a seed of the system's."""
        rng = np.random.default_rng(secrets.randbits(128))
        made = self._called("inputs", rng, **dims)
        found = list(made) if isinstance(made, (tuple, list)) else [made]
        if not all(isinstance(one, np.ndarray) and one.dtype.hasobject is False for one in found):
            raise GpuliftError(f"{self.name}: inputs(...) must return arrays of numpy")
        return [np.ascontiguousarray(one) for one in found]

    def outputs(self, dims: Mapping[str, int]) -> list[tuple[str, Shape]]:
        """The type and the shape of each output."""
        try:
            found = [
                (np.dtype(kind), tuple(int(one) for one in shape))
                for kind, shape in self._called("outputs", **dims)
            ]
            if any(kind.kind not in "biuf" for kind, _ in found):
                raise ValueError
            return [(kind.name, shape) for kind, shape in found]
        except (TypeError, ValueError):
            raise GpuliftError(f"{self.name}: write {WANTED['outputs']}") from None

    def reference(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs as they should be. Refuses those in no higher precision."""
        found = self._arrays("reference", inputs)
        for one in found:
            if one.dtype.kind == "f" and one.dtype.itemsize < 8 and not self.exact:
                raise GpuliftError(
                    f"{self.name}: reference(...) returns {one.dtype}; compute in float64"
                )
        return found

    def scale(self, inputs: Sequence[Array], reference: Sequence[Array]) -> list[Array]:
        """What errors are relative to: the reference, unless the task has its own."""
        if not hasattr(self.space, "scale"):
            return [np.abs(one) for one in reference]
        return self._arrays("scale", inputs)

    def lowered(self, inputs: Sequence[Array]) -> list[Array]:
        """The reference of inputs in the next lower precision, but for what is carried: that is in
        the result as it is, and would hide the rest. None where rounding is no rule."""
        if not (bits := LOWER.get(getattr(self.space, "ROUNDING", ""))):
            return []
        kept = self.carried % len(inputs)
        return self.reference([*inputs[:kept], *(rounded(one, bits) for one in inputs[kept:])])

    def rule(self, dims: Mapping[str, int]) -> Rule:
        """How far an output may be off."""
        if rounding := getattr(self.space, "ROUNDING", None):
            return Rule.of_rounding(rounding, float(self._called("terms", **dims)))
        tolerance = self.space.TOLERANCE
        if not tolerance:
            return EXACT
        return Rule(tolerance.get("relative", 0.0), tolerance.get("absolute", 0.0))

    def work(self, dims: Mapping[str, int]) -> tuple[float, float]:
        """Bytes and operations that no way of doing it can spare."""
        try:
            moved, operations = self._called("work", **dims)
            found = (float(moved), float(operations))
        except (TypeError, ValueError):
            found = (math.nan, math.nan)
        if not all(0 <= one < math.inf for one in found):
            raise GpuliftError(f"{self.name}: write {WANTED['work']}")
        return found

    @property
    def exact(self) -> bool:
        """Whether outputs must be equal."""
        return getattr(self.space, "TOLERANCE", None) == 0

    def _arrays(self, name: str, inputs: Sequence[Array]) -> list[Array]:
        made = self._called(name, *inputs)
        return [np.asarray(one) for one in (made if isinstance(made, (tuple, list)) else [made])]

    def _called(self, name: str, *values: object, **dims: int) -> Any:
        try:
            return getattr(self.space, name)(*values, **dims)
        except Exception as error:
            what = visible(f"{type(error).__name__}: {error}")
            raise GpuliftError(f"{self.name}: {name}(...) failed: {what}") from None


def read_source(side: str, file: Path) -> Source:
    """Raises GpuliftError for what is no file of a sensible size."""
    try:
        with file.open("rb") as opened:
            text = opened.read(MOST_SOURCE + 1)
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None
    if len(text) > MOST_SOURCE:
        raise GpuliftError(f"{file}: is larger than 1 MiB; a {side} is one file with one function")
    return Source(side, file.name, text)


def read_task(file: Path) -> Task:
    """The task, tried once: one that lacks anything is refused with what to write."""
    source = read_source("task", file)
    space: dict[str, Any] = {"__name__": "task", "__file__": str(file)}
    try:
        exec(compile(source.text, str(file), "exec"), space)
    except Exception as error:
        what = visible(f"{type(error).__name__}: {error}")
        raise GpuliftError(f"{file}: is no task: {what}") from None
    for name, text in WANTED.items():
        if name not in space or callable(space[name]) != name.islower():
            raise GpuliftError(f"{file}: has no {name}; write {text}")
    mode = space.get("MODE", KERNEL)
    if mode not in (KERNEL, STEP):
        raise GpuliftError(f"{file}: MODE is {mode!r}; write kernel or step")
    arrays = space.get("ARRAYS", ARRAYS[0])
    if arrays not in ARRAYS:
        raise GpuliftError(f"{file}: ARRAYS is {arrays!r}; write one of {', '.join(ARRAYS)}")
    carried = space.get("CARRIED", 0)
    if (mode == STEP) != (isinstance(carried, int) and carried > 0):
        raise GpuliftError(
            f"{file}: a step has CARRIED = N, and only a step: of a call the first N outputs are"
            " the first N inputs of the next"
        )
    task = Task(
        name=file.name,
        arrays=arrays,
        function=str(space.get("FUNCTION", "run")),
        carried=carried,
        shapes={name: _bounds(file, name, ends) for name, ends in _named(space["SHAPES"]).items()},
        space=SimpleNamespace(**space),
    )
    _require_tolerance(file, space)
    _try(task)
    return task


def _named(shapes: object) -> dict[str, Any]:
    return dict(shapes) if isinstance(shapes, dict) else {"SHAPES": shapes}


def _bounds(file: Path, name: str, ends: Any) -> tuple[int, int, int]:
    """Low and high, and of what a dimension is a multiple."""
    found = tuple(ends) if isinstance(ends, (tuple, list)) else ()
    sound = len(found) in (2, 3) and all(isinstance(one, int) and one > 0 for one in found)
    if not sound or found[0] > found[1]:
        raise GpuliftError(
            f"{file}: {name} is not bounded; write both ends as in"
            f' SHAPES = {{"{name}": (1000, 4000)}}, with a third number for multiples of it'
        )
    return (found[0], found[1], found[2] if len(found) == 3 else 1)


def _require_tolerance(file: Path, space: Mapping[str, Any]) -> None:
    rounding, tolerance = space.get("ROUNDING"), space.get("TOLERANCE")
    sound = isinstance(tolerance, int) and tolerance == 0
    if isinstance(tolerance, dict):
        ends = tolerance.values()
        sound = set(tolerance) <= {"relative", "absolute"} and all(
            isinstance(one, float) and 0 <= one < 1 for one in ends
        )
        sound = sound and any(ends)
    if rounding is not None:
        sound = rounding in UNITS and callable(space.get("terms")) and tolerance is None
    if not sound:
        raise GpuliftError(f"{file}: has no tolerance; write {TOLERANCES}")


def _try(task: Task) -> None:
    """Once through all of it, so that what is wrong is told before anything is measured."""
    highest = {name: high - (high - low) % each for name, (low, high, each) in task.shapes.items()}
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for kind, shape in task.outputs(highest)]
    if not sizes or sum(sizes) > MOST_BYTES:
        raise GpuliftError(f"{task.name}: outputs of a call are none, or more than 4 GiB")
    lowest = {name: low for name, (low, _, _) in task.shapes.items()}
    if task.outputs(lowest)[: task.carried] != task.outputs(highest)[: task.carried]:
        raise GpuliftError(
            f"{task.name}: outputs that are carried on must not vary in their shapes"
        )
    dims = task.drawn()
    inputs, wanted = task.inputs(dims), task.outputs(dims)
    if not inputs:
        raise GpuliftError(f"{task.name}: inputs(...) returns none")
    found = task.reference(inputs)
    scales = task.scale(inputs, found)
    if [shape for _, shape in wanted] != [one.shape for one in found]:
        raise GpuliftError(f"{task.name}: reference(...) has other shapes than outputs(...)")
    if [one.shape for one in scales] != [one.shape for one in found]:
        raise GpuliftError(f"{task.name}: scale(...) has other shapes than reference(...)")
    carried = [(one.dtype.name, one.shape) for one in inputs[: task.carried]]
    if carried != wanted[: task.carried]:
        raise GpuliftError(f"{task.name}: the {task.carried} outputs carried are not the inputs")
    task.lowered(inputs)
    task.rule(dims)
    task.work(dims)
