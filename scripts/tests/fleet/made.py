"""Folders of fleets as `gpulift fleet` fills them, made without any node.

`python -m tests.fleet.made FOLDER NODES CARDS` makes a large one, whose nodes have the verdicts of
a committed run each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from gpulift.fleet.kept import SCHEMA
from tests import sample
from tests.conftest import CHECKOUT

Json = dict[str, Any]

RUN = CHECKOUT / "results" / "nvidia-h200" / "2026-11-27-da52da4-3"
MEMORY, PRODUCT = "roof/device_memory/burst", "roof/gemm/bf16/burst"
RACK, GROUP, ROUNDS = 40, 8, 4  # nodes of a rack and of a group, and of how many pairs each is


def check(id: str, value: float | None = None, verdict: str = "pass", **other: Any) -> Json:
    """A row of qualification.json; a rate has an interval of 0.1 % over three launches."""
    made: Json = {"id": id, "verdict": verdict, "reason": "", "remedy": "", "unit": "B/s", **other}
    if value is not None:
        ends = {"low": value / 1.001, "high": value * 1.001}
        made["estimate"] = {"value": value, **ends, "launches": 3, "confidence": 0.95}
    return made


def node(
    folder: Path, name: str, checks: Sequence[Json], code: int | None = 0, card: str = ""
) -> Path:
    """A node with a card, or another card of it."""
    place = folder / "nodes" / name
    results = place / "results" / card
    results.mkdir(parents=True, exist_ok=True)
    document = {"run": "nvidia-h200/x", "checks": list(checks)}
    (results / "qualification.json").write_text(json.dumps(document), "utf-8")
    (place / "log.txt").write_text("gpulift: measuring\n", "utf-8")
    if code is not None:
        (place / "exit_code").write_text(f"{code}\n", "utf-8")
    return place


def meeting(
    folder: Path, kind: str, nodes: Sequence[str], rate: float | None, code: int = 0
) -> Path:
    """A pair or group whose all-reduce of 64 MiB has this bus bandwidth, or that has no record."""
    place = folder / kind / "+".join(nodes)
    (place / "results").mkdir(parents=True)
    (place / "nodes.txt").write_text("".join(f"{one}\n" for one in nodes), "utf-8")
    (place / "exit_code").write_text(f"{code}\n", "utf-8")
    if rate is not None:
        size = 1 << 26
        cost = {"bytes": size, "roof": "gpu_link"}
        arm = sample.arm("all_reduce", size / rate, cost=cost, noise=0.0, launch_noise=0.0)
        made = sample.launches(3, "ceiling/collectives", {"nodes": 2, "bytes": size}, [arm])
        sample.write(place / "results", made)
    return place


def fleet(folder: Path, nodes: Iterable[str], labels: Mapping[str, str] | None = None) -> Path:
    """What is expected there."""
    told = {"scheduler": "slurm", "nodes": list(nodes), "labels": labels or {}, "schema": SCHEMA}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fleet.json").write_text(json.dumps(told), "utf-8")
    return folder


def large(folder: Path, count: int, cards: int) -> Path:
    """Nodes with pairs and groups, a few of them slow, in racks."""
    names = [f"node{number:05}" for number in range(count)]
    fleet(folder, names, {name: f"rack{i // RACK:03}" for i, name in enumerate(names)})
    random = np.random.default_rng(1)
    base = json.loads((RUN / "qualification.json").read_bytes())
    for number, name in enumerate(names):
        for card in range(cards):
            drawn = deepcopy(base["checks"])
            for one in drawn:
                if one["id"].startswith("roof/") and one["estimate"]:
                    slow = 0.93 if number % 1000 == 7 and card == 0 else 1
                    factor = slow * float(np.exp(0.002 * random.standard_normal()))
                    for key in ("value", "low", "high"):
                        one["estimate"][key] *= factor
            node(folder, name, drawn, card=f"gpu{card}" if cards > 1 else "")
    even, odd = names[::2], names[1::2]
    turned = (odd[number:] + odd[:number] for number in range(ROUNDS))
    pairs = [pair for others in turned for pair in zip(even, others, strict=False)]
    grouped = [names[start : start + GROUP] for start in range(0, count, GROUP)]
    made = meeting(folder / "of all", "pairs", ["first"], 40e9)
    records = {file.name: file.read_bytes() for file in (made / "results").iterdir()}
    for kind, groups in (("pairs", pairs), ("groups", grouped)):
        for group in groups:
            place = meeting(folder, kind, list(group), None)
            for file, content in records.items():
                (place / "results" / file).write_bytes(content)
    return folder


if __name__ == "__main__":
    large(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
