"""Which cases a spell is for, in which order, by the records that are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from gpulift.analysis.begin_rows import MACHINES, known_of
from gpulift.analysis.choice import choice_of
from gpulift.analysis.costs import Costs
from gpulift.analysis.lacking import CaseName, Fills, lacking
from gpulift.analysis.ledger import read_ledger
from gpulift.commands import claims
from gpulift.commands.spell import KEPT_S, Step, steps_of
from gpulift.engine import machine, measuring
from gpulift.engine.machine import TechniqueInfo
from gpulift.ground.arguments import time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import NOTHING_RAN, GpuliftError
from gpulift.ground.text import counted, visible
from gpulift.records.files import record_files_below, size_of, stem_of
from gpulift.records.find import model_named
from gpulift.records.model import Context, Record, slug
from gpulift.records.read import read_file, reading_once


@dataclass(frozen=True)
class Asked:
    """Of the command line, each as it was given."""

    within: str | None = None
    plan: bool = False
    worth: bool = False
    model: str | None = None

    def __bool__(self) -> bool:
        return bool(self.within or self.plan or self.worth or self.model)

    @property
    def budget_s(self) -> float:
        """Infinity without a limit. GpuliftError for what is no time, or too short."""
        if self.within is None:
            return inf
        seconds = time_s("--within", f"{self.within}s" if self.within.isdecimal() else self.within)
        if seconds <= KEPT_S:
            kept = f"{KEPT_S:.0f} s of it are kept for writing"
            raise GpuliftError(f"--within {self.within}: give a longer time, {kept}")
        return seconds

    def require_fitting(self, others: Sequence[str]) -> None:
        """Refuses what says nothing beside these options of `run`."""
        if self and others:
            raise GpuliftError(f"{others[0]}: not with --within, --plan or --worth")
        if self.model and not self.plan:
            raise GpuliftError("--model: names whose records --plan goes by; give --plan, too")


def steps_here(
    asked: Asked,
    options: measuring.Options,
    infos: Sequence[TechniqueInfo],
    context: Context,
    out: Path | None,
) -> list[Step]:
    """What to measure of these techniques, of which the filter selects; says what cannot run
    here."""
    chosen = machine.require_selected(infos, options.filter)
    stems = None if asked.worth else {one.id.replace("/", ".") for one in chosen}
    places = [*machine.searched(), *([out] if out and out.is_dir() else [])]
    with reading_once():
        records = list(_records(places, stems))
        model = _model(asked, context, records)
        here = _here(chosen, options, context) if model == context.slug else _listed(chosen)
        costs = Costs(records, choice_of(machine.results_folder()).today)
        worth = _worth(infos, model, records) if asked.worth else None
    if asked.plan:
        say(f"by records of {model}")
    return steps_of(here, options, costs, model, worth)


def _records(places: Sequence[Path], stems: set[str] | None) -> Iterator[Record]:
    every = {file.resolve(): file for place in places for file in record_files_below(place)}
    for file in every.values():
        if size_of(file) and (stems is None or stem_of(file) in stems):
            try:
                yield from read_file(file).records
            except GpuliftError as error:
                say(f"warning: left out: {visible(str(error))}")


def _model(asked: Asked, context: Context, records: Sequence[Record]) -> str:
    """The one that was named, else this machine's; to plan without a GPU that of the newest
    record."""
    if asked.model:
        known = list(dict.fromkeys(one.context.slug for one in records))
        return model_named(asked.model, known) or slug(asked.model)
    on_gpus = [one for one in records if one.context.gpu]
    if asked.plan and context.gpu is None and on_gpus:
        return max(on_gpus, key=lambda one: one.began_at).context.slug
    return context.slug


def _listed(infos: Sequence[TechniqueInfo]) -> list[TechniqueInfo]:
    return [info for info in infos if info.cases and info.arms]


def _here(
    infos: Sequence[TechniqueInfo], options: measuring.Options, context: Context
) -> list[TechniqueInfo]:
    """Those that can run here; says how many cannot."""
    gpus = len(options.gpus)
    if context.gpu and not gpus:
        bench = machine.find_bench()
        gpus = 1 if options.gpu is not None else len(machine.gpus_named(bench, "all"))
    can = [one for one in _listed(infos) if not one.not_here(context) and one.gpus <= gpus]
    if missing := len(infos) - len(can):
        reasons = f"{counted(missing, 'technique')} cannot run here: ./gpulift doctor says why"
        if not can:
            raise GpuliftError(reasons, NOTHING_RAN)
        say(f"left out: {reasons}")
    return can


def _worth(
    infos: Sequence[TechniqueInfo], model: str, records: Sequence[Record]
) -> dict[CaseName, Fills]:
    places = [place for place in machine.searched() if place.is_dir()]
    models = MACHINES if model in MACHINES else (model,)
    files = {
        one: [file for place in places for file in record_files_below(place / one)]
        for one in models
    }
    results, ledger = machine.results_folder(), read_ledger()
    runs = [one for at in places for one in claims.runs_by_model([at], ledger).get(model, ())]
    judged = claims.judgements_of(ledger, runs, choice_of(results))
    own = [one for one in records if one.context.slug == model]
    return lacking(known_of(results, files), judged, infos, own, model)
