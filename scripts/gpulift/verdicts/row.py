"""One answer to one question about one subject: what every judge returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulift.ground.estimate import Estimate

# Kinds of verdicts, worst first; the word itself is the question's.
BROKEN = "broken"
FAILED = "failed"
OPEN = "open"
PASSED = "passed"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class Quantity:
    """A number of a subject in its unit; `higher`: more of it is better."""

    estimate: Estimate
    unit: str = ""
    higher: bool = False


@dataclass(frozen=True)
class Row:
    """`question` says what the estimate is of, as "head/base"; `limit` is what it was held to.

    `group` is the first part of the subject, which rows of one thing share. `base` and `head` are
    what was compared, in words; `note` says how it was measured. A row that is not `notable` is
    counted, and shown where all are. Steps and further keys of JSON are made when they are asked
    for.
    """

    question: str
    subject: str
    verdict: str
    kind: str
    group: str = ""
    estimate: Estimate | None = None
    limit: float | None = None
    smallest_effect: float | None = None
    base: str = ""
    head: str = ""
    reason: str = ""
    remedy: str = ""
    note: str = ""
    notable: bool = True
    measured: Quantity | None = None  # of the head
    steps: Callable[[], Sequence[str]] = field(default=tuple, compare=False)
    data: Callable[[], Mapping[str, Any]] = field(default=dict, compare=False)


@dataclass(frozen=True)
class Table:
    """The rows of a question, worst first, and the checks of the instrument that measured them.

    `title` says what they are of, `notes` what a reader must know, `conditions` what they rest on;
    `folder` has what was measured, and `data` further keys of JSON.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    exit_code: int
    controls: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    folder: str = ""
    words: Mapping[str, str] = field(default_factory=dict)  # of verdicts, what is counted as them
    data: Mapping[str, Any] = field(default_factory=dict)
