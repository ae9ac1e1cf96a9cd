"""Stands in for gpulift-bench in duets of one build with itself."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpulift.engine import machine
from gpulift.engine.machine import CaseInfo, TechniqueInfo
from gpulift.gate.evidence import Row
from gpulift.records.model import Context
from gpulift.records.parse import read_context
from tests import sample
from tests.fake_gate import rows_in

Json = dict[str, Any]
ROWS = (
    Row("ceiling/memory", "n:1", "copy"),
    Row("ceiling/memory", "n:1", "read"),
    Row("launch/empty", "n:1", "plain"),
)


@dataclass
class FakeDuets:
    """What tests change, and the calls that were made."""

    context: Json = field(default_factory=lambda: sample.GPU_CONTEXT)
    noise: float = 2e-4  # from launch to launch
    blind: frozenset[str] = frozenset()  # rows in which nothing planted shows
    bias: dict[str, float] = field(default_factory=dict)  # log ratio for nothing, by row
    broken: dict[str, tuple[str, str]] = field(default_factory=dict)  # outcome and reason by row
    exit_codes: dict[int, int] = field(default_factory=dict)  # by number of the call, from 1
    note: str = ""  # instead of the slow-down as measured
    on_call: Callable[[int], None] = lambda number: None
    calls: list[dict[str, str]] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Takes the place of gpulift-bench."""
        monkeypatch.setattr(machine, "measure", self.measure)
        monkeypatch.setattr(machine, "catalogue", self.catalogue)
        monkeypatch.setattr(machine, "describe", self.describe)

    def describe(self, bench: Path, gpu: int | None = None) -> Context:
        """The machine."""
        return read_context(self.context, "fake")

    def catalogue(self, bench: Path, more_modules: Sequence[Path] = ()) -> list[TechniqueInfo]:
        """The techniques of ROWS, and one that has no quick case."""
        arms: dict[str, list[str]] = {}
        for row in ROWS:
            arms.setdefault(row.technique, []).append(row.arm)
        quick, slow = CaseInfo("n:1", True, "burst"), CaseInfo("n:2", False, "burst")
        return [
            TechniqueInfo(name, "", True, False, tuple(names), (quick, slow))
            for name, names in arms.items()
        ]

    def measure(self, bench: Path, flags: Sequence[str]) -> int:
        """Writes the records of the launches."""
        given = _flags(flags)
        self.calls.append(given)
        self.on_call(len(self.calls))
        code = self.exit_codes.get(len(self.calls))
        if code is not None:
            return code
        records = [one for row in ROWS for one in self._launches(row, given)]
        sample.write(Path(given["records"]), records)
        return int(any(one["outcome"] == "error" for one in records))

    def _launches(self, row: Row, given: dict[str, str]) -> list[Json]:
        if (row.technique, row.case_id, row.arm) not in rows_in(Path(given["rows"])):
            return []
        case = dict([row.case_id.split(":")])
        seed = int(given["seed"])
        common: Json = {"context": self.context, "kind": "duet", "arm": row.arm}
        if row.id in self.broken:
            return [sample.unmeasured(row.technique, case, *self.broken[row.id], **common)]
        made = []
        for launch in range(int(given["launches"])):
            salt = random.Random(f"{row.id} {seed} {launch}")
            plant = float(given.get("plant", 0))
            notes = {"planted": self.note or f"{plant * 1.02:.6f}"} if plant else {}
            log = salt.gauss(0, self.noise) + self.bias.get(row.id, 0.0)
            log += 0.0 if row.id in self.blind else math.log1p(plant)
            held = row.technique.startswith("ceiling/")
            arms = [
                sample.arm(
                    f"{side}:{row.arm}",
                    1e-3 * math.exp(value),
                    noise=0.0,
                    launch_noise=0.0,
                    held=held,
                )
                for side, value in (("base", 0.0), ("head", log))
            ]
            more = {"blocks": 2, "seed": seed, "notes": notes, **common}
            made.append(sample.record(row.technique, case, arms, launch, **more))
        return made


def _flags(flags: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    rest = [flag for flag in flags if flag != "--quick"]
    while rest:
        name, equals, value = rest.pop(0).removeprefix("--").partition("=")
        given[name] = value if equals else rest.pop(0)
    return given
