"""What is asked of scripts and of `advise` for a certificate, and what becomes of the answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError
from gpulift.records.parse import read_context
from proof import advise
from proof.advice import (
    SCRIPTS,
    Case,
    Facts,
    fault_of,
    issue,
    read_certificate,
    write_certificate,
)
from proof.advise import LARGE, PASSES, SMALL, Trials, faults_in
from tests import sample

ADVICE = {
    "rows": [{"name": "foreach", "label": "one", "verdict": "helps", "gain": [1.5, 1.4, None]}],
    "notes": ["attention by hand: 2", "read /home/somebody/train.py"],
    "torch": "2.11.0",
    "not_tried": [],
}


class FakePrograms:
    """Stands in for the scripts and for `advise`."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.code, self.stdout, self.stderr = 0, "steps 100 seconds 2.000000\n", ""
        self.advice_code, self.advice = 0, json.dumps(ADVICE, indent=2)
        self.slow = False

    def finished(self, command: Sequence[str], limit_s: float) -> object:
        self.commands.append(tuple(command))
        if self.slow:
            raise subprocess.TimeoutExpired(command, limit_s)
        errors = self.stderr.encode()
        code, said = (
            (self.advice_code, self.advice) if "advise" in command else (self.code, self.stdout)
        )
        return subprocess.CompletedProcess(command, code, said.encode(), errors)

    @property
    def turns(self) -> list[str]:
        """The faults of the timed processes, in their order."""
        timed = [one for one in self.commands if "--steps" in one]
        return [one[one.index("--plant") + 1] if "--plant" in one else "" for one in timed]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    fake = FakePrograms()
    monkeypatch.setattr(advise, "finished", fake.finished)
    return fake


def take(
    script: str,
    held: Sequence[Case] = (),
    on_gpu: bool = False,
    size: str = SMALL,
    same: int = 0,
) -> dict[str, Case]:
    kept: dict[str, Case] = {}

    def keep(case: Case) -> None:
        kept[case.fault] = case

    Trials(Path(sys.executable), size, on_gpu, keep, lambda _: None, same).take(script, held)
    return kept


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_fault_of_a_script_can_be_told(script: str) -> None:
    nothing, *faults = faults_in(script)
    assert nothing == ""
    assert [fault_of(script, fault) for fault in faults]


def test_scripts_with_and_without_faults_take_turns(programs: FakePrograms) -> None:
    kept = take("no_loader")
    order = ["", "attention_by_hand", "small_batch", "optimizer_loop"]
    assert programs.turns == [*order, *reversed(order)] * (PASSES // 2)
    assert kept["small_batch"].step_s == (0.02,) * PASSES
    assert [fault for fault in kept if not kept[fault].reason] == order


def test_each_is_advised_with_its_fault(programs: FakePrograms) -> None:
    kept = take("no_loader")
    advised = [one for one in programs.commands if "advise" in one]
    assert [one[-1] for one in advised] == [
        *("small", "attention_by_hand", "small_batch", "optimizer_loop"),
    ]
    tried = {one[-1]: one[one.index("--out") + 2 : one.index("--")] for one in advised}
    assert tried == {
        "small": ("--vary", "--size small"),
        "attention_by_hand": ("--only", "synchronize"),
        "small_batch": ("--only", "synchronize,batch_2x"),
        "optimizer_loop": ("--only", "foreach,fused,synchronize"),
    }
    assert all({"--size", "small"} < set(one[one.index("--") + 1 :]) for one in advised)
    advice = kept[""].advice
    assert advice is not None
    assert (advice.rows[0].name, advice.torch) == ("foreach", "2.11.0")
    assert advice.notes == ("attention by hand: 2",)  # nothing private


def test_nothing_is_planted_where_changes_that_do_nothing_are_asked_for(
    programs: FakePrograms,
) -> None:
    kept = take("no_loader", same=2)
    assert (programs.turns, list(kept)) == ([], [""])
    (advised,) = programs.commands
    asked = advised[advised.index("--out") + 2 : advised.index("--")]
    assert asked == ("--only", "synchronize", *("--vary", "--size small") * 2)
    assert not take("no_loader", held=tuple(kept.values()), same=2)


def test_what_needs_a_gpu_or_a_large_model_is_skipped(programs: FakePrograms) -> None:
    assert take("no_loader")["item"].reason == "costs nothing without a GPU"
    small = take("no_loader", on_gpu=True)
    assert (small["item"].reason, small["fp32"].reason) == ("", "costs nothing in a small model")
    assert not any(case.reason for case in take("no_loader", on_gpu=True, size=LARGE).values())


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("needs the package accelerate", "exit code 3: needs the package accelerate"),
        ("", "exit code 3"),
        ("FileNotFoundError: /home/somebody/x", "exit code 3"),
    ],
)
def test_a_script_that_fails_is_not_advised(
    programs: FakePrograms, stderr: str, reason: str
) -> None:
    programs.code, programs.stderr = 3, stderr
    kept = take("hf_trainer")
    assert len(programs.commands) == 1
    assert kept["one_worker"].reason == f"hf_trainer: {reason}"
    assert kept["item"].reason == "costs nothing without a GPU"


