"""What tests of the report's figures share: summaries of made-up records, and hostile names."""

from __future__ import annotations

import copy
from pathlib import Path

from gpulift.analysis.reference import Reference, find_reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests import sample
from tests.conftest import CHECKOUT

HOSTILE = (
    "$x_{",
    r"\frac{1}{2}$$",
    "<script>alert(1)</script>",
    "\"'/><b>&amp;",
    "\u202edesrever\u2066",
    "\x1b[31mred\x00\n",
    "long" * 2500,
    "漢字 😀",
)


def summary(records: list[sample.Json], folder: str = "2026-11-21-abc1234") -> Summary:
    """The summary of made-up records, with the committed reference of their model."""
    run = Run(Path(folder), tuple(read_record(one) for one in records))
    return summarise(run, reference(run))


def reference(run: Run) -> Reference | None:
    """The committed one of the run's model."""
    return find_reference(CHECKOUT / "results", run.records[0].context.slug)


def on_gpu(name: str, card: str) -> sample.Json:
    """The context of a card of another model."""
    made = copy.deepcopy(sample.GPU_CONTEXT)
    made["gpu"] |= {"name": name, "card": card}
    return made
