"""Why a row came out as it did: the records of both sides of a gate, beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpulift import duets
from gpulift.compare import explain
from gpulift.compare.explain import Attribution
from gpulift.compare.judge import Launch
from gpulift.gate.evidence import BASE, CASES, HEAD, OK, Row, stage_folder
from gpulift.gate.judge import GateResult
from gpulift.records.model import Arm, Record
from gpulift.records.read import read_file

Sides = Mapping[str, Sequence[Launch]]


def attribute(gate: Path, result: GateResult) -> dict[Row, Attribution]:
    """Both sides of every row that has records in the folder, and the cause of its change.

    Raises GpuliftError when they cannot be read.
    """
    sides = read_sides(gate)
    found = {}
    for one in result.rows:
        held = sides.get(one.row, {BASE: (), HEAD: ()})
        attributed = explain.attribution(held[BASE], held[HEAD], one.verdict)
        if attributed is not None:
            found[one.row] = attributed
    return found


def read_sides(gate: Path) -> dict[Row, Sides]:
    """The launches of both stages that were measured, by row and side."""
    sides: dict[Row, dict[str, list[Launch]]] = {}
    for stage in (1, 2):
        for file in sorted(stage_folder(gate, CASES, stage).rglob("*.jsonl")):
            for record in _last_ones(read_file(file).records):
                for arm in record.arms:
                    if record.outcome != OK or arm.outcome != OK:
                        continue
                    row, side = _place(record, arm)
                    held = sides.setdefault(row, {BASE: [], HEAD: []})
                    held[side].append(Launch(str(file.parent), record, arm))
    return dict(sides)


def _last_ones(records: Iterable[Record]) -> Iterable[Record]:
    """Of records of the same launch, the last one counts."""
    return {(record.subject, record.launch): record for record in records}.values()


def _place(record: Record, arm: Arm) -> tuple[Row, str]:
    """A duet has both sides in one record; else the name of the folder ends with the side."""
    if record.duet_arm:
        side = BASE if arm.name.startswith(duets.BASE) else HEAD
        return Row(record.technique, record.case_id, record.duet_arm), side
    side = record.file.parent.name.rpartition("-")[2]
    return Row(record.technique, record.case_id, arm.name), side
