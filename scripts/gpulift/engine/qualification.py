"""What a qualification measures, taken whole: what the GPUs do with each other, each GPU alone, and
all at once, which share power, links and the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpulift.engine import machine, measuring, node, packages, presence
from gpulift.engine.measuring import Options, Say
from gpulift.engine.quick import FIRST_SHARE, Row
from gpulift.ground.errors import FAILED, NOTHING_RAN, GpuliftError
from gpulift.records.model import Context

NODE = "node"
MAIN_RATES = ("ceiling/gemm", "ceiling/device_memory", "ceiling/host_link")
BURN = "ceiling/gemm"
PRODUCT = f"^{BURN}/regime:sustained/product:fixed/bf16$"
LAUNCH_S = 22.0  # 10.3 s an arm on three H200 (results/), and the start of a process


@dataclass(frozen=True)
class Asked:
    """What the user wants measured."""

    quick_s: float | None = None
    filter: str | None = None
    out: Path | None = None
    verbose: bool = False  # name what there is no time for
    expected_gpus: int | None = None
    gpu: int | None = None
    gpus: str | None = None  # several
    burn_s: float | None = None


@dataclass(frozen=True)
class Part:
    """What is measured into one folder; the name is of the folder, empty where there is one."""

    name: str
    context: Context
    options: Options
    first: tuple[Row, ...] = ()  # of a card's main rates, to be looked at ahead of the rest
    budget_s: float = math.inf


@dataclass(frozen=True)
class Plan:
    """All parts, and what tells this qualification from another one in the same results."""

    bench: Path
    context: Context  # of the first GPU
    usable: int
    asked: Asked
    techniques: Sequence[machine.TechniqueInfo] = ()
    node: Part | None = None
    alone: tuple[Part, ...] = ()
    at_once: tuple[Part, ...] = ()
    whole: Mapping[str, Any] = field(default_factory=dict)

    @property
    def burns(self) -> bool:
        """Whether the GPUs are loaded, and nothing is measured of each alone."""
        return not self.alone

    @property
    def lost(self) -> tuple[str, str] | None:
        """Why GPUs that should be there cannot be used, and the remedy."""
        on_bus = presence.gpus_on_bus()
        return presence.why_lost(self.context, self.usable, self.asked.expected_gpus, on_bus)


def plan(asked: Asked, say: Say) -> Plan:
    """Refuses what cannot be measured before anything is."""
    bench = machine.find_bench()
    if asked.burn_s is None and asked.gpus is None:
        return _of_one(asked, bench, say)
    gpus = asked.gpus or ("all" if asked.gpu is None else str(asked.gpu))
    contexts = _cards(bench, gpus, asked.expected_gpus)
    if asked.burn_s is None:
        made = _of_several(asked, contexts, bench, say)
    else:
        made = _burning(asked, contexts, bench)
    own = replace(made.at_once[0].options, gpu=None, together=None).given()
    cards = {str(index): context.card for index, context in contexts.items()}
    of = {"filter": asked.filter, "quick_s": asked.quick_s, "burn_s": asked.burn_s}
    return replace(made, whole={**own, "qualify": {"cards": cards, **of}})


def _of_one(asked: Asked, bench: Path, say: Say) -> Plan:
    context = machine.describe_asked(bench, asked.gpu)
    known = packages.with_missing(machine.catalogue(bench), [bench.parent / "modules"])
    options = replace(_options(asked, context, known, 1.0, say), gpu=asked.gpu)
    usable = 0 if context.gpu is None else len(machine.gpus_named(bench, "all"))
    only = _alone("", context, options, known, asked.quick_s)
    return Plan(bench, context, usable, asked, known, alone=(only,))


def _of_several(asked: Asked, contexts: Mapping[int, Context], bench: Path, say: Say) -> Plan:
    first, catalogue = next(iter(contexts.values())), machine.catalogue(bench)
    known = packages.with_missing(catalogue, [bench.parent / "modules"])
    share = node.times(1.0, len(contexts)).alone_s  # of a quick run's time, for each card alone
    own = replace(asked, filter=asked.filter or _on_one_gpu_only(catalogue))
    options = _options(own, first, known, share, say)
    alone_s = asked.quick_s and share * asked.quick_s
    alone = tuple(
        _alone(f"gpu{index}", context, replace(options, gpu=index), known, alone_s)
        for index, context in contexts.items()
    )
    together = _at_once("together", contexts, options)
    shared, usable = _node(asked, contexts, catalogue, say), len(machine.gpus_named(bench, "all"))
    return Plan(bench, first, usable, asked, known, shared, alone, together)


def _burning(asked: Asked, contexts: Mapping[int, Context], bench: Path) -> Plan:
    """All GPUs at once under one product: the fixed one of a ceiling, sustained, in FP32 and BF16
    by turns, since the first arm of a case is measured with each other one."""
    machine.require_selected(machine.catalogue(bench), PRODUCT)
    launches = max(1, round((asked.burn_s or 0.0) / LAUNCH_S))
    usable, first = len(machine.gpus_named(bench, "all")), next(iter(contexts.values()))
    burnt = _at_once("burn", contexts, Options(filter=PRODUCT, launches=launches))
    return Plan(bench, first, usable, asked, at_once=burnt)


def _alone(
    name: str,
    context: Context,
    options: Options,
    known: Sequence[machine.TechniqueInfo],
    quick_s: float | None,
) -> Part:
    first = _main_rates(options, known) if options.quick and context.gpu is not None else ()
    return Part(name, context, options, first, math.inf if quick_s is None else quick_s)


def _at_once(name: str, contexts: Mapping[int, Context], options: Options) -> tuple[Part, ...]:
    return tuple(
        Part(f"{name}{index}", context, replace(options, gpu=index, together=len(contexts)))
        for index, context in contexts.items()
    )


def _node(
    asked: Asked,
    contexts: Mapping[int, Context],
    known: Sequence[machine.TechniqueInfo],
    say: Say,
) -> Part | None:
    """The rows that match the filter and that there is time for; says what is left out."""
    count = len(contexts)
    if count < node.LEAST_GPUS:
        say(f"left out: {node.ALONE}")
        return None
    budget_s = math.inf if asked.quick_s is None else node.times(asked.quick_s, count).node_s
    choice = node.choose(count, known, machine.matcher(asked.filter), budget_s)
    if choice.left_out:
        say(choice.told(node.NODE_SHARE, asked.verbose))
    if not choice.rows:
        say("left out: filter, time or build leave nothing of what the GPUs do together")
        return None
    options = Options(
        filter=asked.filter,
        quick=asked.quick_s is not None,
        gpus=tuple(contexts),
        quick_s=asked.quick_s,
        rows=choice.rows,
    )
    return Part(NODE, next(iter(contexts.values())), options)


def _options(
    asked: Asked,
    context: Context,
    known: Sequence[machine.TechniqueInfo],
    share: float,
    say: Say,
) -> Options:
    """Of one card, which has a share of the time where there are several, all of one model."""
    options = Options(filter=asked.filter, quick=asked.quick_s is not None)
    if asked.quick_s is None:
        return options
    first = FIRST_SHARE * share
    return measuring.within(asked.quick_s, options, known, context, say, first, asked.verbose)


def _main_rates(options: Options, known: Sequence[machine.TechniqueInfo]) -> tuple[Row, ...]:
    """Those that a quick run has anyway."""
    matches = machine.matcher(options.filter)
    every = options.rows or (
        (info.id, case.id, arm)
        for info in known
        for case in info.cases
        for arm in info.arms
        if case.quick and matches(info.id, f"{info.id}/{case.id}", f"{info.id}/{case.id}/{arm}")
    )
    return tuple(row for row in every if row[0] in MAIN_RATES)


def _cards(bench: Path, gpus: str, expected: int | None) -> dict[int, Context]:
    """Index and facts of the GPUs that were asked for, which are of one model. Raises GpuliftError
    where there is none, which is a failure where there should be one."""
    contexts: dict[int, Context] = {}
    if gpus == "all":
        while (context := machine.describe(bench, len(contexts))).gpu is not None:
            contexts[len(contexts)] = context
        if not contexts:
            lost = presence.why_lost(context, 0, expected, presence.gpus_on_bus())
            why, remedy = lost or (context.gpu_missing, context.gpu_remedy)
            raise GpuliftError(f"no GPU: {why}; {remedy}", FAILED if lost else NOTHING_RAN)
    else:
        wanted = sorted(machine.gpus_named(bench, gpus))
        contexts = {index: machine.describe(bench, index) for index in wanted}
    models: dict[str, list[str]] = {}
    for index, context in contexts.items():
        if context.gpu is None:
            remedy = f"; {context.gpu_remedy}" if context.gpu_remedy else ""
            raise GpuliftError(f"--gpus {gpus}: {context.gpu_missing}{remedy}")
        models.setdefault(context.gpu.name, []).append(str(index))
    if len(models) > 1:
        listed = ", ".join(f"{name} ({','.join(cards)})" for name, cards in sorted(models.items()))
        raise GpuliftError(f"--gpus {gpus}: cards of several models: {listed}; name those of one")
    return contexts


def _on_one_gpu_only(known: Sequence[machine.TechniqueInfo]) -> str | None:
    """A filter that leaves out what is the same for every card, and what takes several."""
    others = [info.id for info in known if info.gpus != 1]
    return f"-^({'|'.join(others)})/" if others else None
