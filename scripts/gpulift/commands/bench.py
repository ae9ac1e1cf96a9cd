"""`gpulift bench SCRIPT`: the arms of one Python file, measured and judged like any technique."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gpulift.analysis.summary import Summary
from gpulift.commands.running import Gpus, Python, Scratch, interpreter, on_gpus
from gpulift.commands.selecting import Axes
from gpulift.commands.shared import Out, summary_of
from gpulift.engine import measuring, techniques
from gpulift.ground import place, terminal
from gpulift.ground.arguments import Wide, named
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.whole import temporary_folder
from gpulift.records.read import read_results
from gpulift.report import bench as reported
from gpulift.report import tables

ARM_TIME_S = 1.0  # so that steps of 50 ms get enough windows
TIMEOUT_S = 960.0  # as whole training steps have elsewhere: an arm may compile its model
# Not the script's folder: its name may be private, or that of a theme, and another tomorrow.
THEME = "bench"


def bench(
    script: Annotated[
        Path,
        typer.Argument(parser=named, metavar="SCRIPT", help="A Python file with ARMS and make."),
    ],
    out: Out = None,
    launches: Annotated[int, typer.Option(help="Processes per case.")] = 3,
    arm_time: Annotated[float, typer.Option(help="Seconds per arm, case and launch.")] = ARM_TIME_S,
    gpus: Gpus = None,
    python: Python = None,
    scratch: Scratch = None,
    axes: Axes = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="Seconds after which a silent arm is stopped; whole training steps have eight"
            " times as long."
        ),
    ] = TIMEOUT_S,
    wide: Wide = False,
) -> None:
    """Measure the arms of one Python file against its first; writes records and a report."""
    with prepared(script) as modules:
        options = measuring.Options(
            launches=launches,
            arm_time=arm_time,
            python=interpreter(python),
            scratch=scratch,
            modules=modules,
            axes=tuple(axes or ()),
            timeout=timeout,
        )
        options, context = on_gpus(options, gpus)
        measured = measuring.run(options, place.RESULTS, out, context, say, reported=True)
    if measuring.kept_records(measured.folder):
        show(measured.folder, wide)
    raise typer.Exit(measured.exit_code)


@contextmanager
def prepared(script: Path) -> Iterator[Path]:
    """A folder of modules with this one technique. Throws GpuliftError where the file is none."""
    if not script.is_file():
        raise GpuliftError(f"{script}: there is no such file")
    if script.suffix != ".py":
        raise GpuliftError(
            f"{script}: is no Python file; `./gpulift run --techniques DIR` takes .cpp and .cu"
        )
    source = techniques.source_of(script, THEME)
    with _temporary() as above:
        modules = above / source.stem
        techniques.add_script(source, modules)
        yield modules


@contextmanager
def _temporary() -> Iterator[Path]:
    with ExitStack() as entered:
        try:
            made = entered.enter_context(temporary_folder())
        except OSError as error:
            raise GpuliftError(
                f"no folder for temporary files can be used ({error.strerror}); name one in TMPDIR"
            ) from None
        yield made


def show(folder: Path, wide: bool) -> None:
    """What was measured, what was not and why, where records and report are, and the winners."""
    (run,) = read_results([folder])
    summary = summary_of(run)
    screen = terminal.console(wide=wide)
    made = table(summary)
    if made.row_count:
        screen.print(made)
    for line in reported.caveats(summary):
        typer.echo(line)
    for found, title in ((summary.skipped, "Skipped"), (summary.broken, "Failed")):
        if found:
            screen.print(tables.problems(found, title))
    typer.echo(f"records: {folder}")
    from gpulift.report import bench_page  # which takes a second

    typer.echo(f"report: {bench_page.write(summary, folder / 'report')}")
    for line in reported.sentences(summary):
        typer.echo(line)


def table(summary: Summary) -> Table:
    """An arm per row, held against the first of its case."""
    rows = reported.rows(summary)
    shown = reported.columns(rows)
    spared = ("energy per step", "CPU per step", "items per second", "memory", "check")
    made = terminal.titled(
        f"{reported.title(summary)} (ratio: more than 1 is faster)", spared, shown, reported.NUMBERS
    )
    for row in rows:
        made.add_row(*(row.cells[name] for name in shown))
    return made
