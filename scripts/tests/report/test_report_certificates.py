"""False alarms and detection rates: the certificate in the report."""

from __future__ import annotations

import json
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
from gpulift.report import error_rates, plots
from proof.certificate import issue, write_certificate
from tests import runs_made, sample
from tests.figures import section
from tests.report.test_report import Page
from tests.trials_made import ROWS, planted, unchanged

pytestmark = pytest.mark.world

NASTY = '<img src=x onerror="alert(1)"> a|b'
MODEL = "nvidia-h200"


def with_planted() -> Certificate:
    trials = [unchanged(number) for number in range(3)]
    sizes = dict(zip(ROWS, (0.002, 0.005), strict=True))
    return issue([*trials, planted(3, sizes, blind=ROWS), planted(4, {ROWS[1]: 0.01})])


def html_of(*certificates: Certificate | None) -> str:
    names = [f"{MODEL}-{number}" for number in range(len(certificates))]
    known = {name: one for name, one in zip(names, certificates, strict=True) if one}
    return section("certificates", certificates=error_rates.views(names, known))


def noisy(certificate: Certificate) -> Certificate:
    rows = (UnchangedRow(NASTY, suites=3, inconclusive=2), UnchangedRow(ROWS[0], 3, 1))
    return replace(certificate, unchanged=rows)


def failing(certificate: Certificate) -> Certificate:
    alarm = Alarm("0123456789ab", ROWS[0], "improved", -0.004)
    error = RowError("0123456789ab", ROWS[1], "error: ended with signal SIGSEGV")
    return replace(certificate, alarms=(alarm,), errors=(error,))


@pytest.mark.parametrize(
    ("changed", "words", "none"),
    [
        (
            lambda made: made,
            ("63.16 %", "launches or host", "1a2b3c4d", "0.5 % was missed, 1 % found"),
            ("not citable", "left inconclusive", "could not be measured"),
        ),
        (noisy, (NASTY, "left inconclusive", "2 of 3"), ("1 of 3",)),
        (failing, ("improved-0.4 %0123456789ab", "1 rows of trials", "SIGSEGV"), ()),
        (
            lambda made: replace(made, citable=False, caveat="uncommitted changes", method="0"),
            ("not citable: uncommitted changes", "of decision method 0, and this"),
            (),
        ),
        (
            lambda _: issue([unchanged(number) for number in range(3)]),
            ("no slow-down was planted",),
            ("as measured",),
        ),
    ],
)
def test_what_a_certificate_holds_is_shown(
    changed: Callable[[Certificate], Certificate], words: tuple[str, ...], none: tuple[str, ...]
) -> None:
    made = changed(with_planted())
    text = Page(html_of(made)).text
    assert sentence(made) in text
    assert [one for one in words if one not in text] == []
    assert [one for one in none if one in text] == []


def test_the_curve_says_what_was_found_and_is_not_there_without_any() -> None:
    bare = issue([unchanged(0)])
    first, second = error_rates.views(["a", "b"], {"a": with_planted(), "b": bare})
    assert first.curve is not None
    words = "bound by GPU, 0.2 % in 0 of 1; bound by launches or host, 0.5 % in 0 of 1"
    assert words in first.curve.alt
    assert second.curve is None


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


def test_each_model_without_one_says_so_and_what_to_do() -> None:
    text = Page(html_of(None, None)).text
    for number in (0, 1):
        assert f"No certificate for {MODEL}-{number}: " in text
    assert "python -m proof.certify" in text


def test_names_are_escaped() -> None:
    made = with_planted()
    hostile = replace(
        made,
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
    html = html_of(hostile)
    assert Page(html).text.count(NASTY) > 10
    assert "<img" not in html


def test_newer_records_say_of_health_that_was_kept_what_they_show(tmp_path: Path) -> None:
    folder = sample.write(tmp_path, runs_made.full_gpu())
    seen = {one.id: one.verdict for one in health_of(read_run(folder))}
    assert seen["health/throttle"] == "pass"
    verdicts = {"throttle": "fail", "sm_clock": "skipped", "row_remapping": "fail"}
    kept = [
        {"id": f"health/{id}", "kind": "health", "verdict": one, "reason": "kept", "remedy": ""}
        for id, one in verdicts.items()
    ]
    (folder / "qualification.json").write_text(json.dumps({"checks": kept}), encoding="utf-8")
    now = {one.id: one.verdict for one in health_of(read_run(folder))}
    assert now == seen | {"health/throttle": "fail", "health/row_remapping": "fail"}


def test_the_report_of_a_checkout_has_its_certificates_and_kept_health(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made, file = with_planted(), file_of(root / "results", MODEL)
    write_certificate(made, file)
    folder = sample.write(root / "run", runs_made.full_gpu())
    health = {"id": "health/row_remapping", "kind": "health", "verdict": "fail"}
    kept = {"checks": [health | {"reason": "1 row waits", "remedy": "reset the card"}]}
    (folder / "qualification.json").write_text(json.dumps(kept), encoding="utf-8")
    assert cli.main(["report", str(folder)]) == 0
    assert sentence(made) in (folder / "report/pages/certificates.html").read_text("utf-8")
    assert "1 row waits" in (folder / "report" / "report.md").read_text(encoding="utf-8")
    file.write_text(file.read_text("utf-8").replace('"suites": 3', '"suites": "many"'))
    capfd.readouterr()
    assert cli.main(["report", str(folder)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{file}: aa.suites must be int, not str" in line
