"""Submitting a run: what is printed of a good one, and every way in which one is not good."""

from __future__ import annotations

import getpass
import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.ground.errors import FAILED, OK, USAGE
from tests import runs_made, sample
from tests.analysis.test_neighbours import measured

pytestmark = pytest.mark.world

RUN = "results/nvidia-h200/2026-11-21-abc1234"
SHOWN = pytest.CaptureFixture[str]


def made(
    root: Path,
    records: list[sample.Json],
    publish: bool = True,
    folder: str = RUN,
    **state: Any,
) -> Path:
    """A run in a checkout, as `run` and then `check --compress` leave it."""
    run = sample.write(root / folder, records)
    document = {"machine": "nvidia-h200", "options": {}, "state": "complete", **state}
    (run / "run.json").write_text(json.dumps(document), encoding="utf-8")
    if publish:
        cli.main(["check", "--compress", "--unfinished", str(run)])
    return run


def contents(above: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in above.rglob("*") if file.is_file()}


def test_a_good_run_gives_title_text_and_files_and_nothing_is_written(
    root: Path, capfd: SHOWN
) -> None:
    run = made(root, runs_made.full_gpu())
    (run / "notes.txt").write_text("mine", encoding="utf-8")
    before = contents(root)
    capfd.readouterr()
    assert cli.main(["check", "--pull-request", str(run)]) == OK
    assert contents(root) == before
    said = capfd.readouterr()
    assert said.out.startswith("Title: Add records of NVIDIA H200, 2026-11-21-abc1234\n\nText:\n")
    for words in (" techniques, ", "driver ", "commit abc1234", "3 launches or more of each case"):
        assert words in said.out
    files = said.out.split("Files:\n")[1].split()
    assert set(files) == {f"{RUN}/{file.name}" for file in run.iterdir()} - {f"{RUN}/notes.txt"}
    assert said.err == f"gpulift: {run / 'notes.txt'}: is no part of a run: leave it out\n"


def test_what_qualify_said_is_in_the_text(root: Path, capfd: SHOWN) -> None:
    run = made(root, runs_made.full_gpu())
    kept = {"coverage": "3 of 4 checks judged", "checks": []}
    (run / "qualification.json").write_text(json.dumps(kept), encoding="utf-8")
    assert cli.main(["check", "--pull-request", str(run)]) == OK
    said = capfd.readouterr().out
    assert "- qualify: 3 of 4 checks judged" in said
    assert said.rstrip().endswith("qualification.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["context"]["build"].update(dirty=True), "built from uncommitted changes"),
        (lambda r: r["notes"].update(uuid="x"), "notes.uuid may tell whose machine it is"),
        (lambda r: r["notes"].update(board="1323021012345"), "looks like a serial number"),
        (lambda r: r["context"]["gpu"].update(serial=7), "gpu.serial may tell whose machine it is"),
        (lambda r: r["notes"].update(said="on whale-7 today"), "this host's name, whale-7"),
        (lambda r: r["notes"].update(said="by jonah himself"), "the name of this account, jonah"),
        (lambda r: r["notes"].update(said="whale-70, jonahs"), ""),
        (lambda r: r["context"]["options"].update(synthetic=True), "is synthetic test data"),
    ],
)
def test_what_is_wrong_in_a_record(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: SHOWN,
    change: Callable[[sample.Json], Any],
    words: str,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "whale-7.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "jonah")
    records = json.loads(json.dumps(runs_made.full_gpu()))
    for one in records:
        one.setdefault("notes", {})
        change(one)
    run = made(root, records)
    capfd.readouterr()
    assert cli.main(["check", "--pull-request", str(run)]) == (FAILED if words else OK)
    said = capfd.readouterr()
    assert words in said.err
    assert ("Title:" in said.out) == (not words)


def test_names_that_many_have_are_no_secret(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: SHOWN
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    monkeypatch.setattr(getpass, "getuser", nobody)
    records = runs_made.full_gpu()
    records[0]["notes"] = {"said": "localhost"}
    assert cli.main(["check", "--pull-request", str(made(root, records))]) == OK
    capfd.readouterr()


FEW = [one for one in runs_made.full_gpu() if one["launch"] < 2]
SKIPS = [one for one in runs_made.without_gpu() if one["outcome"] == "skipped"]
ON_A_CPU = "results/cpu-amd-epyc-7b13/2026-11-21-abc1234"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"state": "running"}, "the run is not finished, by its run.json"),
        ({"state": "complete", "options": {"together": 2}}, "several GPUs were busy at once"),
        ({"options": {"scratch": "/mnt/disk"}}, "run.json: options.scratch looks like a path"),
        (
            {"options": {"modules": "bench.mine-1a2b3c4d"}},
            "cannot be submitted: what `run` or `qualify` measured can",
        ),
        ({"publish": False, "folder": "a b"}, "./gpulift check --compress '{run}'\n"),
        ({"records": FEW}, "fewer than 3 launches of ceiling/"),
        ({"records": FEW}, "with --launches 3 or more"),
        ({"records": SKIPS, "folder": ON_A_CPU}, "nothing in it was measured"),
    ],
)
def test_what_is_wrong_with_a_run(
    root: Path, capfd: SHOWN, state: dict[str, Any], words: str
) -> None:
    run = made(root, **{"records": runs_made.full_gpu(), **state})
    capfd.readouterr()
    assert cli.main(["check", "--pull-request", str(run)]) == FAILED
    assert words.format(run=run) in capfd.readouterr().err


