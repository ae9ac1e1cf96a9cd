"""Where and with what was measured: runs of equal hardware and software stand together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpulift.records.model import Context
from gpulift.report.machine_views import MachineView


@dataclass(frozen=True)
class Setting:
    """Hardware and software, and the runs that were measured with them; they may differ in card,
    commit and options. `context` is that of the first run, `sources` are of datasheets."""

    context: Context
    sources: tuple[str, ...]
    runs: tuple[MachineView, ...]

    @property
    def about(self) -> str:
        """What the list of facts is of."""
        names = [one.summary.run.name for one in self.runs]
        return names[0] if len(names) == 1 else f"{len(names)} runs, {names[0]} and others"


def settings(machines: Iterable[MachineView]) -> list[Setting]:
    """In the order of their first runs."""
    found: dict[str, list[MachineView]] = {}
    for one in machines:
        found.setdefault(repr((_shared(_context(one)), _sources(one))), []).append(one)
    return [Setting(_context(runs[0]), _sources(runs[0]), tuple(runs)) for runs in found.values()]


def _context(one: MachineView) -> Context:
    return one.summary.run.records[0].context


def _sources(one: MachineView) -> tuple[str, ...]:
    return tuple(one.summary.reference.sources) if one.summary.reference else ()


def _shared(context: Context) -> Context:
    """Without what is told of each run, and the host's memory, which a virtual machine takes as it
    needs it."""
    gpu, host = context.gpu, context.host
    if gpu:
        gpu = replace(gpu, card="", facts={**gpu.facts, "card": ""})
    shown = {name: host.facts.get(name) for name in ("os", "kernel", "virtual")}
    return replace(
        context,
        gpu=gpu,
        host=replace(host, id="", id_of=None, facts=shown),
        build=replace(context.build, commit="", dirty=None),
        options={},
        gpus=(),
        versions={},
        scratch=None,
    )
