"""How far an output is from its reference: all errors of it, not one norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Unit roundoff of what a task may be computed in.
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Rounding errors of n terms, taken for independent, stay within lambda * sqrt(n) units with
# probability 1 - 2 n exp(-lambda^2 / 2); Higham and Mary, SIAM J. Sci. Comput. 41 (2019), A2815.
LAMBDA = 7.0
SMALLEST = 1e-300  # that is allowed, so that nothing is divided by zero
TYPICAL = 4.0  # a root mean square is so many times less than what the worst of them may be
LOWER = {"float64": 24, "float32": 11}  # significant bits of what is faster; TF32 has those of half


@dataclass(frozen=True)
class Rule:
    """What each error may be: `relative` to the scale of its element, and `absolute`. A `unit` is
    one roundoff."""

    relative: float
    absolute: float
    unit: float = 0.0

    @staticmethod
    def of_rounding(kind: str, terms: float) -> Rule:
        """Of sums of that many terms, and the rounding of the output."""
        smallest = {"float16": 6e-8}.get(kind, 1e-37)  # what flushes to zero
        units = LAMBDA * (math.sqrt(max(1.0, terms)) + 1)
        return Rule(units * UNITS[kind], smallest, UNITS[kind])


EXACT = Rule(0.0, 0.0)


def rounded(array: NDArray[Any], bits: int) -> NDArray[Any]:
    """To so many significant ones; what is no float stays."""
    if array.dtype.kind != "f":
        return array
    mantissa, exponent = np.frexp(array)
    shortened: NDArray[Any] = np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)
    return shortened


def problem(
    found: NDArray[Any],
    wanted: NDArray[Any],
    scale: NDArray[Any],
    lower: NDArray[Any],
    rule: Rule,
) -> str:
    """What is wrong with an output; empty where it is right. `lower` is the reference of inputs in
    a lower precision, or `wanted` where that says nothing.

    NaN is right where the reference has one and nowhere else, and so is either infinity.
    """
    if rule == EXACT:
        wrong = int(np.sum(found != wanted)) - int(np.sum((found != found) & (wanted != wanted)))
        return f"{wrong} of {found.size} values differ" if wrong else ""
    with np.errstate(invalid="ignore"):  # of NaN that signals, as memory that nobody wrote may be
        values, expected = found.astype(np.float64), np.asarray(wanted, dtype=np.float64)
    if (np.isnan(values) != np.isnan(expected)).any():
        return "NaN is not where the reference has it"
    infinite = np.isinf(expected) | np.isinf(values)
    if (values[infinite] != expected[infinite]).any():
        return "infinity is not where the reference has it"
    plain = ~(infinite | np.isnan(expected))
    allowed = rule.relative * np.abs(scale[plain]) + rule.absolute
    with np.errstate(over="ignore"):  # of what is off by far
        allowed = np.maximum(allowed, SMALLEST)
        errors = np.abs(values[plain] - expected[plain]) / allowed
        typical, least, rough = (
            math.sqrt(np.mean(one**2)) if one.size else 0.0
            for one in (
                errors,
                rule.relative / LAMBDA * expected[plain] / allowed,
                (lower[plain] - expected[plain]) / allowed,
            )
        )
    worst = float(errors.max(initial=0.0))
    if worst > 1:
        share, at = float(np.mean(errors > 1)), int(errors.argmax())
        return (
            f"errors up to {worst:.3g} times what is allowed, in {100 * share:.3g} % of values: the"
            f" worst is {values[plain][at]:.9g} where {expected[plain][at]:.9g} is right"
        )
    most = 1 / TYPICAL
    if rough > 0:  # sums of both signs are far below the bound, in a lower precision, too
        most = min(most, max(rough / TYPICAL, least, rule.unit / rule.relative))
    if typical > most:
        return (
            f"errors are {typical:.3g} of what is allowed in the root mean square, where"
            f" {most:.3g} is: a lower precision than the task's"
        )
    return ""
