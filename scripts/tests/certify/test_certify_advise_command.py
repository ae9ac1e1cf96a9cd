"""`gpulift certify advise` as a user calls it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.certify import advise_trials
from gpulift.certify.advise import read_certificate, write_certificate
from gpulift.commands.certify_advise import with_advise
from tests.certify.test_advise_trials import FakePrograms

NO_LOADER = ("certify", "advise", "--scripts", "no_loader")


@pytest.fixture
def programs(root: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    fake = FakePrograms()
    monkeypatch.setattr(advise_trials, "finished", fake.finished)
    monkeypatch.chdir(root)
    return fake


def test_it_writes_a_certificate_and_shows_its_tables(
    programs: FakePrograms, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*NO_LOADER, "--size", "small"]) == 0
    (file,) = (root / "results" / "advise").glob("*.json")
    made = read_certificate(file)
    assert (made.facts.machine, made.facts.commit) == (file.stem, "abc1234")
    said = capfd.readouterr()
    assert str(file) in said.err
    for words in ("Planted faults", "attention_by_hand", "foreach: helps", "missed", "abc1234"):
        assert words in said.out
    page = file.with_suffix(".md").read_text()
    assert "| script | fault | costs | outcome | row | priced | agrees |" in page
    assert len([line for line in page.splitlines() if line.startswith("| no_loader |")]) == 7


def test_it_goes_on_with_a_certificate_that_is_there(
    programs: FakePrograms, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*NO_LOADER, "--out", "of.json"]) == 0
    programs.commands.clear()
    assert cli.main(["certify", "advise", "--scripts", "no_loader", "--out", "of.json"]) == 0
    assert not programs.commands
    assert cli.main(["certify", "advise", "--scripts", "plain", "--out", "of.json", "--json"]) == 0
    made = json.loads(capfd.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert {case["script"] for case in made["cases"]} == {"no_loader", "plain"}


def test_only_some_faults_are_planted(programs: FakePrograms) -> None:
    file = Path("of.json")
    assert cli.main([*NO_LOADER, "--faults", "small_batch,item", "--out", str(file)]) == 0
    assert [case.fault for case in read_certificate(file).cases] == ["item", "", "small_batch"]


def test_cases_of_another_commit_are_refused(
    programs: FakePrograms, capfd: pytest.CaptureFixture[str]
) -> None:
    file = Path("of.json")
    cli.main([*NO_LOADER, "--out", str(file)])
    made = read_certificate(file)
    write_certificate(replace(made, facts=replace(made.facts, commit="older")), file)
    assert cli.main([*NO_LOADER, "--out", str(file)]) == 2
    assert "its cases are of another commit" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scripts", "plain,nope"], "--scripts 'nope' is none of plain, no_loader"),
        (["--faults", "item,nope"], "--faults 'nope' is none of slow_decoding, one_worker"),
        (["--size", "huge"], "--size huge: give small or large"),
        (["--python", "nowhere"], "is neither an interpreter nor a virtual environment"),
    ],
)
def test_wrong_arguments_are_named(
    programs: FakePrograms, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main(["certify", "advise", *arguments]) == 2
    assert words in capfd.readouterr().err
    assert not programs.commands


def test_its_help_is_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["certify", "advise", "--help"]) == 0
    assert "Usage: ./gpulift certify advise [OPTIONS]" in capfd.readouterr().out


def test_certify_keeps_its_filters() -> None:
    assert with_advise(["certify", "ceiling/"]) == ["certify", "ceiling/"]
    assert with_advise(["run", "advise"]) == ["run", "advise"]
