"""Tasks: what is refused, with what to write; and when an output is right."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpulift.ground.errors import GpuliftError
from gpulift.judge.accuracy import EXACT, Rule, problem, rounded
from gpulift.judge.memory import Layout, Memory, Poison, sealed
from gpulift.judge.roofs import Roofs
from gpulift.judge.sandbox import ARCHITECTURES, call_filter
from gpulift.judge.task import MOST_SOURCE, read_source, read_task
from proof.judged import TASKS

GOOD = (TASKS / "softmax.py").read_text("utf-8")
STEP = (TASKS / "sgd.py").read_text("utf-8")
BOUNDS = 'SHAPES = {"rows": (40, 60), "columns": (400, 600)}'
ROUNDING = 'ROUNDING = "float32"'

WRONG = {
    "no shapes": (GOOD, BOUNDS, "", "has no SHAPES; write its dimensions"),
    "no bounds": (GOOD, "(40, 60)", "40", "rows is not bounded; write both ends"),
    "open bounds": (GOOD, "(40, 60)", "(40, None)", "rows is not bounded"),
    "bounds of no end": (GOOD, "(40, 60)", "(40, float('inf'))", "rows is not bounded"),
    "turned bounds": (GOOD, "(40, 60)", "(60, 40)", "rows is not bounded"),
    "shapes of no kind": (GOOD, BOUNDS, "SHAPES = 3", "SHAPES is not bounded"),
    "no tolerance": (GOOD, ROUNDING, "", "has no tolerance; write ROUNDING"),
    "two tolerances": (GOOD, ROUNDING, ROUNDING + "; TOLERANCE = 0", "has no tolerance"),
    "a tolerance of all": (GOOD, ROUNDING, "TOLERANCE = {'relative': 1.0}", "has no tolerance"),
    "a tolerance of none": (GOOD, ROUNDING, "TOLERANCE = {'relative': 0.0}", "has no tolerance"),
    "a number": (GOOD, ROUNDING, "TOLERANCE = 0.1", "has no tolerance"),
    "an unknown rounding": (GOOD, "float32", "float8", "has no tolerance"),
    "no work": (GOOD, "def work", "def works", "has no work; write def work"),
    "work of no number": (GOOD, "return 8 *", "return 'x', ", "write def work"),
    "no reference": (GOOD, "def reference", "def refers", "has no reference"),
    "a low reference": (GOOD, "astype(np.float64)", "astype(np.float32)", "compute in float64"),
    "another shape": (GOOD, "return e / e.sum(axis=1, ", "return e.sum(axis=1, ", "other shapes"),
    "huge outputs": (GOOD, '"rows": (40, 60)', '"rows": (40, 10**9)', "more than 4 GiB"),
    "complex outputs": (GOOD, '[("float32"', '[("complex64"', "write def outputs(n)"),
    "no mode": (GOOD, BOUNDS, BOUNDS + "; MODE = 'job'", "MODE is 'job'; write kernel or step"),
    "no arrays": (GOOD, BOUNDS, BOUNDS + "; ARRAYS = 'jax'", "write one of numpy, torch, cuda"),
    "a step of nothing": (GOOD, BOUNDS, BOUNDS + "; MODE = 'step'", "a step has CARRIED = N"),
    "carried by no step": (STEP, '"step"', '"kernel"', "a step has CARRIED = N"),
    "carried that vary": (STEP, "(WIDTH,)", "(batch,)", "must not vary in their shapes"),
    "no Python": (GOOD, "import numpy", "import = numpy", "is no task: SyntaxError"),
    "that raises": (GOOD, "return [x]", "return [x][1]", "inputs(...) failed: IndexError"),
    "that returns lists": (GOOD, "return [x]", "return [[1.0]]", "must return arrays of numpy"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_task_that_lacks_something_is_refused_with_what_to_write(
    tmp_path: Path, name: str
) -> None:
    text, old, new, said = WRONG[name]
    assert old in text
    file = tmp_path / "task.py"
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(GpuliftError) as caught:
        read_task(file)
    assert caught.value.exit_code == 2
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["softmax", "sgd"])
def test_the_tasks_of_the_proof_are_some(name: str) -> None:
    task = read_task(TASKS / f"{name}.py")
    assert task.drawn() != task.drawn() or task.drawn() != task.drawn()
    first, second = (task.inputs(task.drawn())[-1].ravel() for _ in range(2))
    assert not np.array_equal(first[:8], second[:8])


def test_what_is_no_file_of_a_sensible_size(tmp_path: Path) -> None:
    large = tmp_path / "large.py"
    large.write_bytes(b"#" * (MOST_SOURCE + 1))
    for file, said in ((large, "larger than 1 MiB"), (tmp_path / "none.py", "cannot be read")):
        with pytest.raises(GpuliftError, match=said):
            read_source("head", file)


Values = NDArray[np.float64]
ONES = np.ones(100)
SINGLE = Rule.of_rounding("float32", 100)


@pytest.mark.parametrize(
    ("found", "wanted", "rule", "said"),
    [
        (ONES, ONES, SINGLE, ""),
        (ONES * (1 + 1e-6), ONES, SINGLE, ""),
        (ONES * (1 + 3e-6), ONES, SINGLE, "root mean square"),
        (ONES + (np.arange(100) == 7) * 3e-6, ONES, SINGLE, ""),
        (
            ONES + (np.arange(100) == 7) * 6e-6,
            ONES,
            SINGLE,
            "1 % of values: the worst is 1.000006 wh",
        ),
        (ONES * np.nan, ONES, SINGLE, "NaN"),
        (ONES, ONES * np.nan, SINGLE, "NaN"),
        (ONES * np.nan, ONES * np.nan, SINGLE, ""),
        (ONES * np.inf, -ONES * np.inf, SINGLE, "infinity"),
        (ONES, ONES * np.inf, SINGLE, "infinity"),
        (ONES * np.inf, ONES * np.inf, SINGLE, ""),
        (ONES, ONES, EXACT, ""),
        (ONES * (1 + 1e-15), ONES, EXACT, "100 of 100 values differ"),
        (ONES * np.nan, ONES * np.nan, EXACT, ""),
        (np.zeros(3), np.zeros(3), Rule(1e-5, 0.0), ""),
    ],
)
def test_when_an_output_is_right(found: Values, wanted: Values, rule: Rule, said: str) -> None:
    told = problem(found, wanted, np.abs(wanted), wanted, rule)
    assert (said in told) if said else not told


# What is computed, and whether that is in the precision of the task.
PRODUCTS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "at once": (lambda x, y: x @ y, True),
    "in order": (lambda x, y: np.cumsum(x * y, axis=1)[:, -1], True),
    "in half": (lambda x, y: rounded(x, 11) @ rounded(y, 11), False),
    "one factor in half": (lambda x, y: x @ rounded(y, 11), False),
    "in two parts": (lambda x, y: (rounded(x, 8) + rounded(x - rounded(x, 8), 8)) @ y, True),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("terms", [30, 400, 5000])
@pytest.mark.parametrize("of_both_signs", [True, False])
def test_a_lower_precision_is_told_however_long_the_sum(
    name: str, terms: int, of_both_signs: bool
) -> None:
    """The bound grows with the terms; what half precision does to a sum of both signs does not.
    Of one sign, where plain sums are as far off as half's factors are, no honest one is refused."""
    compute, sound = PRODUCTS[name]
    rng = np.random.default_rng(terms)
    draw = rng.standard_normal if of_both_signs else rng.random
    x, y = draw((200, terms), np.float32), draw(terms, np.float32)
    wanted, lower = (
        one.astype(np.float64) @ other.astype(np.float64)
        for one, other in ((x, y), (rounded(x, 11), rounded(y, 11)))
    )
    scale = np.abs(x) @ np.abs(y)
    told = problem(compute(x, y), wanted, scale, lower, Rule.of_rounding("float32", terms))
    assert not told if sound else told or not of_both_signs


