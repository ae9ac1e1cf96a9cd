"""`gpulift reference build` over folders of results."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.machine.tables import reference_table
from gpulift.analysis.reference import find_reference
from gpulift.ground import terminal
from gpulift.ground.errors import OK, USAGE
from tests import runs_made, sample
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

READ = "roof/device_memory/burst"
MACHINE = "nvidia-h200"
SHOWN = pytest.CaptureFixture[str]


def write_run(results: Path, card: str) -> Path:
    """Three launches on this card that read at 4 TB/s."""
    context = sample.gpu_context(gpu={"card": card})
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


def test_a_run_with_all_cards_busy_is_no_reference(root: Path, capfd: SHOWN) -> None:
    write_run(root / "results", "aaaaaaaa")
    crowded = write_run(root / "results", "bbbbbbbb")
    sample.mark_crowded(crowded)
    assert cli.main(["reference", "build", str(root / "results" / MACHINE)]) == OK
    assert cards(root) == 1
    for named in (crowded, crowded / "ceiling.device_memory.jsonl"):
        capfd.readouterr()
        assert cli.main(["reference", "build", str(named)]) == USAGE
        assert "several GPUs were busy at once" in capfd.readouterr().err


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


def test_one_card_and_no_card_are_not_called_cards(root: Path, capfd: SHOWN) -> None:
    write_run(root / "results", "aaaaaaaa")
    assert cli.main(["reference", "build", str(root / "results" / MACHINE)]) == OK
    assert "1 measured entries, from one card\n" in capfd.readouterr().out
    folder = root / "results" / "cpu-amd-epyc-7b13" / "2026-11-21-abc1234"
    sample.write(folder, runs_made.without_gpu())
    assert cli.main(["reference", "build", str(folder)]) == OK
    assert "measured entries, of machines with this processor\n" in capfd.readouterr().out


def known(root: Path) -> None:
    """A reference of two cards, one that has nothing but a datasheet, and no other."""
    for file in (root / "results" / "reference").iterdir():
        file.unlink()
    for card in ("aaaaaaaa", "bbbbbbbb"):
        write_run(root / "results", card)
    assert cli.main(["reference", "build", str(root / "results" / MACHINE)]) == OK
    peak = {"kind": "datasheet", "roof": "power", "value": 700, "unit": "W", "meaning": "limit"}
    entry = {**peak, "source": "datasheet", "date": "2026-11-21"}
    document = {"schema": "1.2", "name": "NVIDIA H100", "date_means": "", "entries": [entry]}
    file = root / "results" / "reference" / "nvidia-h100.json"
    file.write_text(json.dumps(document), encoding="utf-8")


def test_a_machine_without_a_reference_is_shown_which_there_are(root: Path, capfd: SHOWN) -> None:
    known(root)
    capfd.readouterr()
    assert cli.main(["reference", "show"]) == OK
    said = capfd.readouterr().out
    assert said.startswith("There is no reference of this machine, cpu-amd-epyc-7b13.\n")
    rows = {line.split()[0]: line.split()[-4:] for line in said.splitlines() if "nvidia-" in line}
    assert rows == {MACHINE: ["1", "2", "0", "0"], "nvidia-h100": ["0", "–", "0", "1"]}
    assert "./gpulift reference show MODEL has all entries" in said
    assert cli.main(["reference", "show", "--json"]) == OK
    counted = {one["model"]: one for one in json.loads(capfd.readouterr().out)["references"]}
    assert counted[MACHINE] == {
        **{"model": MACHINE, "name": "NVIDIA H200", "measured": 1, "cards": 2},
        **{"datasheet": 0, "published": 0},
    }


def test_a_machine_with_a_reference_is_shown_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: SHOWN
) -> None:
    known(root)
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    capfd.readouterr()
    assert cli.main(["reference", "show"]) == OK
    assert "What is known of NVIDIA H200" in capfd.readouterr().out


def test_nothing_that_is_known_is_cut_off(capfd: SHOWN) -> None:
    reference = find_reference(CHECKOUT / "results", MACHINE)
    assert reference is not None
    terminal.console().print(reference_table(reference))
    out = capfd.readouterr().out
    assert "…" not in out
    assert len(out.splitlines()) > 50


@pytest.mark.parametrize("name", ["NVIDIA H200", MACHINE, "h200"])
def test_a_model_is_shown_with_its_sources(root: Path, capfd: SHOWN, name: str) -> None:
    known(root)
    capfd.readouterr()
    assert cli.main(["reference", "show", name]) == OK
    said = capfd.readouterr().out
    assert "What is known of NVIDIA H200" in said
    assert f"gpulift:{MACHINE}/" in said
    assert "and 5 more (2026-11-21)" in " ".join(said.split())
    assert "--all names all" in said
    assert cli.main(["reference", "show", name, "--json"]) == OK
    file = root / "results" / "reference" / f"{MACHINE}.json"
    assert json.loads(capfd.readouterr().out) == json.loads(file.read_text(encoding="utf-8"))


def records_of(text: str) -> set[str]:
    return set(re.findall(rf"gpulift:{MACHINE}/[0-9a-f]{{12}}", text))


@pytest.mark.parametrize("asked", [["--all"], ["--entry", "Device_Memory"]])
def test_every_source_is_named_when_asked_for(root: Path, capfd: SHOWN, asked: list[str]) -> None:
    known(root)
    capfd.readouterr()
    assert cli.main(["reference", "show", MACHINE, *asked]) == OK
    said = capfd.readouterr().out
    written = (root / "results" / "reference" / f"{MACHINE}.json").read_text(encoding="utf-8")
    assert len(records_of(written)) == 6
    assert records_of(said) == records_of(written)
    assert "more" not in said
    assert "--all" not in said
    assert "(2026-11-21)" in said
    assert "2 (6 launches)" in said


def test_one_entry_is_shown_alone(root: Path, capfd: SHOWN) -> None:
    shutil.copy(CHECKOUT / "results" / "reference" / f"{MACHINE}.json", root / "results/reference")
    assert cli.main(["reference", "show", MACHINE, "--entry", "gemm/bf16"]) == OK
    rows = [line.split()[:2] for line in capfd.readouterr().out.splitlines()]
    kinds = ("measured", "datasheet", "published")
    shown = [tuple(row) for row in rows if row and row[0] in kinds]
    assert {kind for kind, _ in shown} == set(kinds)
    assert all("gemm/bf16" in name for _, name in shown)
    assert cli.main(["reference", "show", MACHINE, "--entry", "gemm/bf16", "--json"]) == OK
    entries = json.loads(capfd.readouterr().out)["entries"]
    assert len(entries) == len(shown)
    assert all("gemm/bf16" in entry.get("check", entry.get("roof")) for entry in entries)


def test_dates_stand_beside_what_a_datasheet_says(root: Path, capfd: SHOWN) -> None:
    known(root)
    capfd.readouterr()
    assert cli.main(["reference", "show", "h100"]) == OK
    said = capfd.readouterr().out
    assert "datasheet (2026-11-21)" in said
    assert "Dates: datasheet: the day on which" in said


def test_a_published_figure_says_what_was_done_with_what_and_for_how_long(
    root: Path, capfd: SHOWN
) -> None:
    name = "nvidia-geforce-rtx-5090.json"
    shutil.copy(CHECKOUT / "results" / "reference" / name, root / "results/reference" / name)
    assert cli.main(["reference", "show", "5090", "--entry", "gemm/bf16", "--wide"]) == OK
    said = " ".join(capfd.readouterr().out.split())
    assert "242 TFLOP/s" in said
    assert "matrix product; short; operands random normal" in said
    assert "(2026-01-12)" in said


def test_a_model_without_published_figures_says_so(root: Path, capfd: SHOWN) -> None:
    known(root)
    words = "No published figures: no dated source that states its conditions is known for"
    capfd.readouterr()
    assert cli.main(["reference", "show", "h100"]) == OK
    assert capfd.readouterr().out.endswith(f"{words} NVIDIA H100.\n")
    for file in ("nvidia-h200", "nvidia-l40s"):
        shutil.copy(CHECKOUT / "results" / "reference" / f"{file}.json", root / "results/reference")
    for arguments in (["h200"], ["l40s"], ["l40s", "--entry", "power"]):
        assert cli.main(["reference", "show", *arguments]) == OK
        assert words not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "h200", "--entry", "frob"], "no entry of NVIDIA H200 has 'frob' in its name"),
        (["show", "h200", "--entry", ""], "--entry is empty: name a part of a check or a roof"),
        (["show", "--entry", "gemm"], "no reference of this machine, cpu-amd-epyc-7b13: name a"),
        (["show", "b200"], "there is no reference of b200; known are nvidia-h100, nvidia-h200"),
        (["show", "cpu"], "there is no reference of cpu; known are nvidia-h100, nvidia-h200"),
        (["show", ""], "there is no reference of ''; known are"),
        (["show", "nvidia"], "nvidia is a part of nvidia-h100, nvidia-h200: name one"),
        ([], "name `reference show [MODEL]` or `reference build RESULTS...`"),
    ],
)
def test_bad_names_are_one_line(root: Path, capfd: SHOWN, arguments: list[str], words: str) -> None:
    known(root)
    capfd.readouterr()
    assert cli.main(["reference", *arguments]) == USAGE
    said = capfd.readouterr().err
    assert words in said
    assert said.count("\n") == 1
