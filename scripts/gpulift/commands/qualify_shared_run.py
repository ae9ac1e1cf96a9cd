"""Measures what the GPUs of a machine do together, and judges it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpulift.analysis.machine import node, saved, topology
from gpulift.analysis.machine.health import Health, judge_links, read_health
from gpulift.analysis.machine.links import judge_node
from gpulift.analysis.machine.qualified import Asked, Qualified, card_of
from gpulift.analysis.machine.results import CheckResult
from gpulift.commands import shared as commands
from gpulift.engine import machine, measuring, runs
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, OK, GpuliftError
from gpulift.records.files import record_files
from gpulift.records.model import Context
from gpulift.records.read import read_run

PART = "node"


def measure_shared(
    asked: Asked, contexts: Mapping[int, Context], bench: Path, folder: Path
) -> Qualified | None:
    """Measures, or takes from its folder what it holds already. None where there is nothing to
    measure, which is said in one line."""
    if len(contexts) < node.LEAST_GPUS:
        say(f"left out: {node.ALONE}")
        return None
    options = _options(asked, tuple(contexts), bench)
    if not options.rows:
        say("left out: filter, time or build leave nothing of what the GPUs do together")
        return None
    cards = {index: card_of(context) for index, context in contexts.items()}
    first = next(iter(contexts.values()))
    if measuring.is_complete(folder, runs.wanted(first, options.given(), bench)):
        say(f"measured already: {folder}")
        return _judged(folder, OK, cards, saved.kept_health(folder) or ())
    say(f"{len(contexts)} GPUs with each other")
    before = _health_of_each(bench, contexts)
    measured = measuring.run(options, machine.own_results(), folder, first, say)
    if measured.exit_code not in measuring.FINISHED or not record_files(measured.folder):
        raise GpuliftError("GPUs with each other: not measured", measured.exit_code or FAILED)
    after = _health_of_each(bench, contexts)
    _keep_topology(measured.folder)
    seen = _links_of_each(before, after, cards)
    return _judged(measured.folder, measured.exit_code, cards, seen)


def _options(asked: Asked, gpus: tuple[int, ...], bench: Path) -> measuring.Options:
    """With the rows that match the filter and that there is time for; says what is left out."""
    budget_s = math.inf if asked.quick_s is None else node.times(asked.quick_s, len(gpus)).node_s
    known = machine.catalogue(bench)
    choice = node.choose(len(gpus), known, machine.matcher(asked.filter), budget_s)
    if choice.left_out:
        say(choice.told(node.NODE_SHARE, asked.verbose))
    return measuring.Options(
        filter=asked.filter,
        quick=asked.quick_s is not None,
        gpus=gpus,
        quick_s=asked.quick_s,
        rows=choice.rows,
    )


def _judged(
    folder: Path, exit_code: int, cards: Mapping[int, str], health: Sequence[CheckResult]
) -> Qualified:
    summary = commands.summary_of(read_run(folder))
    results = judge_node(summary, cards, health)
    saved.save(folder / saved.VERDICT_FILE, saved.document(summary, results))
    return Qualified(folder, FAILED if summary.broken else exit_code, summary, results)


def _health_of_each(bench: Path, gpus: Iterable[int]) -> dict[int, Health]:
    return {index: read_health(machine.health(bench, index)) for index in gpus}


def _links_of_each(
    before: Mapping[int, Health], after: Mapping[int, Health], cards: Mapping[int, str]
) -> list[CheckResult]:
    """Each named so that the cards can be told apart."""
    return [
        replace(result, id=f"{result.id} ({cards[index]}, links busy)")
        for index in before
        for result in judge_links(before[index], after[index])
    ]


def _keep_topology(folder: Path) -> None:
    found = topology.ask()
    if isinstance(found, str):
        say(f"no topology: {found}")
    else:
        saved.save(folder / topology.FILE, topology.document(found))
