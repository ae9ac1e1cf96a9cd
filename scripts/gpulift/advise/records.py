"""Records of what processes measured, which tell neither command nor script.

They are of kind "import", which nothing judges: `qualify`, `claims` and `reference build` pass them
by or refuse them, `show --bibtex` refuses them, and so does `check` among results.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

from gpulift.advise import results
from gpulift.advise.evidence import BASELINE, Memory, Process, Window
from gpulift.ground.errors import GpuliftError, write_error
from gpulift.ground.whole import whole_folder
from gpulift.records.model import IMPORT
from gpulift.records.parse import read_record
from gpulift.records.private import private_strings

Json = dict[str, Any]

METHOD = "advise 1"
SCHEMA = "1.4"
UNKNOWN = "unknown"
REPLAY, GOING_ON, TURN = "advise/replay", "advise/live", "advise/turn"
LIVE = "live step"  # the arm of a process whose own setting is what is measured
UNMEASURED = "the process ended before anything was measured"  # the script's own error is not told
NOTES = {"clock": "the wall clock, to the end of a window on the device"}


def records_of(
    replays: Sequence[Process],
    turns: Sequence[Process],
    command: Sequence[str],
    started_at: str,
    cached: bool = True,
) -> list[Json]:
    """A record of each process, for `write`; a process of turns is a launch of its
    setting. `cached`: replays had their batches at once."""
    digest = hashlib.sha256("\0".join(command).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    kind = REPLAY if cached else GOING_ON
    own = [(one, kind, {"command": digest, **_ranks(one)}, _replay(one)) for one in replays]
    own += [
        (one, TURN, {"setting": one.setting, "command": digest, **_ranks(one)}, _turn(one))
        for one in turns
    ]
    launches = Counter(str(case) for _, _, case, _ in own)
    begun: Counter[str] = Counter()
    records = []
    for process, technique, case, measured in own:
        launch = begun[str(case)]
        begun[str(case)] += 1
        records.append(
            {
                "schema": SCHEMA,
                "method": METHOD,
                "kind": IMPORT,
                "technique": technique,
                "case": case,
                "case_id": "/".join(f"{axis}:{value}" for axis, value in case.items()),
                "regime": UNKNOWN,
                "launch": launch,
                "launches": launches[str(case)],
                "started_at": started_at,
                "context": _context(process),
                "notes": NOTES,
                "imported": {"tool": "advise", "file": technique, "turn": process.turn},
                **(measured or {"outcome": "error", "reason": UNMEASURED}),
            }
        )
    return records


def _ranks(process: Process) -> Json:
    return {"ranks": len(process.ranks)} if process.ranks else {}


def _replay(process: Process) -> Json:
    if not any(window.arm == BASELINE for window in process.windows):
        return {}
    names = list(dict.fromkeys([BASELINE, *process.arms, *(w.arm for w in process.windows)]))
    blocks = [
        [names.index(window.arm) for window in block]
        for _, block in groupby(process.windows, key=lambda window: window.block)
    ]
    return _measured([_arm(process, name) for name in names], blocks)


def _turn(process: Process) -> Json:
    if not process.steps_s:
        return {}
    memory = process.memory or Memory()
    arm = {
        "name": LIVE,
        "role": "baseline",
        "outcome": "ok",
        "clock": "host",
        "checked": False,
        "windows": {"host_s": process.steps_s},
        **_known(peak_device_bytes=memory.device_bytes, peak_host_bytes=memory.host_bytes),
    }
    return _measured([arm], [[0]] * len(process.steps_s))


def _measured(arms: Sequence[Json], blocks: Sequence[Sequence[int]]) -> Json:
    return {
        "outcome": "ok",
        "arms": arms,
        "order": {"blocks": blocks},
        "stop": {"reason": "measured", "blocks": len(blocks)},
    }


def _arm(process: Process, name: str) -> Json:
    windows = [window for window in process.windows if window.arm == name]
    said = process.arms.get(name)
    failures = [failed.why for failed in process.failed if failed.arm == name]
    if said and said.state == "failed":
        failures.append(said.why)
    made: Json = {"name": name, "role": "baseline" if name == BASELINE else "technique"}
    if failures:
        return made | {"outcome": "failed", "reason": _public(failures[0])}
    if not windows:
        why = said.why if said else ""
        return made | {"outcome": "skipped", "reason": _public(why or "it had no window")}
    return made | {"outcome": "ok", "clock": "host", **_windows(windows), **_check(process, name)}


def _windows(windows: Sequence[Window]) -> Json:
    """All as if of as many steps as the first."""
    steps = windows[0].steps
    return {
        "steps_per_window": steps,
        "windows": {
            "host_s": [window.seconds * steps / window.steps for window in windows],
            "enqueue_s": [window.issued_s * steps / window.steps for window in windows],
        },
        **_known(peak_device_bytes=max(window.peak_bytes for window in windows)),
    }


def _known(**peaks: int) -> Json:
    """Those that were read: none is 0."""
    return {name: peak for name, peak in peaks.items() if peak}


def _check(process: Process, name: str) -> Json:
    check = process.checks.get(name)
    apart = None if check is None else results.distance(check)
    if check is None or apart is None or not isfinite(apart):
        return {"checked": False}
    return {"check_error": apart, "check_tolerance": check.band}


def _context(process: Process) -> Json:
    hello = process.hello
    cores = {"cores": hello.cores} if hello and hello.cores else {}
    made: dict[str, Any] = {"host": {"cpu": UNKNOWN, **cores}, "options": {}}
    if hello is not None:
        made["versions"] = {"torch": hello.torch, "python": hello.python}
    if hello is not None and process.on_gpu:
        return made | {"gpu": {"name": hello.device}}
    return made | {"gpu_missing": "the script trains on the processor"}


def _public(reason: str) -> str:
    """A script's own error may name its files."""
    line = " ".join(reason.split()) or "it failed"
    return "what it said names what is private" if any(private_strings(line)) else line


def require_new(out: Path) -> None:
    """Raises GpuliftError for a folder that holds anything, or that cannot be read or made."""
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise GpuliftError(f"{out}: is there already and not empty; name another folder")
        if out.is_dir() and out.samefile(Path.cwd()):  # a shell would stay in the one it replaces
            raise GpuliftError(f"{out}: is the current folder; name a new one in it")
        if not out.is_dir():  # it can be made
            out.mkdir(parents=True)
            out.rmdir()
    except OSError as error:
        raise write_error(out, error) from None


def write(records: Sequence[Json], out: Path) -> None:
    """The records as the files of a run folder, all of them or none. Raises GpuliftError for a
    folder that holds anything, and for what cannot be written."""
    files: dict[str, list[str]] = {}
    for record in records:
        read_record(record, Path(record["imported"]["file"]))  # it can be read again
        name = f"{record['technique'].replace('/', '.')}.jsonl"
        line = json.dumps(record, separators=(",", ":"), allow_nan=False)
        files.setdefault(name, []).append(line)
    require_new(out)
    try:
        with whole_folder(out.resolve()) as aside:
            for name, lines in files.items():
                (aside / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise write_error(out, error) from None
