"""Writes tests/data: `python -m tests.make_data`, once per schema version; never rewritten."""

from __future__ import annotations

from tests import runs_made, sample
from tests.conftest import DATA


def main() -> None:
    """A few records of every outcome and kind, of the newest schema version."""
    folder = DATA / "1.2"
    gpu = [one for one in runs_made.full_gpu() if one["technique"] == "launch/cuda_graph"]
    energies = [one for one in runs_made.full_gpu() if one["regime"] == "sustained"]
    sample.write(folder, [*gpu[:3], *runs_made.without_gpu()[3:], *runs_made.with_troubles()])
    sample.write(folder, energies[:3])
    sample.write(folder, runs_made.duet(count=2))


if __name__ == "__main__":
    main()
