"""Stands in for the gpulift-bench of a gate, in this process: build folders made of manifests.

The manifest of a technique says how slow the fake runs it: `log_time` by arm (a logarithm), and
`outcome` with a `reason` for a technique that is not measured. Noise is seeded by row and launch.
"""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpulift.engine import machine
from gpulift.engine.machine import CaseInfo, TechniqueInfo
from gpulift.ground.errors import INTERRUPTED
from gpulift.records.model import Context
from gpulift.records.parse import read_context
from tests import sample

Json = dict[str, Any]
TAG = "0123456789abcdef"
NOISE = 2e-4


def technique(
    name: str, arms: Sequence[str] = ("plain",), cases: Sequence[str] = ("n:1",), **more: Any
) -> Json:
    """A manifest; all its cases are quick."""
    return {
        "id": name,
        "abi_tag": TAG,
        "gpus": 1,
        "arms": list(arms),
        "cases": [{"id": case, "quick": True, "regime": "burst"} for case in cases],
        **more,
    }


def make_build(folder: Path, techniques: Sequence[Json], tag: str = TAG) -> Path:
    """A build folder with these techniques."""
    bench = folder / "gpulift-bench"
    _modules(folder / "modules", [{**one, "abi_tag": tag} for one in techniques])
    bench.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    bench.chmod(0o755)
    return folder


