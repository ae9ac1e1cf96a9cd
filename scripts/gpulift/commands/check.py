"""Checks results before they are committed: schema, folder names, and nothing private in them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from gpulift.analysis.neighbours import neighbours_of
from gpulift.analysis.reference import FOLDER as REFERENCES
from gpulift.analysis.reference import read_reference
from gpulift.analysis.summary import BUSY_CORES, others_cores
from gpulift.commands.shared import mode_of
from gpulift.engine.machine import results_folder
from gpulift.engine.runs import COMPLETE, state_of
from gpulift.gate.certificate import FOLDER as CERTIFICATES
from gpulift.gate.certificate import TRIALS_SUFFIX, read_certificate
from gpulift.ground.arguments import named
from gpulift.ground.entry import tell
from gpulift.ground.errors import FAILED, OK, GpuliftError, RecordError
from gpulift.ground.text import counted, some
from gpulift.records.decode import parse_line
from gpulift.records.files import record_files, record_files_below, size_of, stem_of
from gpulift.records.model import IMPORT, Record, slug
from gpulift.records.private import private_strings
from gpulift.records.read import read_file, run_folders

MAX_FILE_BYTES = 4_000_000
TECHNIQUE = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
LEAST_LAUNCHES = 3
APART = 0.02  # of a peak: 58 of 1,467 arms of committed runs differ by more
NAMED = 3  # runs that one thing is told of
MEASURED = ("clock", "cost", "steps_per_window", "windows")  # of an arm
FOLDER = re.compile(r"(\d{4}-\d\d-\d\d)-([0-9a-f]{7,40})(-dirty)?(-\d+)?")


def check(
    context: typer.Context,
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=named,
            metavar="RESULTS",
            help="Folders of results; the checkout's by default.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Name every run that is told of, not three of a kind.")
    ] = False,
    compress: Annotated[
        bool, typer.Option("--compress", help="Compress finished runs that are sound.")
    ] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Of --compress: such runs, which end so.")
    ] = False,
    pull_request: Annotated[
        bool, typer.Option("--pull-request", help="Print that of one run; nothing is sent.")
    ] = False,
) -> None:
    """Validate committed records and certificates; every complaint is a line, and then the exit
    code is 1. Runs that are unfinished, or beside which others worked, are told of."""
    if mode_of(context, {"": "--all", "--compress": "--unfinished", "--pull-request": ""}):
        from gpulift.commands import publish  # which checks, too

        if not results or (len(results) > 1 and pull_request):
            raise GpuliftError("name the folder of a run; with --pull-request one alone")
        made = publish.submit(results[0]) if pull_request else publish.compress(results, unfinished)
        raise typer.Exit(made)
    found = check_results(results or [results_folder()], _shown)
    for line in found.complaints:
        tell(line)
    for told, runs in found.doubted.items():
        if runs:
            names = some(runs, len(runs) if every else NAMED)
            typer.echo(f"{counted(len(runs), 'run')} {told}: {names}")
    typer.echo(
        f"{found.records} records and {found.certificates} certificates checked,"
        f" {len(found.complaints)} complaints"
    )
    raise typer.Exit(FAILED if found.complaints else OK)


def _shown(folders: Sequence[Path]) -> Iterable[Path]:
    """How far a check is, where a person watches."""
    screen = Console(stderr=True)
    return track(
        folders, "checking", console=screen, transient=True, disable=not screen.is_terminal
    )


@dataclass(frozen=True)
class Checked:
    """How many records and certificates were checked, what was said of them, a line each, and runs
    that stay as they are by what a reader has to know of them."""

    records: int
    certificates: int
    complaints: tuple[str, ...]
    doubted: Mapping[str, tuple[str, ...]]


def check_results(
    results: Sequence[Path],
    watch: Callable[[Sequence[Path]], Iterable[Path]] = iter,
) -> Checked:
    """Checks all records, references and certificates below these folders of results.

    `watch` is given the folders of runs and hands them on, one after the other.
    """
    for above in results:
        _require_results(above)
    complaints: list[str] = []
    ids: dict[str, str] = {}
    found: dict[Path, list[Record]] = {}
    for folder in watch([folder for above in results for folder in run_folders(above)]):
        records = found[folder] = _check_run(folder, complaints)
        launches: dict[tuple[object, ...], Record] = {}
        for record in records:
            place = f"{record.file}:{record.line}"
            launch = (*record.subject, record.launch)
            before = launches.get(launch)
            # One that ended in an error is measured again when its run is gone on with.
            if record.id not in ids and before is not None and before.outcome != "error":
                complaints.append(
                    f"{place}: the same launch as {before.file}:{before.line}, of which this one"
                    " counts alone"
                )
            launches[launch] = record
            if record.id in ids:
                complaints.append(f"{place}: the same record as {ids[record.id]}")
            ids.setdefault(record.id, place)
    for file in (file for above in results for file in above.glob(f"{REFERENCES}/*.json")):
        complaints += _reference_complaints(file, ids)
    certificates = [file for above in results for file in above.glob(f"{CERTIFICATES}/*.json")]
    for file in certificates:
        complaints += _certificate_complaints(file)
    count = sum(map(len, found.values()))
    return Checked(count, len(certificates), tuple(complaints), _doubted(found))


def _doubted(found: Mapping[Path, Sequence[Record]]) -> dict[str, tuple[str, ...]]:
    """Runs by what is told of them, which nobody can mend: records are never edited."""
    beside = neighbours_of(record for records in found.values() for record in records)
    kinds: dict[str, Callable[[Path, Sequence[Record]], bool]] = {
        "not finished": lambda run, _: state_of(run) != COMPLETE,
        f"with fewer than {LEAST_LAUNCHES} launches of a case": lambda _, records: bool(
            cases_of_few_launches(records)
        ),
        "whose launches differ in an arm's peak memory": lambda _, records: _peaks_differ(records),
        "beside a run on another card of the host": lambda _, records: any(
            one.id in beside for one in records
        ),
        "while others kept a core or more busy": lambda _, records: any(
            others_cores(one) >= BUSY_CORES for one in records
        ),
    }
    return {
        told: tuple(f"{run.parent.name}/{run.name}" for run, of in found.items() if holds(run, of))
        for told, holds in kinds.items()
    }


def cases_of_few_launches(records: Sequence[Record], once: bool = False) -> list[str]:
    """Those that were measured in fewer than a submission needs; or else `once`, as a quick run
    does whose launches are long, though it was asked for more."""
    measured = [record for record in records if record.outcome == "ok"]
    launches = Counter(record.subject for record in measured)
    few = [one for one in measured if launches[one.subject] < LEAST_LAUNCHES]
    return list(
        dict.fromkeys(
            f"{one.technique} {one.case_id}"
            for one in few
            if (one.quick and launches[one.subject] == 1 < one.launches) == once
        )
    )


def _peaks_differ(records: Sequence[Record]) -> bool:
    """Whether an arm allocated more on the GPU in a launch than in another: something else may have
    been there beside the step."""
    peaks: dict[tuple[object, ...], list[int]] = {}
    for record in (one for one in records if one.outcome == "ok"):
        for arm in record.arms:
            if arm.peak_device_bytes:
                peaks.setdefault((*record.subject, arm.name), []).append(arm.peak_device_bytes)
    return any(max(found) - min(found) > APART * max(found) for found in peaks.values())


def _certificate_complaints(file: Path) -> Iterator[str]:
    """Whether it is one, of the model that it is named after, citable, and tells nothing private,
    nor do the trials beside it."""
    try:
        certificate = read_certificate(file)
    except GpuliftError as error:
        yield str(error)
        return
    if certificate.machine != file.stem:
        yield f"{file}: is of {certificate.machine}, so that it is not found under this name"
    if not certificate.citable:
        yield f"{file}: is not citable: {certificate.caveat}"
    for held in (file, *sorted(file.with_suffix("").glob(f"*{TRIALS_SUFFIX}"))):
        lines = held.read_bytes().splitlines() if held != file else [held.read_bytes()]
        for number, line in enumerate(lines, 1):
            try:
                found = list(private_strings(parse_line(line, f"{held}:{number}")))
            except GpuliftError as error:
                yield str(error)
                continue
            yield from (f"{held}:{number}: {key} looks like {what}" for key, what in found)


def _reference_complaints(file: Path, ids: Container[str]) -> Iterator[str]:
    """Whether it is a reference, of the model that it is named after, and of records that are there
    (by their `ids`)."""
    try:
        reference = read_reference(file)
    except GpuliftError as error:
        yield str(error)
        return
    if slug(reference.name) != file.stem:
        yield f"{file}: is of {reference.name}, whose file would be another"
    for one in reference.measured.values():
        cited = (record.rpartition("/")[2] for record in one.source.split("; "))
        if gone := [id for id in cited if id not in ids]:
            yield f"{file}: {one.check} rests on records that are not there: {', '.join(gone)}"


def _require_results(above: Path) -> None:
    """Refuses a wrong name, which would pass for results without a fault."""
    if not above.is_dir():
        named = "is a file: name a folder of results"
        raise GpuliftError(f"{above}: {named if above.exists() else 'there is no such folder'}")
    if above.name in (CERTIFICATES, REFERENCES):
        raise GpuliftError(f"{above}: is part of results: name the folder that it is in")
    held = (
        record_files_below(above),
        above.glob(f"{REFERENCES}/*.json"),
        above.glob(f"{CERTIFICATES}/*"),
    )
    if not any(chain.from_iterable(held)):
        raise GpuliftError(f"{above}: holds no records, references or certificates")


def run_complaints(folder: Path) -> list[str]:
    """What is to be said of one run, a line each, before it is committed."""
    complaints: list[str] = []
    _check_run(folder, complaints)
    return complaints


def _check_run(folder: Path, complaints: list[str]) -> list[Record]:
    records: list[Record] = []
    for file in record_files(folder):
        records += _check_file(file, complaints)
    complaints += _folder_complaints(folder, records)
    return records


def _check_file(file: Path, complaints: list[str]) -> list[Record]:
    if size_of(file) >= MAX_FILE_BYTES:
        complaints.append(f"{file}: larger than {MAX_FILE_BYTES / 1e6:.0f} MB")
    try:
        content = read_file(file)
    except RecordError as error:
        complaints.append(str(error))
        return []
    complaints += content.warnings
    if not content.records:
        complaints.append(f"{file}: there are no records in it")
    for record in content.records:
        complaints += [f"{file}:{record.line}: {said}" for said in _complaints(record)]
    return list(content.records)


def _complaints(record: Record) -> Iterator[str]:
    if record.kind == IMPORT:
        yield "was imported from another tool: results are what gpulift measured"
        return
    yield from _misspelled(record)
    yield from (f"{key} is missing" for key in _missing(record))
    for key, meaning in private_strings(dict(record.raw)):
        yield f"{key} looks like {meaning}"
    if record.off_sweep:
        yield "is of a case that its technique does not have: --axis asked for it"
    if record.synthetic:
        yield "is synthetic test data"
    if record.context.build.doubt:
        yield f"was {record.context.build.doubt}"
    if stem_of(record.file) != record.technique.replace("/", "."):
        yield f"{record.technique} does not belong in a file of this name"


def _misspelled(record: Record) -> Iterator[str]:
    """What readers take as it is, and gpulift-bench never writes."""
    if not TECHNIQUE.fullmatch(record.technique):
        yield "technique must be theme/name"
    if not MOMENT.fullmatch(record.started_at):
        yield "started_at must be a moment of UTC, as 2026-11-21T04:00:00Z"
    if record.regime == "unknown":
        yield "regime is unknown"
    costs = (vars(arm.cost) for arm in record.arms if arm.cost)
    if any(cost[key] < 0 for cost in costs for key in ("bytes", "flops", "items")):
        yield "a cost must not be negative"
    texts = (record.reason, record.remedy, *(arm.reason for arm in record.arms))
    if any("\n" in text or "\r" in text for text in texts):
        yield "a reason and a remedy must be of one line"


def _missing(record: Record) -> Iterator[str]:
    """Keys that a reader can do without, and nobody who asks how something was measured."""
    yield from _lacking(record.raw, ("quick", "ceiling", "regime"))
    if record.context.gpu is None and not record.context.gpu_missing:
        yield "context.gpu or context.gpu_missing"
    if record.outcome == "ok":
        yield from _lacking(record.raw, ("stop", "check"))
        if all(arm.role != "baseline" for arm in record.arms):
            yield "an arm that is the baseline"
        if record.telemetry is None and not record.telemetry_missing:
            yield "telemetry or telemetry_missing"
    elif not record.reason:
        yield "reason"
    for index, arm in enumerate(record.arms):
        place = f"arms[{index}]."
        if arm.outcome == "ok":
            yield from _lacking(record.raw["arms"][index], MEASURED, place)
            if arm.checked and arm.check_error is None:
                yield f"{place}check_error"
        elif not arm.reason:
            yield f"{place}reason"


def _lacking(held: Mapping[str, object], keys: Iterable[str], place: str = "") -> Iterator[str]:
    return (f"{place}{key}" for key in keys if key not in held)


def _folder_complaints(folder: Path, records: Sequence[Record]) -> Iterator[str]:
    named = FOLDER.fullmatch(folder.name)
    if named is None:
        yield f"{folder}: the name must be <date>-<commit>[-n]"
        return
    if not records:
        return
    date, commit, dirty = named.group(1), named.group(2), named.group(3)
    first = min(record.began_at for record in records)
    if not first.startswith(date):
        yield f"{folder}: the first record is of {first[:10]}, the folder of {date}"
    if dirty:
        yield f"{folder}: holds a run of uncommitted changes"
    commits = {record.context.build.commit for record in records}
    if any(not made.startswith(commit) for made in commits):
        yield f"{folder}: holds records of commit {', '.join(sorted(commits))}"
    slugs = {record.context.slug for record in records}
    if slugs != {folder.parent.name}:
        yield f"{folder}: holds records of {', '.join(sorted(slugs))}"
    if len({_writer(record) for record in records}) > 1:
        yield f"{folder}: holds records of more than one card, build or set of options"


def _writer(record: Record) -> str:
    """What all records of a run have in common; some cases may have more launches than others."""
    parts = [record.context.facts.get(key) for key in ("gpu", "driver", "build", "host")]
    options = {key: value for key, value in record.context.options.items() if key != "launches"}
    return json.dumps([*parts, options], sort_keys=True)