def test_what_is_zero_but_for_rounding_is_not_held_to_what_its_inputs_do() -> None:
    x = np.random.default_rng(0).random((200, 400), np.float32)
    high, low = x.astype(np.float64), rounded(x, 11).astype(np.float64)
    found, wanted, lower = ((one - one.mean(1, keepdims=True)).sum(1) for one in (x, high, low))
    assert not problem(found, wanted, x.sum(1), lower, Rule.of_rounding("float32", 400))


def test_sealed_memory_is_written_by_nobody() -> None:
    layout = Layout.of([("float32", (3,)), ("int8", (5,))])
    with sealed(layout, [np.ones(3, np.float32), np.arange(5, dtype=np.int8)]) as memory:
        assert [one.sum() for one in layout.arrays(memory.read())] == [3, 10]
        with pytest.raises(PermissionError):
            os.pwrite(memory.descriptor, b"1", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, 0)
    with Memory(bytes(64)) as open_still, mmap.mmap(open_still.descriptor, 64):
        assert not open_still.seal()


def test_poison_that_is_left_is_counted() -> None:
    layout = Layout.of([("float32", (4,)), ("float64", (3,))])
    poison = Poison(layout)
    assert poison.left(poison.content) == 5
    assert poison.left(bytes(layout.size)) == 0
    assert poison.word != Poison(layout).word


def test_roofs_tell_both_numbers() -> None:
    roofs = Roofs(1e9, 1e12)
    assert roofs.least_s((1e6, 1e6)) == 1e-3
    assert "5.00 µs" in roofs.told(5e-6, (1e6, 1e6))
    assert "1.00 ms at least" in roofs.told(5e-6, (1e6, 1e6))


def test_the_filter_of_calls_knows_its_architectures() -> None:
    first, second = (call_filter(machine, 1) for machine in ARCHITECTURES)
    assert len(first) % 8 == len(second) % 8 == 0
    assert len(first) > len(second)  # which has no fork
    with pytest.raises(OSError, match="riscv64"):
        call_filter("riscv64", 1)