def test_a_run_that_nothing_calls_finished_is_not(root: Path, capfd: SHOWN) -> None:
    run = made(root, runs_made.full_gpu())
    (run / "run.json").unlink()
    assert cli.main(["check", "--pull-request", str(run)]) == FAILED
    assert "not finished, has no run.json" in capfd.readouterr().err


def test_a_run_beside_one_on_another_card_of_its_host_is_measured_again(
    root: Path, capfd: SHOWN
) -> None:
    beside = {f"{RUN}-{number}": f"c{number}" for number in (2, 3)}
    for folder, card in {**beside, RUN: "c1"}.items():
        runs = [{**measured(card, 40.0 * one), "launch": one} for one in range(3)]
        run = made(root, runs, folder=folder)
    capfd.readouterr()
    assert cli.main(["check", "--pull-request", str(run)]) == FAILED
    said = f"{run}: 3 records beside runs on 2 other cards: measure one card alone"
    assert said in capfd.readouterr().err
    assert cli.main(["check", str(root / "results")]) == OK
    told = capfd.readouterr().out
    assert (
        "3 runs beside a run on another card of the host: nvidia-h200/2026-11-21-abc1234," in told
    )


def test_what_others_kept_busy_is_told(root: Path, capfd: SHOWN) -> None:
    records = runs_made.full_gpu()
    records[0]["host_load"] |= {"other_cores": 4.0, "stolen_cores": 0.5}
    run = made(root, records)
    capfd.readouterr()
    assert cli.main(["check", "--pull-request", str(run)]) == OK
    said = capfd.readouterr().out
    assert "- 1 record while others kept 4.5 of 16 cores busy\n" in said, said
    assert cli.main(["check", str(root / "results")]) == OK
    told = "1 run while others kept a core or more busy: nvidia-h200/2026-11-21-abc1234\n"
    assert told in capfd.readouterr().out


def test_a_quick_run_has_one_launch_of_what_is_long(root: Path, capfd: SHOWN) -> None:
    records = [{**one, "quick": True, "launches": 3} for one in runs_made.full_gpu()]
    longest = records[-1]["technique"]
    kept = [one for one in records if one["launch"] == 0 or one["technique"] != longest]
    assert len(kept) < len(records)
    run = made(root, kept)
    capfd.readouterr()
    assert cli.main(["check", "--pull-request", str(run)]) == OK
    assert "of each case, one of those that take long, and" in capfd.readouterr().out


def test_what_is_no_run_is_refused(root: Path, tmp_path: Path, capfd: SHOWN) -> None:
    file = tmp_path / "a.b.jsonl"
    file.write_text("{}\n", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "nothing", file):
        assert cli.main(["check", "--pull-request", str(place)]) == USAGE
        assert "there are no records" in capfd.readouterr().err


def test_a_run_elsewhere_has_its_whole_names(root: Path, tmp_path: Path, capfd: SHOWN) -> None:
    run = made(root, runs_made.full_gpu())
    elsewhere = tmp_path / "elsewhere" / "nvidia-h200" / run.name
    shutil.copytree(run, elsewhere)
    capfd.readouterr()
    assert cli.main(["check", "--pull-request", str(elsewhere)]) == OK
    assert str(elsewhere / "run.json") in capfd.readouterr().out
