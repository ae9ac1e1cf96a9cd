"""Gauges in Prometheus' text format, for the textfile collector of node_exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible

if TYPE_CHECKING:
    from prometheus_client import Metric

Labels = Mapping[str, str]


@dataclass(eq=False)  # a registry hashes it
class Gauges:
    """Samples by gauge and labels; a set of labels may be there once only."""

    meanings: Mapping[str, str]  # of each gauge, in the order in which they are written
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = field(default_factory=dict)

    def add(self, name: str, labels: Labels, value: float | None) -> None:
        """One sample; one that is not known is left out. Raises GpuliftError where the same labels
        have another value."""
        if value is None:
            return
        key = tuple((label, visible(text)) for label, text in labels.items())
        if self.samples.setdefault(name, {}).setdefault(key, value) != value:
            written = ",".join(f'{label}="{text}"' for label, text in key)
            raise GpuliftError(f"two runs of the same name hold {written}: export them one by one")

    def text(self) -> str:
        """All of them, gauge by gauge."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)  # no Gauge, which a caller's environment may have write files
        return generate_latest(registry).decode()

    def collect(self) -> Iterator[Metric]:
        """What the registry asks for."""
        from prometheus_client.core import GaugeMetricFamily

        for name, meaning in self.meanings.items():
            if samples := self.samples.get(name):
                names = [label for label, _ in next(iter(samples))]
                family = GaugeMetricFamily(name, meaning, labels=names)
                for labels, value in samples.items():
                    family.add_metric([text for _, text in labels], value)
                yield family
