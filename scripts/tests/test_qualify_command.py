"""`gpulift qualify`: exit codes, explanations, several GPUs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.errors import FAILED, INCONCLUSIVE, NOTHING_RAN, OK, USAGE
from gpulift.qualify.checks import CheckResult
from gpulift.qualify.command import _judge_together, exit_code_of, explanation
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.report.summary import summarise
from gpulift.stats import Estimate
from tests import runs_made


def roof(verdict: str, name: str = "device_memory") -> CheckResult:
    return CheckResult(f"roof/{name}/burst", verdict)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([roof("pass")], OK),
        ([roof("pass"), roof("fail")], FAILED),
        ([CheckResult("health/ecc", "fail")], FAILED),
        ([CheckResult("siblings/card", "fail")], FAILED),
        ([CheckResult("case/a/b", "fail")], FAILED),
        ([CheckResult("time/launch/x", "fail"), CheckResult("cost/y", "fail")], OK),
        ([roof("inconclusive"), roof("pass")], INCONCLUSIVE),
        ([roof("inconclusive"), *(roof("pass") for _ in range(9))], OK),
        ([roof("pass"), *(CheckResult("time/a/b", "inconclusive") for _ in range(9))], OK),
        ([roof("skipped")], OK),
        ([], OK),
    ],
)
def test_exit_codes(results: list[CheckResult], code: int) -> None:
    assert exit_code_of(results) == code


def test_an_explanation_has_every_figure() -> None:
    told = explanation(
        CheckResult(
            "roof/device_memory/burst",
            "inconclusive",
            reason="the interval holds the limit",
            remedy="measure again",
            estimate=Estimate(4.6e12, 4.5e12, 4.7e12, 3),
            unit="B/s",
            limit=4.64e12,
            tolerance=0.01,
            fraction=0.98,
            smallest_effect=0.04,
            cards=5,
            launches=18,
            kind="measured",
        )
    )
    for words in ("4.60 TB/s, 3 launches", "95 % interval 4.50 TB/s to 4.70 TB/s", "4.64 TB/s"):
        assert words in told
    for words in ("tolerance 1 %", "98.0 %", "5 cards, 18 launches", "4 %", "measure again"):
        assert words in told


def test_without_a_gpu_several_gpus_are_nothing_to_run(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["qualify", "--quick", "--gpus", "all"]) == NOTHING_RAN
    assert "--gpus all: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "0,one"], "indices like 0,1,3"),
        (["--gpus", "0"], "--gpus 0: "),
        (["--gpu", "0", "--gpus", "all"], "not both"),
    ],
)
def test_wrong_choices_of_gpus_are_one_line(
    root: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main(["qualify", *arguments]) == USAGE
    said = capfd.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_verdicts_are_kept_beside_the_records_and_told_as_json(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert cli.main(["qualify", "--json", "--out", str(root / "run")]) == OK
    told = json.loads(capfd.readouterr().out)[0]
    kept = json.loads((root / "run" / "qualification.json").read_text(encoding="utf-8"))
    assert told == kept
    health = {one["id"]: one["verdict"] for one in told["checks"] if one["kind"] == "health"}
    assert health["health/ecc"] == "pass"
    assert health["health/integrity"] == "skipped"


def test_a_check_is_explained_by_a_part_of_its_name(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert cli.main(["qualify", "--explain", "health/ecc", "--out", str(root / "run")]) == OK
    assert "health/ecc: pass" in capfd.readouterr().out
    cli.main(["qualify", "--explain", "nothing-like-it", "--out", str(root / "other")])
    assert "no check has 'nothing-like-it'" in capfd.readouterr().err


def test_what_breaks_only_while_all_cards_are_busy_fails() -> None:
    run = Run(Path("run"), tuple(read_record(one) for one in runs_made.with_troubles()))
    found = _judge_together("0a1b2c3d", summarise(run))
    assert found
    assert {one.verdict for one in found} == {"fail"}
    assert all("0a1b2c3d, all at once" in one.id for one in found)
    assert exit_code_of(found) == FAILED
