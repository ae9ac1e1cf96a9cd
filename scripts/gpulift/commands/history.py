"""`gpulift history`: what rows measured over time, and where their level changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gpulift.commands.shared import print_json
from gpulift.engine import machine
from gpulift.gate import branch, history
from gpulift.gate.answer import answer, shown
from gpulift.gate.evidence import COMMANDS, GATE_FILE, Document, read_evidence
from gpulift.gate.history import LEAST_POINTS, Change, Point
from gpulift.gate.judge import judge
from gpulift.gate.metrics import Reading
from gpulift.gate.repositories import Repository
from gpulift.ground import terminal, text
from gpulift.ground.arguments import Filter, Json, named
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, NOTHING_RAN, OK, GpuliftError, write_error
from gpulift.ground.estimate import Estimate
from gpulift.ground.lock import alone
from gpulift.ground.near import near
from gpulift.ground.whole import read_whole
from gpulift.records.decode import decoded
from gpulift.records.read import Run, read_results, run_folders
from gpulift.verdicts import table
from gpulift.verdicts.cases import TECHNIQUE, group_cases
from gpulift.verdicts.row import FAILED as WORSE
from gpulift.verdicts.row import PASSED, Row

FOLDER = Path("gpulift-history")
RECENT = 10
# In the name of a gate's head; Pythons have none.
HASH = re.compile(r"\(([0-9a-f]{7,64})\b(.*uncommitted)?")
HELP = "What rows measured over time: add, show, alerts."
Folder = Annotated[
    Path, typer.Option("--in", parser=named, metavar="FOLDER", help="Where the history is.")
]
Branch = Annotated[
    str | None,
    typer.Option(
        "--branch", metavar="NAME", help="Instead of a folder: a branch of this repository."
    ),
]

app = typer.Typer(
    name="history", help=HELP, no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command()
def add(
    results: Annotated[
        list[Path],
        typer.Argument(parser=named, metavar="RUN|GATE", help="Run folders, or evidence of gates."),
    ],
    folder: Folder = FOLDER,
    in_branch: Branch = None,
) -> None:
    """Adds the points of runs and gates, each once."""
    more = [
        point
        for path in results  # read as they are kept, so that none is kept that cannot be read
        for point in history.points_of(history.lines_of(_points(path)), str(path))
    ]
    lock = folder / history.LOCK if in_branch is None else branch.lock_of(_root())
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with alone(lock, lambda: say("another call adds to a history here; waiting for it")):
            held, tip = _read(folder, in_branch)
            points = history.joined(held, more)
            words = text.counted(len(points) - len(held), "point")
            if len(points) > len(held) and tip is not None:
                tip.write(history.FILE, history.lines_of(points), f"Add {words}")
            elif len(points) > len(held):
                history.write(folder, points)
    except OSError as error:
        raise write_error(lock, error) from None
    typer.echo(f"{words} added, {len(points)} in all")


@app.command()
def show(
    row: Annotated[
        str | None,
        typer.Argument(metavar="[ROW]", help="A row, with its points; else all rows, a line each."),
    ] = None,
    folder: Folder = FOLDER,
    in_branch: Branch = None,
    picture: Annotated[
        Path | None, typer.Option(parser=named, metavar="FILE.svg", help="Draw the row.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="FILE.html", help="A page with a small chart a row."),
    ] = None,
) -> None:
    """Rows with their newest value and changes, or the points of one."""
    rows = _rows(folder, in_branch)
    if row is None and picture is not None:
        raise GpuliftError("--picture draws one row: name it")
    if row is not None and row not in rows:
        close = ", ".join(near(row, rows))
        hint = f"; near it: {close}" if close else ""
        raise GpuliftError(f"{row!r} is no row of the history{hint}")
    found = {name: history.changes(name, rows[name]) for name in ([row] if row else rows)}
    told = {name: list(_told(rows[name], changes)) for name, changes in found.items()}
    if picture is not None or html is not None:
        from gpulift.report import over_time

        levels = [
            over_time.Level(name, rows[name], changes, told[name])
            for name, changes in found.items()
        ]
        if picture is not None:
            levels[0].drawn(title=levels[0].row).write_svg(picture)
        if html is not None:
            over_time.write_page(levels, html)
    if row is None:
        terminal.console().print(_overview(rows, told))
        return
    for point in rows[row]:
        told_of = (point.at, _shown(point, point.value), point.commit, point.machine)
        typer.echo(text.visible("  ".join(told_of)))
    for line in told[row]:
        typer.echo(line)


@app.command()
def alerts(
    folder: Folder = FOLDER,
    in_branch: Branch = None,
    filter: Filter = None,
    last: Annotated[
        int, typer.Option(min=1, help="How many of the newest points of a row are looked at.")
    ] = RECENT,
    as_json: Json = False,
) -> None:
    """Rows that lately became worse: exit code 1; 77 where no row has points enough to tell."""
    matches = machine.matcher(filter)
    rows = {name: points for name, points in _rows(folder, in_branch).items() if matches(name)}
    enough = {name: points for name, points in rows.items() if len(points) >= LEAST_POINTS}
    worse = [
        change
        for name, points in enough.items()
        for change in history.changes(name, points)
        if change.worse and change.place >= len(points) - last
    ]
    if as_json:
        print_json([asdict(change) for change in worse])
    else:
        for change in worse:
            typer.echo(text.visible(table.line(_row(change))))
        short = len(rows) - len(enough)
        insufficient = f"; {short} insufficient (fewer than {LEAST_POINTS} points)" if short else ""
        typer.echo(f"{len(worse)} alerts in {len(enough)} rows{insufficient}")
    raise typer.Exit(FAILED if worse else OK if enough else NOTHING_RAN)


def _root() -> Path:
    return Repository.here(Path.cwd()).root


def _read(folder: Path, in_branch: str | None) -> tuple[list[Point], branch.Tip | None]:
    """All points, and the branch as it was read."""
    if in_branch is None:
        return history.read(folder), None
    tip = branch.tip(_root(), in_branch)
    return history.points_of(tip.content(history.FILE) or "", f"{in_branch}:{history.FILE}"), tip


def _rows(folder: Path, in_branch: str | None) -> dict[str, list[Point]]:
    points, _ = _read(folder, in_branch)
    if not points:
        raise GpuliftError("there is no history yet: ./gpulift history add RUN makes one")
    return history.rows_of(points)


def _points(path: Path) -> Iterator[Point]:
    if (path / GATE_FILE).is_file():
        yield from _of_gate(path)
        return
    for folder in run_folders(path) or [path]:  # each, where `report` would take one
        for run in read_results([folder]):
            yield from _of_run(run)


def _of_run(run: Run) -> Iterator[Point]:
    context = run.records[0].context
    for case in group_cases(run.records, TECHNIQUE):
        for arm, time in case.times_s.items():
            yield Point(
                row="/".join(filter(None, (case.technique, case.case_id, arm))),
                value=time.value,
                at=case.first.began_at,
                commit=context.build.commit,
                machine=context.slug,
                card=context.gpu.card if context.gpu else "",
                unit="s",
            )


def _of_gate(folder: Path) -> Iterator[Point]:
    """The head of a gate of somebody's command."""
    evidence = read_evidence(folder)
    if evidence.setup.mode != COMMANDS:
        raise GpuliftError(f"{folder}: is a gate of techniques, which has ratios alone: add a run")
    result = judge(evidence)
    document = decoded(read_whole(folder / GATE_FILE), Document, str(folder / GATE_FILE))
    ended = (document.result or {}).get("ended_at")
    try:
        at = datetime.fromisoformat(str(ended)).isoformat()
    except ValueError:
        raise GpuliftError(
            f"{folder}: does not say when it was measured: it was broken off, or is of an older"
            " gpulift: gate again"
        ) from None
    head = HASH.search(evidence.setup.head)
    for row in answer(result, folder).rows:
        if row.measured is not None:
            yield Point(
                row=f"{row.group}/{row.subject}",
                value=row.measured.estimate.value,
                at=at,
                commit=f"{head[1]}{'-dirty' if head[2] else ''}" if head else "",
                machine=evidence.setup.machine,
                unit=row.measured.unit,
                higher=row.measured.higher,
            )


