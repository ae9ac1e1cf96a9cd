"""A run: chooses the folder, calls gpulift-bench, says what was kept."""

from __future__ import annotations

import hashlib
import hmac
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpulift.engine import machine, runs
from gpulift.engine.quick import Row, choose
from gpulift.ground import folders
from gpulift.ground.arguments import require_above_0
from gpulift.ground.errors import (
    FAILED,
    INTERRUPTED,
    NOTHING_RAN,
    OK,
    REFUSED,
    GpuliftError,
)
from gpulift.ground.signals import FORWARDED
from gpulift.ground.text import counted
from gpulift.ground.whole import write_whole
from gpulift.records.files import record_files
from gpulift.records.model import Context
from gpulift.records.read import read_file
from gpulift.records.together import read_state

Say = Callable[[str], None]
More = Callable[[Path], int | None]
Part = Callable[[Path], tuple[int, bool]]
PATH_DIGITS = 8
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PASSED_ON = (
    "launches",
    "arm_time",
    "precision",
    "seed",
    "gpu",
    "python",
    "scratch",
    "modules",
    "timeout",
    "given_ranks",
)
FINISHED = (OK, FAILED, NOTHING_RAN)


@dataclass(frozen=True)
class Options:
    """What the user asked for; None leaves it to gpulift-bench."""

    filter: str | None = None
    quick: bool = False
    launches: int | None = None
    arm_time: float | None = None
    precision: float | None = None
    seed: int | None = None
    gpu: int | None = None
    python: Path | None = None  # the interpreter of Python arms
    gpus: tuple[int, ...] = ()  # where there are several; `gpu` is then left out
    scratch: Path | None = None  # the folder for files of cases
    modules: Path | None = None  # the techniques, in place of those of the build
    more_modules: tuple[Path, ...] = ()  # beside those
    axes: tuple[str, ...] = ()  # NAME=VALUE,... in place of the sweeps' values
    together: int | None = None  # GPUs that are busy at the same time; tells runs apart
    given_ranks: Path | None = None  # that describes them; the modules tell runs apart
    timeout: float | None = None  # changes nothing that is measured: a run goes on with another
    quick_s: float | None = None  # where quick leaves cases out: the time for which it was cut
    rows: tuple[Row, ...] = ()  # what is then left

    def given(self) -> dict[str, Any]:
        """What was given and tells runs apart, as run.json keeps it: of a path, which is private,
        a hash by a key of the host's."""
        options = {
            **vars(self),
            "python": _hash(self.python) if self.python else None,
            "gpus": list(self.gpus),
            "axes": list(self.axes),
            "scratch": _hash(self.scratch) if self.scratch else None,
            "modules": _state_of(self.modules) if self.modules else None,
            "more_modules": [_state_of(folder) for folder in self.more_modules],
            "given_ranks": None,
            "timeout": None,
            "rows": None,
        }
        return {
            key: value
            for key, value in options.items()
            if value is not None and value is not False and value != []
        }

    def flags(self, folder: Path) -> list[str]:
        """The command line of gpulift-bench."""
        flags = ["--records", str(folder)]
        if self.rows:
            flags += ["--rows", str(folder / runs.ROWS_FILE)]
        elif self.filter is not None:
            flags.append(f"--benchmark_filter={self.filter}")
        if self.quick:
            flags.append("--quick")
        if self.gpus:
            flags += ["--gpus", ",".join(map(str, self.gpus))]
        for name in PASSED_ON:
            value = getattr(self, name)
            if value is not None:
                flags += [f"--{name.replace('_', '-')}", str(value)]
        return flags + machine.axis_flags(self.axes) + machine.more_flags(self.more_modules)


@dataclass(frozen=True)
class Measured:
    """Where the records are, and the exit code of the run."""

    folder: Path
    exit_code: int


def run(
    options: Options,
    results: Path,
    out: Path | None,
    context: Context,
    say: Say,
    more: More | None = None,
    *,
    first: More | None = None,
    part: Part | None = None,
    reported: bool = False,
) -> Measured:
    """Measures into a new folder, or goes on with the unfinished run of the same command.

    `first` measures a part of it ahead of the rest, which its exit code keeps from being measured;
    `more` measures further launches once all of the options are there, and tells how that ended;
    `part` measures in place of one call of gpulift-bench, and tells whether all is there, too. A
    run that was interrupted or broken off stays unfinished, and so resumable; one that is to be
    `reported` is gone on with until its page is there, though nothing is left to measure.
    """
    bench = machine.find_bench()
    if (options.filter is not None or options.axes) and not options.rows:
        machine.require_selected(known(options), options.filter)
    want = runs.wanted(context, options.given(), bench)
    with _begun(options, results, out, want, reported) as chosen:
        say(f"{'going on with' if chosen.resumed else 'records go to'} {chosen.path}")
        code = (first(chosen.path) if first is not None else OK) or OK
        whole = True
        if code == OK and part is not None:
            code, whole = part(chosen.path)
        elif code == OK:
            code = machine.measure(bench, options.flags(chosen.path))
        if more is not None and kept_records(chosen.path) and finished(chosen.path, code):
            code = more(chosen.path) or code
        kept = kept_records(chosen.path)
        if kept and finished(chosen.path, code):
            if whole:
                runs.save_state(chosen.path, want, runs.COMPLETE)
            return Measured(chosen.path, code)
        code = _explain(code, kept, chosen.path, say)
    if not chosen.path.exists():
        say(f"nothing was recorded, so {chosen.path} is gone again")
    return Measured(chosen.path, code)


