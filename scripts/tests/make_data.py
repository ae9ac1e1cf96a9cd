"""Writes tests/data: `python -m tests.make_data`, once per schema version; never rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import runs_made, sample
from tests.conftest import DATA


def main() -> None:
    """A few records of every outcome and kind, of the newest schema version."""
    folder = DATA / "1.9"
    gpu = [one for one in runs_made.full_gpu() if one["technique"] == "launch/cuda_graph"]
    energies = [one for one in runs_made.full_gpu() if one["regime"] == "sustained"]
    _write(folder, [*gpu[:3], *runs_made.without_gpu()[3:], *runs_made.with_troubles()])
    _write(folder, energies[:3])
    _write(folder, runs_made.duet(count=2))
    cost = {"items": 8192.0, "item": "token"}
    metrics = {"peak_allocated_bytes": 3_221_225_472, "joules_per_step": 12.5}
    arms = [sample.arm(name, 1e-1, cost=cost, metrics=metrics) for name in ("eager", "graph")]
    _write(folder, sample.launches(2, "training/step", {"batch": 8}, arms))
    _write(folder, runs_made.of_ranks_and_disks())


def _write(folder: Path, records: list[Any]) -> None:
    for one in records:
        context = one["context"]
        known = {"id": "0badcafe", "id_of": "machine_id" if "gpu" in context else "boot_id"}
        one["context"] = {**context, "host": {**context["host"], **known}}
    sample.write(folder, records)


if __name__ == "__main__":
    main()
