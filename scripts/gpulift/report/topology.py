"""How the GPUs of a machine are linked, as a matrix that needs no colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpulift.analysis.analyse import JudgedRun
from gpulift.analysis.machine.links import pair_rates
from gpulift.analysis.machine.tables import quantity
from gpulift.analysis.machine.topology import Topology
from gpulift.analysis.summary import Summary


@dataclass(frozen=True)
class Row:
    """A GPU, the NUMA nodes near it, and what links it to each GPU in turn."""

    gpu: str
    numa: str
    cells: tuple[tuple[str, str], ...]  # the other GPU, and link with its measured rate


@dataclass(frozen=True)
class TopologyView:
    """Of one run; `said` has in a sentence what the matrix shows."""

    number: int
    machine: str
    gpus: tuple[str, ...]
    rows: tuple[Row, ...]
    said: str
    measured: bool


def views(runs: Sequence[JudgedRun]) -> list[TopologyView]:
    """Of the runs beside whose records it was kept."""
    return [
        _view(number, run.summary, run.topology) for number, run in enumerate(runs) if run.topology
    ]


def _view(number: int, summary: Summary, topology: Topology) -> TopologyView:
    rates = {pair: rate.value for pair, rate in pair_rates(summary).items()}
    names = tuple(f"GPU {gpu}" for gpu in topology.gpus)
    rows = []
    for row, gpu in enumerate(topology.gpus):
        cells = []
        for column, other in enumerate(topology.gpus):
            rate = rates.get((gpu, other))
            parts = (topology.words(row, column), quantity(rate, "B/s") if rate else "")
            cells.append((names[column], ", ".join(filter(None, parts))))
        rows.append(Row(names[row], topology.numa[row] or "not known", tuple(cells)))
    return TopologyView(
        number, summary.run.machine, names, tuple(rows), _said(topology), bool(rates)
    )


def _said(topology: Topology) -> str:
    """`4 GPUs; 18 NVLinks: 6 pairs; NUMA nodes near them: 0, 1.`"""
    last = len(topology.gpus)
    pairs = ((row, column) for row in range(last) for column in range(row + 1, last))
    kinds = Counter(topology.words(*pair) for pair in pairs)
    counted = (
        f"{kind}: {count} {'pair' if count == 1 else 'pairs'}"
        for kind, count in kinds.most_common()
    )
    nodes = ", ".join(sorted({node for node in topology.numa if node}))
    parts = (
        f"{last} {'GPU' if last == 1 else 'GPUs'}",
        *counted,
        f"NUMA nodes near them: {nodes}" if nodes else "",
    )
    return f"{'; '.join(filter(None, parts))}."
