"""Why a row came out as it did: the records of both sides of a gate, beside each other."""

from __future__ import annotations

from collections.abc import Iterable

from gpulift.gate.evidence import BASE, HEAD, Row, Turn
from gpulift.gate.judge import GateResult
from gpulift.gate.launches import GateRecords, timed
from gpulift.gate.output import in_words
from gpulift.verdicts import explain
from gpulift.verdicts.explain import Attribution
from gpulift.verdicts.two_sets import Launch


def attribute(result: GateResult, records: GateRecords) -> dict[Row, Attribution]:
    """Both sides of every row that has records, and the cause of its change."""
    found = {}
    for one in result.rows:
        held = records.of_row(one.row)
        attributed = explain.attribution(_side(BASE, held), _side(HEAD, held), one.verdict)
        if attributed is not None:
            found[one.row] = attributed
    return found


def beside(result: GateResult, records: GateRecords) -> dict[Row, str]:
    """In words base and head of every row that has a difference and records."""
    found = {}
    for one in result.rows:
        base, difference = _side(BASE, records.of_row(one.row)), one.verdict.difference
        if base and difference:
            found[one.row] = in_words(*explain.sides(base, difference.change))
    return found


def _side(side: str, turns: Iterable[Turn]) -> list[Launch]:
    """The launches of a side that were measured."""
    launches = [timed(turn) for turn in turns if turn.side == side]
    return [launch for launch in launches if launch is not None]