def _overview(rows: dict[str, list[Point]], told: dict[str, list[str]]) -> Table:
    numbers = ("points", "newest")
    made = terminal.titled("History", numbers, ("row", *numbers, "changes"), numbers)
    for name, points in rows.items():
        newest = _shown(points[-1], points[-1].value)
        cells = (name, str(len(points)), newest, "; ".join(told[name]))
        made.add_row(*(Text(text.visible(cell)) for cell in cells))
    return made


def _told(points: Sequence[Point], found: Sequence[Change]) -> Iterator[str]:
    if len(points) < LEAST_POINTS:
        yield f"insufficient: {len(points)} of {LEAST_POINTS} points"
    elif not found:
        yield "no change"
    yield from (text.visible(table.line(_row(change))) for change in found)


def _row(change: Change) -> Row:
    cards = "" if change.same_card else ", not all on one card"
    at = " ".join(filter(None, (change.first.at[:10], change.first.commit)))
    return Row(
        question="after/before",
        subject=change.row,
        verdict="worse" if change.worse else "better",
        kind=WORSE if change.worse else PASSED,
        estimate=Estimate(change.after / change.before),
        base=_shown(change.first, change.before),
        head=_shown(change.first, change.after),
        reason=f"from {at} on{cards}",
    )


def _shown(point: Point, value: float) -> str:
    return shown(Reading(value, point.unit))