@pytest.mark.parametrize("stdout", ["", "steps 100\n", "more\nsteps 100 seconds 2.0\n"])
def test_a_script_that_says_no_time_is_not_advised(programs: FakePrograms, stdout: str) -> None:
    programs.stdout = stdout
    assert take("plain")[""].reason == "plain: did not say its time"


def test_a_script_that_does_not_end_is_not_advised(programs: FakePrograms) -> None:
    programs.slow = True
    assert take("plain")[""].reason == "plain: not done in 600 s"


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [(1, "", "advise: exit code 1"), (0, "no JSON", "not a line of JSON"), (0, "{}", "rows is")],
)
def test_advice_that_fails_is_a_reason(
    programs: FakePrograms, code: int, said: str, words: str
) -> None:
    programs.advice_code, programs.advice = code, said
    assert words in take("plain")[""].reason


def test_advice_that_decides_nothing_is_kept(programs: FakePrograms) -> None:
    programs.advice_code = 5
    assert take("plain")[""].advice is not None


def test_only_what_is_lacking_is_taken(programs: FakePrograms) -> None:
    whole = take("no_loader")
    failed = replace(whole["small_batch"], advice=None, reason="advise: exit code 1")
    programs.commands.clear()
    again = take("no_loader", [*whole.values(), failed])
    (command,) = programs.commands
    assert command[-1] == "small_batch"
    assert again["small_batch"] == whole["small_batch"]


def test_a_certificate_is_gone_on_with_where_its_cases_are_of_now(tmp_path: Path) -> None:
    facts = Facts("nvidia-h200", SMALL, "580", "abc1234", False, True, "2026-11-28")
    file = tmp_path / "of.json"
    assert advise.held_cases(file, facts) == {}
    one = Case("plain", "", (1.0, 1.1))
    write_certificate(issue(facts, [one]), file)
    assert advise.held_cases(file, replace(facts, date="2026-11-29")) == {("plain", ""): one}
    with pytest.raises(GpuliftError, match="of another machine, size or build"):
        advise.held_cases(file, replace(facts, commit="fffffff"))


def test_it_writes_a_certificate_and_says_what_became_of_each_fault(
    programs: FakePrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = read_context(sample.CPU_CONTEXT, "fake")
    monkeypatch.setattr(machine, "find_bench", Path)
    monkeypatch.setattr(machine, "describe", lambda bench: context)
    app = typer.Typer()
    app.command()(advise.main)
    result = CliRunner().invoke(app, [str(tmp_path / "of.json"), "plain"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "plain small_batch: " in result.output
    assert {case.script for case in read_certificate(tmp_path / "of.json").cases} == {"plain"}
