"""Synthetic records, as many as wanted: `python -m tests.many_records --records 10000 --out DIR`.

They are resampled from the committed records of one model, so that a line is as long as a real one.
Each says `context.options.synthetic`, and its GPU's name says so too: they are test data for
readers and reports, and no reference, claim or certificate takes them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpulift.records.model import Record, slug
from gpulift.records.read import read_run, run_folders
from tests.conftest import CHECKOUT

Json = dict[str, Any]

SOURCE = CHECKOUT / "results" / "nvidia-h200"
DATE = "2026-01-01"
TIMES = ("device_s", "host_s", "enqueue_s", "cpu_s")  # what a slower machine or launch makes longer
MODEL_SPREAD = 0.2  # standard deviations of log time
LAUNCH_SPREAD = 0.003


@dataclass(frozen=True)
class Shape:
    """How records spread over models, cards of a model (a run each), and launches of a case."""

    models: int = 2
    cards: int = 2
    launches: int = 10

    @property
    def runs(self) -> int:
        """One per card."""
        return self.models * self.cards


def write(out: Path, count: int, shape: Shape | None = None, seed: int = 1) -> list[Path]:
    """Writes `count` records into run folders below `out`; returns the folders."""
    shape = shape or Shape()
    sources = committed()
    shares = [count // shape.runs + (run < count % shape.runs) for run in range(shape.runs)]
    folders = []
    for run, share in enumerate(shares):
        model, card = divmod(run, shape.cards)
        context = _context(sources[0][0], model, card, shape.launches)
        folder = out / slug(context["gpu"]["name"]) / _folder_name(context, card)
        folder.mkdir(parents=True)
        random = np.random.default_rng([seed, model, card])
        for one in _records(sources, share, shape.launches, context, random):
            file = folder / f"{one['technique'].replace('/', '.')}.jsonl"
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(one, separators=(",", ":")) + "\n")
        folders.append(folder)
    return folders


@cache
def committed() -> list[list[Record]]:
    """The measured launches of each case of the committed runs, except those of duets."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for folder in run_folders(SOURCE):
        for record in read_run(folder).records:
            if record.kind == "technique" and record.outcome == "ok":
                found.setdefault(record.subject, []).append(record)
    return list(found.values())


def _records(
    sources: Sequence[Sequence[Record]],
    count: int,
    launches: int,
    context: Json,
    random: np.random.Generator,
) -> Iterator[Json]:
    """Case by case; when all sources have had their turn, their next variant follows."""
    pace = float(np.exp(random.normal(0, MODEL_SPREAD)))
    for number in range(count):
        case, launch = divmod(number, launches)
        variant, source = divmod(case, len(sources))
        drawn = sources[source][int(random.integers(len(sources[source])))]
        yield _resampled(drawn.raw, variant, launch, context, pace, random)


def _resampled(
    source: Mapping[str, Any],
    variant: int,
    launch: int,
    context: Json,
    pace: float,
    random: np.random.Generator,
) -> Json:
    return {
        **source,
        "case": {**source["case"], "variant": variant},
        "case_id": f"{source['case_id']}/variant:{variant}".removeprefix("/"),
        "launch": launch,
        "launches": context["options"]["launches"],
        "started_at": f"{DATE}T{launch // 60 % 24:02d}:{launch % 60:02d}:00Z",
        "arms": [_arm(arm, pace, random) for arm in source["arms"]],
        "context": context,
    }


def _arm(arm: Mapping[str, Any], pace: float, random: np.random.Generator) -> Json:
    """Windows drawn with replacement from the arm's own, all clocks of a window together."""
    windows = arm.get("windows")
    if not windows:
        return dict(arm)
    factor = pace * float(np.exp(random.normal(0, LAUNCH_SPREAD)))
    chosen = random.integers(len(windows["host_s"]), size=len(windows["host_s"]))
    drawn = {key: _drawn(key, values, chosen, factor) for key, values in windows.items()}
    return {**arm, "windows": drawn}


def _drawn(
    key: str, values: Sequence[float | None], chosen: NDArray[np.int64], factor: float
) -> list[Any]:
    if key not in TIMES:
        return list(values) if key == "start_s" else [values[i] for i in chosen]
    times = np.asarray(values, dtype=np.float64)[chosen] * factor
    return [float(value) for value in times]


def _context(source: Record, model: int, card: int, launches: int) -> Json:
    context = dict(source.raw["context"])
    name = f"{context['gpu']['name']} (synthetic {model + 1})"
    hashed = hashlib.sha256(f"{name}, card {card}".encode()).hexdigest()[:8]
    options = {**context["options"], "quick": False, "launches": launches, "synthetic": True}
    return {
        **context,
        "gpu": {**context["gpu"], "name": name, "card": hashed},
        "options": options,
    }


def _folder_name(context: Json, card: int) -> str:
    return f"{DATE}-{context['build']['commit'][:7]}" + (f"-{card + 1}" if card else "")


def main() -> None:
    """Writes them and says where."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    for folder in write(given.out, given.records):
        print(folder)


if __name__ == "__main__":
    main()
