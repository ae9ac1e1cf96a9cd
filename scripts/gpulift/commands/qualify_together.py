"""All cards of a machine at once: where their parts go, and how they are measured."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpulift.analysis.machine.qualified import Parts, card_of
from gpulift.analysis.summary import Summary
from gpulift.commands import shared as commands
from gpulift.engine import machine, measuring, runs
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, INTERRUPTED, NOT_COMPARABLE, GpuliftError
from gpulift.records.model import Context
from gpulift.records.read import read_run


@dataclass(frozen=True)
class Busy:
    """One card's part of the run in which all are busy."""

    path: Path
    options: measuring.Options
    want: runs.Wanted


@contextmanager
def parts_of(
    out: Path | None,
    contexts: dict[int, Context],
    options: measuring.Options,
    whole: Mapping[str, Any],
) -> Iterator[Parts]:
    """In the folder that the user named; else beside a new one, or one that the same command left,
    which `whole` tells apart. It is complete when nothing was thrown."""
    if out is not None:
        yield Parts(out)
        return
    cards = {str(index): card_of(context) for index, context in contexts.items()}
    first, given = (
        next(iter(contexts.values())),
        {**options.given(), "qualify": {"cards": cards, **whole}},
    )
    want = runs.wanted(first, given, machine.find_bench())
    with runs.choose(machine.own_results(), want) as chosen:
        runs.save_state(chosen.path, want, runs.RUNNING)
        say(f"{'going on with' if chosen.resumed else 'records go beside'} {chosen.path}")
        yield Parts(chosen.path, beside=True)
        runs.save_state(chosen.path, want, runs.COMPLETE)


def read_of_card(folder: Path, context: Context) -> Summary:
    """The finished run in a folder. Refuses (exit code 4) one of another card than is here now."""
    summary = commands.summary_of(read_run(folder))
    card = card_of(summary.run.records[0].context)
    if card != card_of(context):
        raise GpuliftError(
            f"{folder}: is of card {card}, and {card_of(context)} is here now: name another folder",
            NOT_COMPARABLE,
        )
    return summary


def measure_together(
    options: measuring.Options,
    contexts: dict[int, Context],
    bench: Path,
    parts: Parts,
    name: str = "together",
) -> dict[int, Summary]:
    """All cards at once: they share power, links and the host."""
    busy = _busy(options, contexts, bench, parts, name)
    if all(measuring.is_complete(part.path, part.want) for part in busy.values()):
        say(f"all {len(busy)} GPUs at once: measured already")
        return {i: read_of_card(part.path, contexts[i]) for i, part in busy.items()}
    say(f"all {len(busy)} GPUs at once; their progress is in log.txt of each folder")
    with ExitStack() as held:
        for part in busy.values():
            held.enter_context(runs.choose_named(part.path, part.want))
            measuring.begin(part.path, part.options, part.want)
        calls = [(part.options.flags(part.path), part.path / "log.txt") for part in busy.values()]
        codes = dict(zip(busy, machine.measure_all(bench, calls), strict=True))
        ended = [i for i, part in busy.items() if measuring.finished(part.path, codes[i])]
        for index in ended:
            runs.save_state(busy[index].path, busy[index].want, runs.COMPLETE)
    unfinished = [index for index in busy if index not in ended]
    if unfinished:
        index = unfinished[0]
        interrupted = codes[index] in (INTERRUPTED, -signal.SIGINT)
        raise GpuliftError(
            f"GPU {index}, all at once: ended early, see {busy[index].path}/log.txt; the same"
            " command goes on from there",
            INTERRUPTED if interrupted else FAILED,
        )
    return {index: commands.summary_of(read_run(part.path)) for index, part in busy.items()}


def _busy(
    options: measuring.Options, contexts: dict[int, Context], bench: Path, parts: Parts, name: str
) -> dict[int, Busy]:
    """Where each card's part goes. A set that only some cards finished is begun anew beside it: the
    others would go on alone."""
    wants = {}
    for index, context in contexts.items():
        own = replace(options, gpu=index, together=len(contexts))
        wants[index] = (own, runs.wanted(context, own.given(), bench))
    number = 1
    while True:
        again = f"-{number}" if number > 1 else ""
        busy = {i: Busy(parts.folder_of(f"{name}{i}{again}"), *both) for i, both in wants.items()}
        done = [part for part in busy.values() if measuring.is_complete(part.path, part.want)]
        if len(done) in (0, len(wants)):
            return busy
        number += 1
