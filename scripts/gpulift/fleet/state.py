"""What a call of `fleet` adds to its folder, and what it need not measure again."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gpulift.fleet import kept
from gpulift.fleet.kept import (
    CODE_FILE,
    FLEET_FILE,
    NODES_FILE,
    SCHEMA,
    Expected,
)
from gpulift.fleet.logs import LOG_FILE, TOLD_NO_ANSWER, open_log
from gpulift.ground.errors import FAILED, GpuliftError, write_error
from gpulift.ground.folders import why_unusable
from gpulift.ground.whole import write_whole


def prepare(folder: Path) -> None:
    """Makes the folder. Raises GpuliftError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GpuliftError(f"{folder}: cannot be made: {error.strerror}") from None
    why = why_unusable(folder)
    if why:
        raise GpuliftError(f"{folder}: is {why}: name another folder", FAILED)


def read_expected(folder: Path, scheduler: str, options: Sequence[str]) -> Expected:
    """What an earlier call expected there, or nothing yet. Raises GpuliftError where that was
    another scheduler's fleet, or measured with other options, or cannot be read."""
    if not (folder / FLEET_FILE).exists():
        return Expected(SCHEMA, (), scheduler=scheduler, options=tuple(options))
    held = kept.expected(folder)
    if held.scheduler != scheduler:
        raise GpuliftError(f"{folder}: holds a fleet of {held.scheduler}: name another folder")
    if held.options != tuple(options):
        told = f"holds nodes qualified with {' '.join(held.options)}"
        raise GpuliftError(f"{folder}: {told}: name another folder")
    return held


def write_expected(folder: Path, expected: Expected) -> None:
    """For the next call, and for whoever judges."""
    write_whole(json.dumps(asdict(expected), indent=1) + "\n", folder / FLEET_FILE)


def read_labels(file: Path) -> dict[str, str]:
    """Racks of nodes, from lines such as `node7,rack1`. Raises GpuliftError for others."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()  # spreadsheets begin with that mark
        rows = [row for row in csv.reader(lines) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise GpuliftError(f"--labels {file}: cannot be read: {error}") from None
    wrong = next((row for row in rows if len(row) != 2 or not all(map(str.strip, row))), None)
    if wrong is not None:
        raise GpuliftError(f"--labels {file}: {','.join(wrong)}: give lines of node,rack")
    return {node.strip(): rack.strip() for node, rack in rows}


def node_folder(folder: Path, node: str) -> Path:
    """Of one node."""
    return folder / "nodes" / node


def is_qualified(folder: Path, node: str) -> bool:
    """Whether the node has its verdict; one that ended otherwise is measured again."""
    return not kept.kept_node(folder, node).why


def is_measured(together: Path, nodes: Sequence[str]) -> bool:
    """Whether a pair or group of these nodes measured all, and that can be read."""
    if not (together / NODES_FILE).is_file():
        return False
    meeting = kept.meeting(together)
    return not meeting.why and set(nodes) <= set(meeting.nodes)


def write_nodes(together: Path, nodes: Sequence[str]) -> None:
    """The nodes of a pair or group, a line each."""
    write_whole("".join(f"{node}\n" for node in nodes), together / NODES_FILE, lasting=False)


def add_no_answer(of_one: Path, why: str) -> None:
    """Ends its log with the reason, which is its verdict from now on."""
    try:
        of_one.mkdir(parents=True, exist_ok=True)
        (of_one / CODE_FILE).unlink(missing_ok=True)
        with open_log(of_one / LOG_FILE, "a") as log:
            newline = "\n" if log.tell() else ""  # what was killed may have ended in none
            log.write(f"{newline}{TOLD_NO_ANSWER}{why}\n")
    except OSError as error:
        raise write_error(of_one, error) from None
