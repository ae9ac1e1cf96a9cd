"""The newest sample as a file of Prometheus' gauges, for node_exporter."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpulift.ground.errors import GpuliftError
from gpulift.ground.gauges import Gauges, Labels
from gpulift.ground.whole import write_whole
from gpulift.watch.cards import Card
from gpulift.watch.samples import Sample

PREFIX = "gpulift_watch_"
BEGINNING = f"# HELP {PREFIX}".encode()  # of every file of gauges
UP = "up"
MEANING = "Mean of the newest sample; shares and activities of 1."


def gauges(sample: Sample, cards: Sequence[Card]) -> str:
    """A gauge for each quantity; of GPUs with index and name."""
    samples: list[tuple[str, Labels, float]] = [(UP, {}, 1.0)]
    samples += [(f"job_{name}", {}, value) for name, value in sample.job.items()]
    for card, gpu in zip(cards, sample.gpus, strict=True):
        labels = {"gpu": str(card.index), "name": card.name}
        samples += [(f"gpu_{name}", labels, value) for name, value in gpu.items()]
    meanings = {PREFIX + name: MEANING for name, _, _ in samples}
    made = Gauges(
        {**meanings, PREFIX + UP: "1 while the job is watched; else the rest is of its end."}
    )
    for name, of, value in samples:
        made.add(PREFIX + name, of, value)
    return made.text()


class GaugeFile:
    """A file that always holds a whole sample; when the job has ended its last one, not up."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last = ""

    def write(self, content: str) -> None:
        """Replaces what was there before."""
        write_whole(content, self._file, lasting=False)  # the job's disk is not kept waiting
        self._last = content

    def close(self) -> None:
        """Gauges of a job that has ended are not to be read as if it went on."""
        if self._last:
            with suppress(GpuliftError):
                ended = self._last.replace(f"\n{PREFIX}{UP} 1.0\n", f"\n{PREFIX}{UP} 0.0\n")
                write_whole(ended, self._file, lasting=False)
