"""`gpulift check --compress`: checks runs and compresses their records, which stay as they are."""

from __future__ import annotations

import getpass
import re
import shlex
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.machine.saved import VERDICT_FILE, Kept
from gpulift.analysis.neighbours import neighbours_at
from gpulift.analysis.summary import BUSY_CORES, others_cores
from gpulift.commands.check import LEAST_LAUNCHES, cases_of_few_launches, run_complaints
from gpulift.engine import machine
from gpulift.engine.runs import COMPLETE, LOCK_FILE, RUNNING, state_of
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, OK, GpuliftError, write_error
from gpulift.ground.text import counted, some
from gpulift.ground.whole import write_whole
from gpulift.records.decode import decoded, parse_line
from gpulift.records.files import (
    PUBLISHED,
    compressed,
    content_of,
    decompressed,
    is_published,
    record_files,
    stem_of,
)
from gpulift.records.model import Record
from gpulift.records.private import private_strings
from gpulift.records.read import Run, read_run
from gpulift.records.together import STATE_FILE, read_state, was_crowded, was_of_script


def compress(runs: Sequence[Path], unfinished: bool) -> int:
    """A complaint is a line, then nothing of that run is changed; the exit code."""
    complaints = [line for run in runs for line in _publish(run, unfinished, typer.echo)]
    for line in complaints:
        say(line)
    return FAILED if complaints else OK


def _publish(run: Path, unfinished: bool, tell: Callable[[str], object]) -> list[str]:
    """Publishes a run, unless there is something to complain of."""
    files = record_files(run) if run.is_dir() else []
    if not files:
        raise GpuliftError(f"{run}: is no folder of a run: there are no records (*.jsonl) in it")
    if state_of(run) == RUNNING and not unfinished:
        return [f"{run}: the run is not finished; go on with it, or compress it --unfinished"]
    if complaints := run_complaints(run):
        return complaints
    written = [file for file in files if not is_published(file)]
    if others := [file.name for file in written if _is_of_other_content(_target(file), file)]:
        return [
            f"{run}: {', '.join(others)}: is there, and published with other content: remove the"
            " one that is not wanted"
        ]
    before = sum(file.stat().st_size for file in written)
    after = sum(map(_compress, written))
    tell(f"{run}: {len(written)} files, {before} bytes, now {after}")
    return []


def _target(file: Path) -> Path:
    return file.with_name(f"{stem_of(file)}{PUBLISHED}")


def _is_of_other_content(target: Path, file: Path) -> bool:
    """Not of the same, as where an earlier call was killed before it removed the file."""
    return target.exists() and content_of(target) != content_of(file)


def _compress(file: Path) -> int:
    """Replaces the file; the bytes that it takes now. What cannot be read back is not replaced."""
    content = file.read_bytes()
    shorter = compressed(content)
    if decompressed(shorter, str(file)) != content:
        raise GpuliftError(f"{file}: does not come back from its compressed form", FAILED)
    target = _target(file)
    write_whole(shorter, target)
    try:
        file.unlink()
    except OSError as error:
        raise write_error(target, error) from None
    return len(shorter)


BESIDE_RECORDS = (STATE_FILE, VERDICT_FILE)
UNTRACKED = (LOCK_FILE, "report")  # which .gitignore keeps out
NAMED = 3  # cases in a complaint
PRIVATE_KEY = re.compile(r"serial|uuid|host_?name|user_?name|mac_address", re.IGNORECASE)
SERIAL = re.compile(r"\b\d{13}\b")  # of NVIDIA's cards
LEAST_LETTERS = 4  # of a name: a shorter one is in many words
COMMON_NAMES = {"root", "user", "ubuntu", "debian", "admin", "localhost", "runner"}


def submit(run: Path) -> int:
    """Nothing is written and nothing is sent. A complaint is a line; the exit code."""
    if not (run.is_dir() and record_files(run)):
        raise GpuliftError(f"{run}: is no folder of a run: there are no records (*.jsonl) in it")
    complaints = submission_complaints(run)
    for line in complaints:
        say(line)
    if complaints:
        return FAILED
    for file in sorted(_foreign(run)):
        say(f"{file}: is no part of a run: leave it out")
    typer.echo(pull_request(read_run(run)))
    return OK


def submission_complaints(run: Path) -> list[str]:
    """What has to be mended before others can use the run, a line each."""
    if was_of_script(run):
        return [
            f"{run}: `bench` measured a script of yours, which others do not have, so it cannot be"
            " submitted: what `run` or `qualify` measured can, a technique once it is in benches/"
        ]
    found = run_complaints(run)
    if state_of(run) != COMPLETE:
        by = f"by its {STATE_FILE}; go on with it" if read_state(run) else f"has no {STATE_FILE}"
        found.append(f"{run}: the run is not finished, {by}")
    if was_crowded(run):
        found.append(f"{run}: several GPUs were busy at once; measure one alone")
    if not all(map(is_published, record_files(run))):
        remedy = shlex.join(["./gpulift", "check", "--compress", str(run)])
        found.append(f"{run}: its records are not compressed: {remedy}")
    if found:  # a record that cannot be read has been told of
        return found
    measured = read_run(run)
    beside = neighbours_at([measured], say)
    crowded = [record for record in measured.records if record.id in beside]
    if crowded:
        ran = Doubts(neighbours=beside).beside_of(crowded)
        found.append(f"{run}: {counted(len(crowded), 'record')} {ran}: measure one card alone")
    return [*found, *_launch_complaints(measured), *_private_complaints(run)]