def known(options: Options) -> list[machine.TechniqueInfo]:
    """What there is to measure, with the axes of the options."""
    bench = machine.find_bench()
    return machine.catalogue(
        bench, options.more_modules, options.modules, options.axes, options.filter
    )


@contextmanager
def _begun(
    options: Options, results: Path, out: Path | None, want: runs.Wanted, reported: bool
) -> Iterator[runs.RunFolder]:
    """The folder of the run, which was begun; of one that cannot take it, says what chose it."""
    with ExitStack() as held:
        try:
            chosen = (
                runs.choose_named(out, want)
                if out
                else runs.choose(results, want, reported=reported)
            )
            held.enter_context(chosen)
            begin(chosen.path, options, want)
            if why := folders.why_unusable(chosen.path):
                raise GpuliftError(f"{chosen.path}: its disk is {why}", FAILED)
        except GpuliftError as error:
            told = f"--out {error}" if out else f"{error}; --out names another folder"
            raise GpuliftError(told, error.exit_code) from None
        yield chosen


def begin(folder: Path, options: Options, want: runs.Wanted) -> None:
    """Writes what gpulift-bench and a later call look for in the folder."""
    runs.save_state(folder, want, runs.RUNNING)
    write_rows(folder, options.rows)


def write_rows(folder: Path, rows: Sequence[Row]) -> None:
    """Which rows gpulift-bench is told to measure, where it is not all that match a filter."""
    if not rows:
        return
    file = folder / runs.ROWS_FILE
    lines = ["\t".join(row) + "\n" for row in rows]
    write_whole("".join(lines), file, lasting=False)


def within(
    budget_s: float,
    options: Options,
    techniques: Sequence[machine.TechniqueInfo],
    context: Context,
    say: Say,
    share: float = 1.0,
    verbose: bool = False,
) -> Options:
    """The options of a quick run, cut to what there is time for in this share of the budget; says
    how much is left out."""
    matches = machine.matcher(options.filter)
    chosen = machine.require_selected(techniques, options.filter)
    choice = choose(
        techniques, context, share * budget_s, matches, options.launches, options.arm_time
    )
    if not choice.rows and not choice.left_out:
        cases = counted(sum(len(info.cases) for info in chosen), "case")
        raise GpuliftError(
            f"no quick case matches the filter {options.filter!r}; without --quick {cases} would be"
            " measured"
        )
    if not choice.left_out:
        return options
    say(choice.told(share, verbose))
    if not choice.rows:
        raise GpuliftError(f"--quick {budget_s:.0f}s: is too short for any case")
    return replace(options, quick_s=budget_s, rows=choice.rows)


def finished(folder: Path, code: int) -> bool:
    """Whether a run that ended with this exit code measured all that it could."""
    return code in FINISHED and not _broken_off(folder, code)


def is_complete(folder: Path, want: runs.Wanted) -> bool:
    """Whether the folder holds this very run, and it was finished."""
    state = read_state(folder)
    return runs.is_of(state, want) and state.get("state") == runs.COMPLETE


def kept_records(folder: Path) -> int:
    """How many finished records a run folder holds."""
    return sum(len(read_file(file).records) for file in record_files(folder))


def _hash(path: Path) -> str:
    """By what no record has, so that nobody can try guesses: until the host's next boot, which
    records are parted by, too."""
    return hmac.new(BOOT_ID.read_bytes(), str(path).encode(), "sha256").hexdigest()[:PATH_DIGITS]


def _state_of(modules: Path) -> str:
    """The name of a folder of modules, and a hash of its manifests, which hash the sources, and of
    the Python files beside each script, which it may import."""
    manifests = sorted(modules.glob("*.json"))
    scripts = filter(Path.is_file, (manifest.with_suffix(".py") for manifest in manifests))
    folders = sorted({script.resolve().parent for script in scripts})
    beside = [file for folder in folders for file in sorted(folder.glob("*.py")) if file.is_file()]
    state = hashlib.sha256()
    for file in [*manifests, *beside]:
        with suppress(OSError):  # what cannot be read cannot be imported
            state.update(hashlib.sha256(file.read_bytes()).digest())
    return f"{modules.name}-{state.hexdigest()[:PATH_DIGITS]}"


def _broken_off(folder: Path, code: int) -> bool:
    """Exit code 1 without a failed record: something else ended the run, a full disk, say."""
    if code != FAILED:
        return False
    records = [r for file in record_files(folder) for r in read_file(file).records]
    arms = [arm.outcome for record in records for arm in record.arms]
    outcomes = {*arms, *(record.outcome for record in records)}
    return not outcomes & {"failed", "error"}


def _explain(code: int, kept: int, folder: Path, say: Say) -> int:
    """Says what is left of a run that did not finish; its exit code."""
    on = f"{kept} finished records are kept in {folder}; the same command goes on from there"
    if code in (INTERRUPTED, -signal.SIGINT):
        say(f"interrupted: {on if kept else 'nothing was finished yet'}")
        return INTERRUPTED
    if code < 0:
        say(f"gpulift-bench ended by {signal.Signals(-code).name}: {on}")
        return 128 - code if -code in FORWARDED else FAILED
    if code not in REFUSED and kept:
        say(f"the run broke off: {on}")
    return code


def require_known(options: Options) -> None:
    """Refuses values that no run can have, before anything is made."""
    for name in ("launches", "arm_time", "precision", "timeout"):
        value = getattr(options, name)
        if value is not None:
            require_above_0(f"--{name.replace('_', '-')}", value)
    if options.scratch is not None and not options.scratch.is_dir():
        raise GpuliftError(f"--scratch {options.scratch}: is no folder; make it first")
