"""Mutates lines of real records and reads them: `python -m tests.fuzz_records COUNT [SEED]`.

What may come out is the record, with every key that was not touched as it was written, or an error
that names file and line. Not collected by pytest; test_reader_fuzz.py runs a few of the same.

2026-11-24, seed 20261124: of 1,000,000 lines 245,163 were read, 754,837 refused, none wrong.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpulift.ground.errors import GpuliftError, RecordError
from gpulift.records.decode import parse_line
from gpulift.records.files import content_of, record_files_below
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.verdicts.comparison import Launch, compare
from gpulift.verdicts.decision import IMPROVED, REGRESSED
from tests.conftest import CHECKOUT

SMALL = 6000  # bytes of a line: the structure of the long ones is the same, with more windows
FILE, LINE = Path("fuzzed.jsonl"), 7
COMPARED = 20  # every so many accepted records are also compared with their originals
RENAMED = {"check": "check_meaning", "arm": "duet_arm"}
UNREAD = frozenset({"id"})
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    0.0,
    -0.0,
    1e308,
    5e-324,
    10**25,
    10**400,
    2**63,
    "",
    "1",
    "\ud800",
    "a\nb",
    "[/bold]",
    [],
    {},
    [None],
    [[]],
    [0, "1"],
    [float("nan")],
    float("inf"),
    {"min": 1},
)

Mutation = Callable[[bytes, random.Random], bytes]


def corpus() -> list[bytes]:
    """Lines of all committed records that are small enough."""
    files = record_files_below(CHECKOUT / "results")
    lines = [line for file in files for line in content_of(file).splitlines()]
    return [line for line in lines if len(line) <= SMALL]


def edit_bytes(line: bytes, source: random.Random) -> bytes:
    """One to three bytes changed, put in or taken out."""
    made = bytearray(line)
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(made))
        kind = source.randrange(4)
        if kind == 0:
            made[at] = source.randrange(256)
        elif kind == 1:
            made[at] = source.choice(b'0123456789.-+eE"{}[]:,\\ntf')
        elif kind == 2:
            made.insert(at, source.randrange(256))
        else:
            del made[at]
    return bytes(made)


def move_bytes(line: bytes, source: random.Random) -> bytes:
    """A stretch cut out, doubled or cut off, as a broken disk or a bad merge leaves it."""
    start, end = sorted(source.randrange(len(line)) for _ in range(2))
    return source.choice([line[:start] + line[end:], line[:end] + line[start:], line[:start]])


def change_value(line: bytes, source: random.Random) -> bytes:
    """One value anywhere replaced by an odd one, removed or nested deeply."""
    raw = json.loads(line)
    holder, key = source.choice(list(_places(raw)))
    kind = source.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        depth = source.choice((3, 50, 900, 5000))
        holder[key] = "@deep@"
        deep = b"[" * depth + b"]" * depth
        return json.dumps(raw).encode().replace(b'"@deep@"', deep)
    else:
        holder[key] = source.choice(ODD_VALUES)
    return json.dumps(raw).encode()


def change_list(line: bytes, source: random.Random) -> bytes:
    """A list with an entry less, one twice, none, or a number of another unit among its entries."""
    raw = json.loads(line)
    lists = [
        inner[key]
        for inner, key in _places(raw)
        if isinstance(inner[key], list) and len(inner[key]) > 0
    ]
    if not lists:
        return edit_bytes(line, source)
    chosen = source.choice(lists)
    at = source.randrange(len(chosen))
    kind = source.randrange(5)
    if kind == 0:
        del chosen[at]
    elif kind == 1:
        chosen.insert(at, chosen[at])
    elif kind == 2:
        chosen.clear()
    elif kind == 3 and isinstance(chosen[at], int | float):
        chosen[at] *= source.choice((1e3, 1e9, 1e-9, -1, 1e300, 1e-300, 0))
    else:
        chosen[at] = source.choice(ODD_VALUES)
    return json.dumps(raw).encode()


MUTATIONS: tuple[Mutation, ...] = (edit_bytes, move_bytes, change_value, change_list)


def read_mutated(mutated: bytes, original: bytes) -> Record | None:
    """The record, or None for an error that names its place. Raises AssertionError otherwise."""
    place = f"{FILE}:{LINE}"
    try:
        raw = parse_line(mutated, place)
    except RecordError as error:
        _require_place(error)
        return None
    try:
        record = read_record(raw, FILE, LINE)
    except RecordError as error:
        _require_place(error)
        return None
    _require_same_untouched(record, raw, json.loads(original))
    assert len(record.id) == 12
    return record


def compare_mutated(record: Record, original: bytes) -> str:
    """Two launches against two, of which one is mutated: an exit code or the error's. Raises
    AssertionError where a change is seen although nothing that was measured is touched."""
    whole = [read_record({**json.loads(original), "launch": n}, FILE, n) for n in (101, 102, 103)]
    head = Run(Path("head"), (whole[2], record))
    try:
        made = compare([Run(Path("base"), tuple(whole[:2]))], [head])
    except GpuliftError as error:
        return f"refused {error.exit_code}"
    if _measured(record) == _measured(whole[0]):
        seen = {one.verdict.verdict for one in made.rows} & {REGRESSED, IMPROVED}
        assert not seen, f"{seen} of equal times"
    return f"exit {made.exit_code}"


def _measured(record: Record) -> list[object]:
    """All that a verdict on times depends on."""
    arms = [
        (a.name, a.outcome, a.clock, a.cost, a.steps_per_window, a.windows) for a in record.arms
    ]
    return [record.outcome, record.kind, record.ceiling, record.order, *arms]


def _require_same_untouched(record: Record, raw: Any, original: Any) -> None:
    before = read_record(original)
    for key, value in raw.items():
        if key in original and original[key] == value and type(original[key]) is type(value):
            name = RENAMED.get(key, key)
            assert getattr(record, name) == getattr(before, name), key
    for arm, written in zip(record.arms, raw.get("arms", []), strict=True):
        windows = written.get("windows", {})
        for key in ("device_s", "host_s", "enqueue_s", "sm_clock_hz", "start_s", "cpu_s"):
            assert list(getattr(arm.windows, key)) == [float(v) for v in windows.get(key, [])], key
        energies = [v if v is None else float(v) for v in windows.get("energy_j", [])]
        assert list(arm.windows.energy_j) == energies
        if record.outcome == "ok" and arm.outcome == "ok" and arm.window_s:
            _require_usable(Launch("run", record, arm))


def _require_usable(launch: Launch) -> None:
    try:
        assert isinstance(launch.log_value, float)
    except RecordError as error:
        _require_place(error)


def _require_place(error: RecordError) -> None:
    if not str(error).startswith(f"{FILE}:{LINE}: "):
        raise AssertionError(f"no file and line: {error}")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += _places(value[key])
    return found


def main(count: int, seed: int) -> None:
    """Mutates `count` lines; prints what came out, and what should not have."""
    source = random.Random(seed)
    lines = corpus()
    seen: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    start_s = time.monotonic()
    for _ in range(count):
        original, mutation = source.choice(lines), source.choice(MUTATIONS)
        mutated = mutation(original, source)
        try:
            record = read_mutated(mutated, original)
            if record is not None and seen["read"] % COMPARED == 0:
                compared[compare_mutated(record, original)] += 1
            seen["read" if record else "refused"] += 1
        except Exception as error:  # the very thing that is looked for
            seen["WRONG"] += 1
            print(f"{mutation.__name__}: {error!r}\n  {mutated[:3000]!r}", file=sys.stderr)
            if seen["WRONG"] > 20:
                break
    taken_s = time.monotonic() - start_s
    print(f"{count} mutated of {len(lines)} lines, seed {seed}, {taken_s:.0f} s: {dict(seen)}")
    print(f"compared with their originals: {dict(compared)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
