"""Synthetic records: they are what a reader expects, and nothing takes them for measurements."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gpulift.analysis.claims import judge
from gpulift.analysis.ledger import read_ledger
from gpulift.analysis.machine.reference_build import build
from gpulift.cli import main
from gpulift.commands.check import check_results
from gpulift.commands.claims import runs_by_model
from gpulift.ground.errors import OK, USAGE, GpuliftError
from gpulift.records.read import Run, read_run
from tests import many_records

pytestmark = pytest.mark.world

SHAPE = many_records.Shape(models=2, cards=2, launches=3)
COUNT = 800  # more than the committed cases have launches for: some have variants


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return many_records.write(tmp_path_factory.mktemp("many"), COUNT, SHAPE)


@pytest.fixture(scope="module")
def runs(folders: list[Path]) -> list[Run]:
    return [read_run(folder) for folder in folders]


def test_as_many_as_asked_for_of_several_models_and_cards(runs: list[Run]) -> None:
    records = [record for run in runs for record in run.records]
    assert len({record.id for record in records}) == COUNT
    cards = {r.context.gpu.card for r in records if r.context.gpu}
    assert (len({r.context.slug for r in records}), len(cards)) == (2, 4)
    assert not [warning for run in runs for warning in run.warnings]


def test_a_line_is_about_as_long_as_a_real_one(folders: list[Path]) -> None:
    real = [len(json.dumps(r.raw)) for case in many_records.committed() for r in case]
    made = sum(f.stat().st_size for folder in folders for f in folder.glob("*.jsonl")) / COUNT
    assert made == pytest.approx(sum(real) / len(real), rel=0.25)


def test_the_same_seed_gives_the_same_records(folders: list[Path], tmp_path: Path) -> None:
    again = many_records.write(tmp_path, COUNT, SHAPE)
    for one, other in zip(folders, again, strict=True):
        file = "ceiling.gemm.jsonl"
        assert (one / file).read_bytes() == (other / file).read_bytes()


def test_each_says_that_it_is_synthetic(runs: list[Run]) -> None:
    assert all(record.synthetic for run in runs for record in run.records)
    assert not any(record.synthetic for case in many_records.committed() for record in case)


def test_no_reference_is_built_from_them(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="synthetic test data") as refused:
        build([read_run(folders[0])])
    assert refused.value.exit_code == USAGE
    out = tmp_path / "reference.json"
    assert main(["reference", "build", str(folders[0]), "--out", str(out)]) == USAGE
    assert not out.exists()


def test_they_decide_no_claim(folders: list[Path], runs: list[Run]) -> None:
    with pytest.raises(GpuliftError, match="synthetic test data"):
        runs_by_model([folders[0].parent], read_ledger())
    assert not any(one.records for one in judge(read_ledger(), list(runs[0].records)))


def test_committed_ones_are_complained_of(folders: list[Path], tmp_path: Path) -> None:
    placed = tmp_path / "results" / folders[0].parent.name / folders[0].name
    placed.mkdir(parents=True)
    shutil.copy(folders[0] / "ceiling.host_link.jsonl", placed)
    found = check_results([tmp_path / "results"])
    assert len(found.complaints) == found.records > 0
    assert all("is synthetic test data" in one for one in found.complaints)


def test_a_report_of_them_says_what_they_are(folders: list[Path], tmp_path: Path) -> None:
    records = str(folders[0] / "launch.cuda_graph.jsonl")
    assert main(["report", records, "--out", str(tmp_path)]) == OK
    for name in ("index.html", "report.md"):
        assert "synthetic test data" in (tmp_path / name).read_text(encoding="utf-8")
