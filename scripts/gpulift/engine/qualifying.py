"""Measures what a qualification plans, part by part. What a folder holds is not measured again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpulift.engine import machine, measuring, runs
from gpulift.engine.measuring import Options, Say
from gpulift.engine.qualification import LAUNCH_S, NODE, Part, Plan
from gpulift.ground import text
from gpulift.ground.errors import FAILED, INTERRUPTED, OK, GpuliftError
from gpulift.records.files import record_files
from gpulift.records.together import PART


@dataclass(frozen=True)
class Evidence:
    """A part that was measured: its records are in the folder. Of each GPU `health` has what the
    driver said before and after; nothing of a part that was there already, nor an exit code."""

    part: Part
    folder: Path
    exit_code: int | None = None
    health: Mapping[int | None, tuple[bytes, bytes]] = field(default_factory=dict)


@dataclass(frozen=True)
class Looks:
    """What is done meanwhile: a line of the first rates, and further launches of what is open,
    until a time of the monotonic clock; the exit code."""

    first: Callable[[Path], str]
    further: Callable[[Path, Options, float], int]


class NotMeasured(GpuliftError):
    """There is nothing to judge; what happened was said already."""


@dataclass(frozen=True)
class Folders:
    """Where the parts go: into a folder, or beside it, where results of a model are one run to a
    folder."""

    above: Path | None  # a run chooses its own where there is one part
    beside: bool = False

    def of(self, name: str) -> Path | None:
        """That of a part."""
        if self.above is None or not name:
            return self.above
        if self.beside:
            return self.above.with_name(f"{self.above.name}{PART}{name}")
        return self.above / name


@contextmanager
def folders(plan: Plan, say: Say) -> Iterator[Folders]:
    """In the folder that the user named; else beside a new one, or one that the same command left.
    It is complete when nothing was thrown."""
    if plan.asked.out is not None or not plan.whole:
        yield Folders(plan.asked.out)
        return
    want = runs.wanted(plan.context, plan.whole, plan.bench)
    with runs.choose(machine.own_results(), want) as chosen:
        runs.save_state(chosen.path, want, runs.RUNNING)
        say(f"{'going on with' if chosen.resumed else 'records go beside'} {chosen.path}")
        yield Folders(chosen.path, beside=True)
        runs.save_state(chosen.path, want, runs.COMPLETE)


def measure(plan: Plan, into: Folders, looks: Looks, say: Say) -> Iterator[Evidence]:
    """Each part as it ends. Raises NotMeasured where one has nothing to judge."""
    for part in (plan.node, *plan.alone):
        if part is not None:
            yield _measured(plan, part, into.of(part.name), looks, say)
    if plan.at_once:
        yield from _measured_at_once(plan, into, say)


def _measured(plan: Plan, part: Part, out: Path | None, looks: Looks, say: Say) -> Evidence:
    options, bench = part.options, plan.bench
    if part.name and out is not None:
        if measuring.is_complete(out, runs.wanted(part.context, options.given(), bench)):
            say(f"measured already: {out}")
            return Evidence(part, out)
        of = f"{len(options.gpus)} GPUs with each other"
        say(of if part.name == NODE else f"GPU {options.gpu} alone")
    seen = _health(bench, options.gpus or (options.gpu,))
    ends_s = time.monotonic() + part.budget_s
    is_shared = part.name == NODE
    measured = measuring.run(
        options,
        machine.own_results(),
        out,
        part.context,
        say,
        None if is_shared else lambda folder: looks.further(folder, options, ends_s),
        first=(lambda folder: _first_look(folder, part, looks, say)) if part.first else None,
        reported=not is_shared,
    )
    if measured.exit_code not in measuring.FINISHED or not record_files(measured.folder):
        raise NotMeasured("nothing to judge", measured.exit_code or FAILED)
    return Evidence(part, measured.folder, measured.exit_code, _since(bench, seen))


def _first_look(folder: Path, part: Part, looks: Looks, say: Say) -> int:
    """Measures the main rates by one launch into the folder of the run, which goes on from there,
    and says them; the exit code unless the run can go on."""
    began_s = time.monotonic()
    asked = replace(part.options, rows=part.first, launches=1)
    measuring.write_rows(folder, asked.rows)
    code = machine.measure(machine.find_bench(), asked.flags(folder))
    measuring.write_rows(folder, part.options.rows)
    if not measuring.finished(folder, code):
        return code
    if measuring.kept_records(folder):
        took = f"first look, {time.monotonic() - began_s:.0f} s, one launch"
        say(f"{took}: {looks.first(folder)}")
    return OK


def _measured_at_once(plan: Plan, into: Folders, say: Say) -> Iterator[Evidence]:
    """All cards at once. A set that only some finished is begun anew beside it: the others would
    go on alone."""
    wants = [runs.wanted(one.context, one.options.given(), plan.bench) for one in plan.at_once]
    number = 0
    while True:
        number += 1
        again = f"-{number}" if number > 1 else ""
        paths = [into.of(f"{part.name}{again}") or Path() for part in plan.at_once]
        done = list(map(measuring.is_complete, paths, wants))
        if all(done) or not any(done):
            break
    count = text.counted(len(paths), "GPU")
    if plan.burns:
        launches = text.counted(plan.at_once[0].options.launches or 1, "launch", "launches")
        say(f"one product on {count}: {launches} of some {LAUNCH_S:.0f} s")
    seen = _health(plan.bench, [one.options.gpu for one in plan.at_once] if plan.burns else ())
    if all(done):
        say(f"all {count} at once: measured already")
    else:
        say(f"all {count} at once; their progress is in log.txt of each folder")
        _measure_at_once(plan, list(zip(plan.at_once, paths, wants, strict=True)))
    later = _since(plan.bench, seen)
    for part, path in zip(plan.at_once, paths, strict=True):
        own = {gpu: both for gpu, both in later.items() if gpu == part.options.gpu}
        yield Evidence(part, path, health=own)


def _measure_at_once(plan: Plan, parts: Sequence[tuple[Part, Path, runs.Wanted]]) -> None:
    with ExitStack() as held:
        for part, path, want in parts:
            held.enter_context(runs.choose_named(path, want))
            measuring.begin(path, part.options, want)
        calls = [(part.options.flags(path), path / "log.txt") for part, path, _ in parts]
        codes = machine.measure_all(plan.bench, calls)
        unfinished = []
        for (part, path, want), code in zip(parts, codes, strict=True):
            if measuring.finished(path, code):
                runs.save_state(path, want, runs.COMPLETE)
            else:
                unfinished.append((part.options.gpu, path, code))
    if unfinished:
        gpu, path, code = unfinished[0]
        raise GpuliftError(
            f"GPU {gpu}, all at once: ended early, see {path}/log.txt; the same command goes on"
            " from there",
            INTERRUPTED if code in (INTERRUPTED, -signal.SIGINT) else FAILED,
        )


def _health(bench: Path, gpus: Sequence[int | None]) -> dict[int | None, bytes]:
    return {gpu: machine.health(bench, gpu) for gpu in gpus}


def _since(
    bench: Path, before: Mapping[int | None, bytes]
) -> dict[int | None, tuple[bytes, bytes]]:
    """With what the driver says now."""
    return {gpu: (answer, machine.health(bench, gpu)) for gpu, answer in before.items()}
