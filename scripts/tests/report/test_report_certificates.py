"""False alarms and detection rates: the certificate in the report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from gpulift import cli
from gpulift.analysis.machine.saved import health_of
from gpulift.gate.certificate import (
    Alarm,
    Certificate,
    Detection,
    RowError,
    UnchangedRow,
    file_of,
    sentence,
)
from gpulift.records.read import read_run
from gpulift.report import page, plots
from proof.certificate import issue, write_certificate
from tests import runs_made, sample
from tests.figures import analysed, written
from tests.report.test_report import Page, pages, summary
from tests.trials_made import ROWS, planted, unchanged

pytestmark = pytest.mark.world

NASTY = '<img src=x onerror="alert(1)"> a|b'


@pytest.fixture
def made() -> Certificate:
    trials = [unchanged(number) for number in range(3)]
    sizes = dict(zip(ROWS, (0.002, 0.005), strict=True))
    return issue([*trials, planted(3, sizes, blind=ROWS), planted(4, {ROWS[1]: 0.01})])


@pytest.fixture
def both(tmp_path: Path) -> Callable[[Certificate], tuple[Page, str]]:
    """Writes the report of an H200 with this certificate: the page and its twin."""

    def write(certificate: Certificate) -> tuple[Page, str]:
        write_certificate(certificate, file_of(tmp_path, "nvidia-h200"))
        out = tmp_path / "report"
        page.write(analysed([summary(runs_made.full_gpu())], tmp_path), out)
        return Page(written(out)), (out / "report.md").read_text("utf-8")

    return write


Both = Callable[[Certificate], tuple[Page, str]]


def texts(parts: tuple[Page, str]) -> tuple[str, str]:
    return parts[0].text, parts[1]


def test_every_figure_of_the_certificate_is_shown(both: Both, made: Certificate) -> None:
    for text in texts(both(made)):
        assert sentence(made) in text
        for words in ("63.16 %", "launches or host"):
            assert words in text
        assert "0.5 % was missed, 1 % found" in text
        assert "1a2b3c4d" in text
        assert "not citable" not in text


def test_floors_name_their_rows(both: Both, made: Certificate) -> None:
    _, twin = both(made)
    assert f"| {ROWS[1]} | 1 % | 0.5 % was missed, 1 % found |" in twin


def test_rows_that_suites_left_inconclusive_are_named(both: Both, made: Certificate) -> None:
    noisy = UnchangedRow(NASTY, suites=3, inconclusive=2)
    _, twin = both(replace(made, unchanged=(noisy, UnchangedRow(ROWS[0], 3, 1))))
    (row,) = [line for line in twin.splitlines() if line.endswith(" | 2 of 3 |")]
    assert "onerror" in row
    assert " | 1 of 3 |" not in twin
    for text in texts(both(made)):
        assert "left inconclusive" not in text


def test_the_curve_says_what_was_found(both: Both, tmp_path: Path, made: Certificate) -> None:
    _, twin = both(made)
    (alt,) = re.findall(r"!\[(Planted[^]]*)\]\(figures/detection-0\.svg\)", twin)
    assert "bound by GPU, 0.2 % in 0 of 1; bound by launches or host, 0.5 % in 0 of 1" in alt
    assert (tmp_path / "report/figures/detection-0.svg").is_file()
    html = written(tmp_path / "report")
    assert f'aria-label="{alt}"' in html


def test_the_curve_draws_share_and_bound() -> None:
    lines = [
        Detection(0.005, "GPU", 4, 1, 0.01, 0.005, 0.005, 0.005),
        Detection(0.01, "GPU", 4, 4, 0.47, 0.01, 0.01, 0.01),
        Detection(0.01, "launches or host", 2, 1, 0.03, 0.01, 0.01, 0.01),
    ]
    (axes,) = plots.detection(lines).axes
    drawn = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    points = [np.asarray(one.lines[0].get_xydata()) for one in drawn]
    assert [list(one[:, 1]) for one in points] == [[25, 100], [50]]
    lower_ends = np.asarray(drawn[0].lines[1][0].get_ydata())
    assert list(lower_ends) == [1, 47]
    assert points[0][1, 0] < points[1][0, 0]
    assert axes.get_xlim()[0] < 0.5 < 1.1 < axes.get_xlim()[1]


def test_false_alarms_are_listed_and_errors_counted(both: Both, made: Certificate) -> None:
    alarm = Alarm("0123456789ab", ROWS[0], "improved", -0.004)
    suites = replace(made.aa, alarms=1)
    error = RowError("0123456789ab", ROWS[1], "error: ended with signal SIGSEGV")
    html, twin = both(replace(made, aa=suites, alarms=(alarm,), errors=(error,)))
    assert f"false alarm in {ROWS[0]}: improved, -0.4 % (trial `0123456789ab`)" in twin
    assert "1 rows of trials could not be measured" in twin
    assert "SIGSEGV" in html.text
    assert "0123456789ab" in html.text


def test_one_that_is_not_citable_or_of_another_method_is_marked(
    both: Both, tmp_path: Path, made: Certificate
) -> None:
    doubtful = replace(made, citable=False, caveat="built from uncommitted changes", method="0")
    _, twin = both(doubtful)
    html = written(tmp_path / "report")
    for words in ("not citable: built from uncommitted changes", "of decision method 0, and this"):
        assert f"**{words}" in twin
        assert f'<span class="mark">{words}' in html


def test_one_without_planted_trials_has_no_curve(both: Both, tmp_path: Path) -> None:
    for text in texts(both(issue([unchanged(number) for number in range(3)]))):
        assert "no slow-down was planted" in text
    assert not (tmp_path / "report/figures/detection-0.svg").exists()


def test_each_model_without_one_says_so_and_what_to_do(tmp_path: Path) -> None:
    machines = [summary(runs_made.without_gpu()), summary(runs_made.full_gpu())]
    page.write(analysed(machines, tmp_path), tmp_path / "report")
    twin = (tmp_path / "report" / "report.md").read_text("utf-8")
    for machine in ("cpu-amd-epyc-7b13", "nvidia-h200"):
        assert f"No certificate for {machine}: " in twin
    assert "python -m proof.certify" in twin


def test_names_are_escaped(both: Both, made: Certificate) -> None:
    one = replace(
        made,
        machine=NASTY,
        caveat=NASTY,
        citable=False,
        cards=(NASTY,),
        floors={NASTY: 0.01},
        floor_reasons={NASTY: NASTY},
        errors=(RowError("1", NASTY, NASTY),),
        alarms=(Alarm("1", NASTY, "regressed", 0.01),),
        missed=tuple(replace(miss, row=NASTY) for miss in made.missed),
        detection=tuple(replace(line, bound_by=NASTY) for line in made.detection),
    )
    html, twin = both(one)
    assert html.text.count(NASTY) > 10
    assert "<img" not in twin


def test_a_report_has_the_health_that_qualify_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))
    folder = sample.write(tmp_path / "results/nvidia-h200/2026-11-21-abc1234", runs_made.full_gpu())
    health = {"id": "health/row_remapping", "kind": "health", "reason": "1 row waits", "remedy": ""}
    kept = {"checks": [health | {"verdict": "fail", "remedy": "reset the card"}]}
    (folder / "qualification.json").write_text(json.dumps(kept), encoding="utf-8")
    assert cli.main(["report", str(folder)]) == 0
    text = (folder / "report" / "report.md").read_text(encoding="utf-8")
    assert "1 fail" in text
    assert "1 row waits" in text


def test_a_report_has_what_newer_records_say_of_health_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))
    folder = sample.write(tmp_path / "results/nvidia-h200/2026-11-21-abc1234", runs_made.full_gpu())
    seen = {one.id: one.verdict for one in health_of(read_run(folder))}
    assert seen["health/throttle"] == "pass"
    kept = [
        {"id": id, "kind": "health", "verdict": verdict, "reason": "kept", "remedy": ""}
        for id, verdict in [("health/throttle", "fail"), ("health/sm_clock", "skipped")]
    ]
    (folder / "qualification.json").write_text(json.dumps({"checks": kept}), encoding="utf-8")
    now = {one.id: one.verdict for one in health_of(read_run(folder))}
    assert now == seen | {"health/throttle": "fail"}


def test_the_report_of_a_checkout_uses_its_certificates(
    root: Path, made: Certificate, capfd: pytest.CaptureFixture[str]
) -> None:
    file = file_of(root / "results", "nvidia-h200")
    write_certificate(made, file)
    folder = sample.write(root / "run", runs_made.full_gpu())
    assert cli.main(["report", str(folder)]) == 0
    assert sentence(made) in (folder / "report" / "report.md").read_text("utf-8")
    file.write_text(file.read_text("utf-8").replace('"suites": 3', '"suites": "many"'))
    capfd.readouterr()
    assert cli.main(["report", str(folder)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{file}: aa.suites must be int, not str" in line


def test_a_page_with_all_parts_is_sound(root: Path, tmp_path: Path, made: Certificate) -> None:
    write_certificate(made, file_of(root / "results", "nvidia-h200"))
    html, _ = pages([summary(runs_made.full_gpu())], tmp_path / "out")
    assert "False alarms and detection rates" in html.text