def _modules(folder: Path, manifests: Sequence[Json]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for one in manifests:
        stem = one["id"].replace("/", ".")
        (folder / f"{stem}.json").write_text(json.dumps(one), encoding="utf-8")
        (folder / f"{stem}.so").touch()


@dataclass
class FakeBench:
    """What tests change, and the calls that were made."""

    context: Json = field(default_factory=lambda: sample.GPU_CONTEXT)
    calls: list[list[str]] = field(default_factory=list)
    bias: float = 0.0  # log ratio that the second build of a duet gets for nothing
    noise: float = NOISE
    felt: float = 1.0  # of the extra work that is planted, how much the clock sees
    exit_codes: dict[int, int] = field(default_factory=dict)  # by number of the call
    unlike: Callable[[str, int], bool] = lambda name, launch: False  # the head is not held
    slowed: Callable[[str, int], bool] = lambda name, launch: False  # by the hardware
    contexts: dict[str, Json] = field(default_factory=dict)  # of builds that have their own
    on_call: Callable[[], None] = lambda: None
    drop: Callable[[str, int], bool] = lambda name, launch: False
    row_launch_s: float = 0.0  # what a launch of a row takes of `now_s`
    now_s: float = 0.0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Takes the place of gpulift-bench."""
        monkeypatch.setattr(machine, "measure", self.measure)
        monkeypatch.setattr(machine, "catalogue", self.catalogue)
        monkeypatch.setattr(machine, "describe", self.describe)

    def install_in(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same in an empty checkout, which becomes the current folder."""
        self.install(monkeypatch)
        monkeypatch.setenv("GPULIFT_ROOT", str(folder))
        monkeypatch.delenv("GPULIFT_BUILD", raising=False)
        monkeypatch.chdir(folder)

    def describe(self, bench: Path, gpu: int | None = None) -> Context:
        """The machine."""
        return read_context(self.contexts.get(bench.parent.name, self.context), "fake")

    def catalogue(self, bench: Path, more_modules: Sequence[Path] = ()) -> list[TechniqueInfo]:
        """From the manifests of the build."""
        return [
            TechniqueInfo(
                id=one["id"],
                question="",
                gpus=one.get("gpus", 1),
                ceiling=False,
                arms=tuple(one.get("arms", ())),
                cases=tuple(CaseInfo(**case) for case in one.get("cases", ())),
                python=tuple(one.get("python", ())),
                unavailable=one.get("unavailable", ""),
                remedy=one.get("remedy", ""),
                launch_bound="launch" in one["id"],
            )
            for one in _manifests(bench.parent / "modules")
        ]

    def measure(self, bench: Path, flags: Sequence[str], limit_s: float = math.inf) -> int:
        """Writes the records of the launches, as many as end within the limit."""
        self.calls.append([str(bench), *flags])
        self.on_call()
        code = self.exit_codes.get(len(self.calls))
        if code is not None:
            return code
        given = _flags(flags)
        folder = Path(given["records"])
        assert not read_all(folder), "gpulift-bench refuses records of another number of launches"
        records = self._duet(given) if "head" in given else self._technique(bench, given)
        finished = self._in_time(records, limit_s)
        sample.write(folder, finished)
        if len(finished) < len(records):
            return INTERRUPTED
        return 1 if any(r["outcome"] in ("failed", "error") for r in records) else 0

    def _in_time(self, records: list[Json], limit_s: float) -> list[Json]:
        """Launch by launch of all rows, as gpulift-bench measures."""
        ends_s = self.now_s + limit_s
        finished = []
        for record in sorted(records, key=lambda record: int(record["launch"])):
            if self.now_s + self.row_launch_s > ends_s:
                self.now_s = ends_s
                break
            self.now_s += self.row_launch_s
            finished.append(record)
        return finished

    def _duet(self, given: dict[str, str]) -> list[Json]:
        bases = {one["id"]: one for one in _manifests(Path(given["base"]))}
        made = []
        for head in _manifests(Path(given["head"])):
            for case, arm in _selected(head, given):
                base = bases.get(head["id"], {"outcome": "error", "reason": "no module"})
                slower = self.bias + self._planted(given)
                logs = {
                    f"base:{arm}": base.get("log_time", {}).get(arm, 0.0),
                    f"head:{arm}": head.get("log_time", {}).get(arm, 0.0) + slower,
                }
                broken = next((one for one in (head, base) if "outcome" in one), head)
                made += self._launches(given, broken, case, logs, kind="duet", arm=arm)
        return made

    def _planted(self, given: dict[str, str]) -> float:
        return math.log1p(self.felt * float(given.get("plant", "0")))

    def _technique(self, bench: Path, given: dict[str, str]) -> list[Json]:
        made = []
        for one in _manifests(Path(given["modules"])):
            for case in dict.fromkeys(case for case, _ in _selected(one, given)):
                slower = self._planted(given)
                logs = {arm: one.get("log_time", {}).get(arm, 0.0) + slower for arm in one["arms"]}
                made += self._launches(given, one, case, logs)
        return made

    def _launches(
        self,
        given: dict[str, str],
        manifest: Json,
        case_id: str,
        logs: dict[str, float],
        **top: Any,
    ) -> list[Json]:
        case = dict([case_id.split(":")]) if case_id else {}
        made = []
        for launch in range(int(given["launches"])):
            if self.drop(manifest["id"], launch):
                continue
            common: Json = {"context": self.context, "launch": launch, **top}
            if self.slowed(manifest["id"], launch):
                why = "failed", "the hardware slowed itself down in every block"
                common["discarded_blocks"] = 9
                made.append(sample.unmeasured(manifest["id"], case, *why, **common))
                continue
            if "outcome" in manifest:
                why = manifest["outcome"], manifest["reason"]
                if "remedy" in manifest:
                    common["remedy"] = manifest["remedy"]
                made.append(sample.unmeasured(manifest["id"], case, *why, **common))
                if manifest["outcome"] == "error":
                    break  # gpulift-bench gives up a case that crashed
                continue
            if "plant" in given:
                common["notes"] = {"planted": given["plant"]}
            made.append(self._record(manifest, case, logs, int(given["seed"]), common))
        return made

    def _record(
        self, manifest: Json, case: Json, logs: dict[str, float], seed: int, common: Json
    ) -> Json:
        name, noise = manifest["id"], manifest.get("noise", {})  # of an arm, else this object's
        salt = random.Random(f"{name}{case}{sorted(logs)}{seed}{common['launch']}{len(self.calls)}")
        arms = [
            sample.arm(
                arm,
                1e-3 * math.exp(log + salt.gauss(0, noise.get(arm.rpartition(":")[2], self.noise))),
                noise=0.0,
                launch_noise=0.0,
                held=not (arm.startswith("head:") and self.unlike(name, common["launch"])),
            )
            for arm, log in logs.items()
        ]
        return sample.record(name, case, arms, seed=seed, blocks=1, **common)


def read_all(folder: Path) -> list[Json]:
    """The raw records of a folder and those below it."""
    lines = [line for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def _manifests(folder: Path) -> list[Json]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def _flags(flags: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for index, flag in enumerate(flags):
        if flag.startswith("--"):
            name, equals, value = flag.removeprefix("--").partition("=")
            given[name] = value if equals else flags[index + 1]
    return given


def rows_in(file: Path) -> list[tuple[str, str, str]]:
    """Technique, case and arm of each line of what --rows names."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [(technique, case, arm) for technique, case, arm in (one.split("\t") for one in lines)]


def _selected(manifest: Json, given: dict[str, str]) -> list[tuple[str, str]]:
    rows = rows_in(Path(given["rows"]))
    return [
        (case["id"], arm)
        for case in manifest.get("cases", ())
        for arm in manifest["arms"]
        if (manifest["id"], case["id"], arm) in rows
    ]
