"""`gpulift reference build` over folders of results."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.errors import OK, USAGE
from gpulift.reference.entries import find_reference
from tests import sample

READ = "roof/device_memory/burst"
MACHINE = "nvidia-h200"
SHOWN = pytest.CaptureFixture[str]


def write_run(results: Path, card: str) -> Path:
    """Three launches on this card that read at 4 TB/s."""
    context = copy.deepcopy(sample.GPU_CONTEXT)
    context["gpu"]["card"] = card
    cost = {"bytes": 4e9, "roof": "device_memory"}
    read = sample.arm("read", 1e-3, cost=cost, noise=0.0, launch_noise=0.0)
    folder = results / MACHINE / f"2026-11-21-{card}"
    made = sample.launches(3, "ceiling/device_memory", {"bytes": 4 << 30}, [read], context=context)
    sample.write(folder, made)
    return folder


def cards(root: Path) -> int:
    found = find_reference(root / "results", MACHINE)
    assert found is not None
    return found.measured[READ].cards


def test_all_runs_of_a_folder_count(root: Path, capfd: SHOWN) -> None:
    for card in ("aaaaaaaa", "bbbbbbbb"):
        write_run(root / "results", card)
    assert cli.main(["reference", "build", str(root / "results" / MACHINE)]) == OK
    assert cards(root) == 2
    assert "1 measured entries, from up to 2 cards each" in capfd.readouterr().out


def test_cards_are_not_forgotten(root: Path, capfd: SHOWN) -> None:
    runs = [str(write_run(root / "results", card)) for card in ("aaaaaaaa", "bbbbbbbb")]
    assert cli.main(["reference", "build", *runs]) == OK
    assert cli.main(["reference", "build", runs[0]]) == USAGE
    assert (
        f"1 entries would rest on fewer cards than now, the first {READ}: 1 instead of 2"
        in capfd.readouterr().err
    )
    assert cards(root) == 2
    other = root / "other.json"
    assert cli.main(["reference", "build", runs[0], "--out", str(other)]) == OK
    assert '"cards": 1' in other.read_text(encoding="utf-8")
