"""`gpulift history`: what rows measured over time, and where their level changed."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gpulift.commands.shared import print_json
from gpulift.engine import machine
from gpulift.gate import branch, history, job_output
from gpulift.gate.evidence import COMMANDS, GATE_FILE, read_evidence
from gpulift.gate.history import LEAST_POINTS, Change, Point
from gpulift.gate.judge import judge
from gpulift.gate.repositories import Repository
from gpulift.ground import terminal, text
from gpulift.ground.arguments import Filter, Json, named
from gpulift.ground.errors import FAILED, NOTHING_RAN, OK, GpuliftError
from gpulift.ground.near import near
from gpulift.records.read import Run, read_results, run_folders
from gpulift.verdicts.cases import TECHNIQUE, group_cases

FOLDER = Path("gpulift-history")
RECENT = 10
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
    held = _read(folder, in_branch)
    points = history.joined(held, (point for path in results for point in _points(path)))
    count = len(points) - len(held)
    words = text.counted(count, "point")
    if in_branch is not None and count:
        root = Repository.here(Path.cwd()).root
        content = history.lines_of(points)
        branch.write(root, in_branch, history.FILE, content, f"Add {words}")
    elif count:
        history.write(folder, points)
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
) -> None:
    """Rows with their newest value and changes, or the points of one."""
    rows = history.rows_of(_some(_read(folder, in_branch)))
    if row is None:
        if picture is not None:
            raise GpuliftError("--picture draws one row: name it")
        terminal.console().print(_overview(rows))
        return
    if row not in rows:
        close = ", ".join(near(row, rows))
        hint = f"; near it: {close}" if close else ""
        raise GpuliftError(f"{row!r} is no row of the history{hint}")
    points = rows[row]
    found = history.changes(row, points)
    for point in points:
        typer.echo(f"{point.at}  {_shown(point, point.value)}  {point.commit}  {point.machine}")
    for line in _told(row, points, found):
        typer.echo(line)
    if picture is not None:
        from gpulift.report.over_time import draw

        draw(row, points, found, picture)


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
    rows = {
        name: points
        for name, points in history.rows_of(_some(_read(folder, in_branch))).items()
        if matches(name)
    }
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
            typer.echo(_sentence(change))
        short = len(rows) - len(enough)
        insufficient = f"; {short} insufficient (fewer than {LEAST_POINTS} points)" if short else ""
        typer.echo(f"{len(worse)} alerts in {len(enough)} rows{insufficient}")
    raise typer.Exit(FAILED if worse else OK if enough else NOTHING_RAN)


def _read(folder: Path, in_branch: str | None) -> list[Point]:
    if in_branch is None:
        return history.read(folder)
    content = branch.read(Repository.here(Path.cwd()).root, in_branch, history.FILE)
    return history.points_of(content or "", f"{in_branch}:{history.FILE}")


def _some(points: list[Point]) -> list[Point]:
    if not points:
        raise GpuliftError("there is no history yet: ./gpulift history add RUN makes one")
    return points


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
    ended = datetime.datetime.fromtimestamp(
        (folder / GATE_FILE).stat().st_mtime, datetime.timezone.utc
    )
    for one in job_output.figures(result, job_output.launches_of(folder, result)):
        yield Point(
            row=one.result.row.id,
            value=one.head.value,
            at=ended.isoformat(timespec="seconds"),
            commit=evidence.setup.head,
            machine=evidence.setup.machine,
            unit=one.head.unit,
            higher=one.head.higher,
        )


def _overview(rows: dict[str, list[Point]]) -> Table:
    numbers = ("points", "newest")
    made = terminal.titled("History", numbers, ("row", *numbers, "changes"), numbers)
    for name, points in rows.items():
        newest = points[-1]
        told = "; ".join(_told(name, points, history.changes(name, points)))
        made.add_row(name, str(len(points)), _shown(newest, newest.value), told)
    return made


def _told(row: str, points: Sequence[Point], found: Sequence[Change]) -> Iterator[str]:
    if len(points) < LEAST_POINTS:
        yield f"insufficient: {len(points)} of {LEAST_POINTS} points"
    elif not found:
        yield "no change"
    yield from (_sentence(change) for change in found)


def _sentence(change: Change) -> str:
    factor = change.after / change.before
    word = "worse" if change.worse else "better"
    cards = "" if change.same_card else ", not all on one card"
    at = f"{change.first.at[:10]}{' ' if change.first.commit else ''}{change.first.commit[:12]}"
    before, after = (_shown(change.first, value) for value in (change.before, change.after))
    return f"{word}: {change.row} from {at} on: {before} -> {after}, {factor:.3f}{cards}"


def _shown(point: Point, value: float) -> str:
    if point.unit == "s":
        return text.seconds(value)
    return f"{value:.4g}{' ' if point.unit else ''}{point.unit}"