def pull_request(run: Run) -> str:
    """Title, text and file names, as a person pastes them."""
    files = [*record_files(run.folder), *_beside(run.folder)]
    parts = (
        f"Title: Add records of {run.machine}, {run.folder.name}",
        f"Text:\n{_text(run)}",
        "Files:\n" + "\n".join(str(_in_checkout(file)) for file in files),
    )
    return "\n\n".join(parts)


def _text(run: Run) -> str:
    context, first = run.records[0].context, run.records[0]
    outcomes = Counter(record.outcome for record in run.records)
    cases = {record.subject for record in run.records}
    techniques = {record.technique for record in run.records}
    limit = context.gpu.power_limit_w if context.gpu else None
    once = ", one of those that take long" if cases_of_few_launches(run.records, once=True) else ""
    machine_facts = (
        f"driver {context.driver}" if context.driver else "",
        f"CUDA {context.cuda_runtime}" if context.cuda_runtime else "",
        f"{limit:.0f} W" if limit else "",
        context.host.name,
    )
    lines = (
        f"Records of {run.machine}, `{run.name}`:",
        "",
        f"- {len(techniques)} techniques, {len(cases)} cases, {len(run.records)} records:"
        f" {', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items()))}",
        f"- {', '.join(fact for fact in machine_facts if fact)}",
        f"- commit {context.build.commit}, method {first.method}, schema {first.schema},"
        f" {'all cases' if run.full else 'quick cases'}",
        *_verdict(run.folder),
        *_load(run.records),
        "",
        "`./gpulift check --pull-request` found the run finished, built from a clean commit, with"
        f" {LEAST_LAUNCHES} launches or more of each case{once}, and no path, host name, account,"
        " UUID or serial number in it.",
    )
    return "\n".join(lines)


def _load(records: Sequence[Record]) -> Iterator[str]:
    """What a reader of steps that the host bounds has to know."""
    busy = [record for record in records if others_cores(record) >= BUSY_CORES]
    if busy:
        yield f"- {counted(len(busy), 'record')} while {NO_DOUBTS.beside_of(busy)}"


def _verdict(folder: Path) -> Iterator[str]:
    """What `qualify` said, where it was `qualify` that measured."""
    file = folder / VERDICT_FILE
    if file.is_file():
        yield f"- qualify: {decoded(file.read_bytes(), Kept, str(file)).coverage}"


def _launch_complaints(run: Run) -> Iterator[str]:
    """Cases that were measured in too few launches."""
    few = cases_of_few_launches(run.records)
    if all(record.outcome != "ok" for record in run.records):
        yield f"{run.folder}: nothing in it was measured"
    if few:
        yield (
            f"{run.folder}: fewer than {LEAST_LAUNCHES} launches of {some(few, NAMED)}: measure"
            f" again, with --launches {LEAST_LAUNCHES} or more"
        )


def _private_complaints(run: Path) -> Iterator[str]:
    """What tells of the machine or its owner; of paths and the like in records `check` tells."""
    names = _own_names()
    for file in record_files(run):
        for number, line in enumerate(content_of(file).splitlines(), start=1):
            raw = parse_line(line, f"{file}:{number}")
            ordinary = f"{run.parent.name} {raw.get('technique')} {raw.get('case_id')}"
            yield from _private_in(raw, f"{file}:{number}", names, ordinary)
    for file in _beside(run):
        document = _json_of(file)
        yield from _private_in(document, str(file), names, run.parent.name)
        for key, meaning in private_strings(dict(document)):
            yield f"{file}: {key} looks like {meaning}"


def _private_in(value: Any, place: str, names: Mapping[str, str], ordinary: str) -> Iterator[str]:
    for key, text in _strings(value):
        if PRIVATE_KEY.search(key.rpartition(".")[2]):
            yield f"{place}: {key} may tell whose machine it is"
        if SERIAL.search(text):
            yield f"{place}: {key} looks like a serial number"
        for name, meaning in names.items():
            if name not in ordinary and re.search(rf"\b{re.escape(name)}\b", text):
                yield f"{place}: {key} has {meaning}, {name}"


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All strings with their keys; of a number or a flag the key alone."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _strings(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, key)
    else:
        yield key, value if isinstance(value, str) else ""


def _own_names() -> Mapping[str, str]:
    """This machine's name and that of who uses it, with what they are."""
    found = {socket.gethostname().partition(".")[0]: "this host's name"}
    with suppress(OSError, KeyError):  # of an account without a name
        found[getpass.getuser()] = "the name of this account"
    return {
        name: meaning
        for name, meaning in found.items()
        if len(name) >= LEAST_LETTERS and name.lower() not in COMMON_NAMES
    }


def _beside(run: Path) -> list[Path]:
    """The files that go with the records."""
    return [run / name for name in BESIDE_RECORDS if (run / name).is_file()]


def _foreign(run: Path) -> Iterable[Path]:
    known = {*record_files(run), *_beside(run), *(run / name for name in UNTRACKED)}
    return {entry for entry in run.iterdir() if entry not in known}


def _json_of(file: Path) -> Mapping[str, Any]:
    return parse_line(file.read_bytes(), str(file))


def _in_checkout(file: Path) -> Path:
    """Its name from the checkout on, where it is in there."""
    root = machine.checkout_root().resolve()
    whole = file.resolve()
    return whole.relative_to(root) if whole.is_relative_to(root) else file
