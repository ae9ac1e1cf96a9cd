"""`gpulift reference build` over folders of results, and `reference show`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.machine.tables import reference_table
from gpulift.analysis.reference import SCHEMA, find_reference
from gpulift.ground import terminal
from gpulift.ground.errors import OK, USAGE
from tests import runs_made, sample
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

READ = "roof/device_memory/burst"
MACHINE, OTHER = "nvidia-h200", "nvidia-h100"
SHOWN = pytest.CaptureFixture[str]
COMMITTED = CHECKOUT / "results" / "reference"


def write_run(results: Path, card: str) -> str:
    """Three launches on this card that read at 4 TB/s."""
    context = sample.gpu_context(gpu={"card": card})
    cost = {"bytes": 4e9, "roof": "device_memory"}
    read = sample.arm("read", 1e-3, cost=cost, noise=0.0, launch_noise=0.0)
    folder = results / MACHINE / f"2026-11-21-{card}"
    made = sample.launches(3, "ceiling/device_memory", {"bytes": 4 << 30}, [read], context=context)
    sample.write(folder, made)
    return str(folder)


def build(*results: str) -> int:
    return cli.main(["reference", "build", *results])


def cards(root: Path) -> int:
    built = find_reference(root / "results", MACHINE)
    assert built is not None
    return built.measured[READ].cards


def test_all_runs_of_a_folder_count_and_cards_are_not_forgotten(root: Path, capfd: SHOWN) -> None:
    runs = [write_run(root / "results", card) for card in ("aaaaaaaa", "bbbbbbbb")]
    assert build(str(root / "results" / MACHINE)) == OK
    assert cards(root) == 2
    assert "1 measured entries, from up to 2 cards each" in capfd.readouterr().out
    assert build(runs[0]) == USAGE
    fewer = f"1 entries would rest on fewer cards than now, the first {READ}: 1 instead of 2"
    assert fewer in capfd.readouterr().err
    assert cards(root) == 2
    assert build(runs[0], "--out", str(root / "other.json")) == OK
    assert '"cards": 1' in (root / "other.json").read_text(encoding="utf-8")
    assert "1 measured entries, from one card\n" in capfd.readouterr().out


def test_a_run_with_all_cards_busy_is_no_reference(root: Path, capfd: SHOWN) -> None:
    write_run(root / "results", "aaaaaaaa")
    crowded = Path(write_run(root / "results", "bbbbbbbb"))
    sample.mark_crowded(crowded)
    assert build(str(root / "results" / MACHINE)) == OK
    assert cards(root) == 1
    for named in (crowded, crowded / "ceiling.device_memory.jsonl"):
        capfd.readouterr()
        assert build(str(named)) == USAGE
        assert "several GPUs were busy at once" in capfd.readouterr().err


def test_machines_without_a_gpu_are_no_cards(root: Path, capfd: SHOWN) -> None:
    folder = root / "results" / "cpu-amd-epyc-7b13" / "2026-11-21-abc1234"
    sample.write(folder, runs_made.without_gpu())
    assert build(str(folder)) == OK
    assert "measured entries, of machines with this processor\n" in capfd.readouterr().out


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """References of two cards, and of a model that has nothing but a datasheet."""
    folder = tmp_path_factory.mktemp("built")
    runs = [write_run(folder, card) for card in ("aaaaaaaa", "bbbbbbbb")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPULIFT_ROOT", str(folder))  # of which nothing is known yet
        assert build(*runs, "--out", str(folder / f"{MACHINE}.json")) == OK
    peak = {"kind": "datasheet", "roof": "power", "value": 700, "unit": "W", "meaning": "limit"}
    entry = {**peak, "source": "datasheet", "date": "2026-11-21"}
    document = {"schema": SCHEMA, "name": "NVIDIA H100", "date_means": "", "entries": [entry]}
    (folder / f"{OTHER}.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


@pytest.fixture
def known(root: Path, built: Path) -> Path:
    """A checkout with these, and no other."""
    folder = root / "results" / "reference"
    shutil.rmtree(folder)
    folder.mkdir()
    for file in built.glob("*.json"):
        shutil.copy(file, folder)
    return folder


def shown(capfd: SHOWN, *arguments: str) -> str:
    capfd.readouterr()
    assert cli.main(["reference", "show", *arguments]) == OK
    return capfd.readouterr().out


def test_a_machine_without_a_reference_is_shown_which_there_are(known: Path, capfd: SHOWN) -> None:
    told = shown(capfd)
    assert told.startswith("There is no reference of this machine, cpu-amd-epyc-7b13.\n")
    rows = {line.split()[0]: line.split()[-4:] for line in told.splitlines() if "nvidia-" in line}
    assert rows == {MACHINE: ["1", "2", "0", "0"], OTHER: ["0", "–", "0", "1"]}
    assert "./gpulift reference show MODEL has all entries" in told
    counted = {one["model"]: one for one in json.loads(shown(capfd, "--json"))["references"]}
    assert counted[MACHINE] == {
        **{"model": MACHINE, "name": "NVIDIA H200", "measured": 1, "cards": 2},
        **{"datasheet": 0, "published": 0},
    }


def test_a_machine_with_a_reference_is_shown_its_own(
    known: Path, monkeypatch: pytest.MonkeyPatch, capfd: SHOWN
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert "What is known of NVIDIA H200" in shown(capfd)


def test_nothing_that_is_known_is_cut_off(capfd: SHOWN) -> None:
    reference = find_reference(CHECKOUT / "results", MACHINE)
    assert reference is not None
    terminal.console().print(reference_table(reference))
    out = capfd.readouterr().out
    assert "…" not in out
    assert len(out.splitlines()) > 50


def records_of(text: str) -> set[str]:
    return set(re.findall(rf"gpulift:{MACHINE}/[0-9a-f]{{12}}", text))


@pytest.mark.parametrize(
    ("arguments", "sources"),
    [
        (["NVIDIA H200"], 1),
        ([MACHINE], 1),
        (["h200"], 1),
        (["h200", "--all"], 6),
        (["h200", "--entry", "Device_Memory"], 6),
    ],
)
def test_a_model_is_shown_with_its_sources(
    known: Path, capfd: SHOWN, arguments: list[str], sources: int
) -> None:
    told = shown(capfd, *arguments)
    assert "What is known of NVIDIA H200" in told
    assert "2 (6 launches)" in told
    written = (known / f"{MACHINE}.json").read_text(encoding="utf-8")
    assert len(records_of(told)) == sources
    assert records_of(told) <= records_of(written)
    cut = "and 5 more (2026-11-21)" in " ".join(told.split())
    assert (cut, "--all names all" in told) == (sources == 1, sources == 1)
    if len(arguments) == 1:
        assert json.loads(shown(capfd, *arguments, "--json")) == json.loads(written)


def test_one_entry_is_shown_alone(root: Path, capfd: SHOWN) -> None:
    shutil.copy(COMMITTED / f"{MACHINE}.json", root / "results/reference")
    one = (MACHINE, "--entry", "gemm/bf16")
    rows = [tuple(line.split()[:2]) for line in shown(capfd, *one).splitlines()]
    kinds = {"measured", "datasheet", "published"}
    entries = [row for row in rows if row and row[0] in kinds]
    assert {kind for kind, _ in entries} == kinds
    assert all("gemm/bf16" in name for _, name in entries)
    documents = json.loads(shown(capfd, *one, "--json"))["entries"]
    assert len(documents) == len(entries)
    assert all("gemm/bf16" in entry.get("check", entry.get("roof")) for entry in documents)


UNPUBLISHED = "No published figures: no dated source that states its conditions is known for"


@pytest.mark.parametrize(
    ("arguments", "words", "absent"),
    [
        (["h100"], ["datasheet (2026-11-21)", "Dates: datasheet: the day on which"], []),
        (["h100"], [f"{UNPUBLISHED} NVIDIA H100."], []),
        (["h200"], [], [UNPUBLISHED]),
        (["l40s"], [], [UNPUBLISHED]),
        (["l40s", "--entry", "power"], [], [UNPUBLISHED]),
        (
            ["5090", "--entry", "gemm/bf16", "--wide"],
            ["242 TFLOP/s", "matrix product; short; operands random normal", "(2026-01-12)"],
            [],
        ),
    ],
)
def test_what_is_told_of_dates_and_published_figures(
    known: Path, capfd: SHOWN, arguments: list[str], words: list[str], absent: list[str]
) -> None:
    for name in (MACHINE, "nvidia-l40s", "nvidia-geforce-rtx-5090"):
        shutil.copy(COMMITTED / f"{name}.json", known)
    told = " ".join(shown(capfd, *arguments).split())
    assert [one for one in words if one not in told] == []
    assert [one for one in absent if one in told] == []


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
def test_bad_names_are_one_line(
    known: Path, capfd: SHOWN, arguments: list[str], words: str
) -> None:
    capfd.readouterr()
    assert cli.main(["reference", *arguments]) == USAGE
    told = capfd.readouterr().err
    assert words in told
    assert told.count("\n") == 1
