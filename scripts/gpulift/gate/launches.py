"""The launches of a gate's rows as its records hold them, and how people and programs are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulift.gate.evidence import CASES, OK, TURNS, Row, Setup, Turn, launch_folders, read_turns
from gpulift.ground import steps
from gpulift.ground.steps import step
from gpulift.verdicts.comparison import Launch
from gpulift.verdicts.explain import launch_data, launch_line, place, record_data

SCREEN, CONFIRMATION = "screen", "confirmation"
STAGES = (SCREEN, CONFIRMATION)

Place = tuple[str, int]  # a stage's name, and the number of a launch of the row in it, from 1


@dataclass(frozen=True)
class GateRecords:
    """What the folder of a gate holds of its rows: the turns of each of their launches."""

    folder: Path
    turns: Mapping[Row, Mapping[Place, Sequence[Turn]]]

    def of(self, row: Row, where: Place) -> Sequence[Turn]:
        """The turns of a launch of a row."""
        return self.turns.get(row, {}).get(where, ())

    def of_row(self, row: Row) -> list[Turn]:
        """The turns of all launches of a row."""
        return [turn for held in self.turns.get(row, {}).values() for turn in held]


def read_records(gate: Path, setup: Setup) -> GateRecords:
    """The records of a gate's cases, their launches numbered as in its evidence.

    Raises GpuliftError when they cannot be read.
    """
    found: dict[Row, dict[Place, Sequence[Turn]]] = {row: {} for row in setup.rows}
    for number, stage in enumerate(STAGES, start=1):
        counts = dict.fromkeys(setup.rows, 0)
        for folder in launch_folders(gate, CASES, number, setup.mode):
            for row, launches in read_turns(folder, setup.mode, setup.rows).items():
                for turns in launches:
                    counts[row] += 1
                    found[row][stage, counts[row]] = turns
    return GateRecords(gate, found)


def timed(turn: Turn) -> Launch | None:
    """The turn as `compare` knows a launch; None where it has no windows."""
    record, arm = turn.record, turn.arm
    if record is None or arm is None or turn.state[0] != OK or not arm.window_s:
        return None
    return Launch(str(record.file.parent), record, arm)


def turn_line(where: Place, turn: Turn) -> str:
    """What one side of a launch stands on, or why it has no windows."""
    name = f"{where[0]} launch {where[1]}, {turn.side}"
    if turn.process:
        name += f", process {turn.process} of {len(TURNS)}"
    launch = timed(turn)
    if launch is not None:
        return launch_line(name, launch)
    if turn.record is None:
        return step(steps.LAUNCH_VALUE, f"{name} has no record")
    said, discarded = ": ".join(_why_untimed(turn)), turn.record.discarded_blocks
    if discarded:
        said += f" ({discarded} blocks discarded)"
    return step(steps.LAUNCH_VALUE, f"{name} ({place(turn.record)}): {said}")


def turn_data(gate: Path, where: Place, turn: Turn) -> dict[str, Any]:
    """The same for programs, without what is unknown; the file is named from the gate's folder."""
    stage, number = where
    made: dict[str, Any] = {"stage": stage, "launch": number}
    if turn.process:
        made["process"] = turn.process
    launch = timed(turn)
    if launch is not None:
        made |= launch_data(launch)
    else:
        made["outcome"], made["reason"] = _why_untimed(turn)
        made |= record_data(turn.record) if turn.record else {}
    if turn.record is not None:
        made["file"] = turn.record.file.relative_to(gate).as_posix()
    return {key: value for key, value in made.items() if value is not None}


def _why_untimed(turn: Turn) -> tuple[str, str]:
    """Outcome and reason of a turn without windows."""
    outcome, reason = turn.state
    return outcome, "has no windows" if outcome == OK else reason
