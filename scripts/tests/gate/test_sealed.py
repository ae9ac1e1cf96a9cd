"""The certificate of a gate: what it holds, what shows that it was edited, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.commands.verify_file import SAME, SIZE, held_against, verified
from gpulift.gate import sealed
from gpulift.gate.evidence import GATE_FILE
from gpulift.ground.errors import FAILED, INCONCLUSIVE, NOT_COMPARABLE, OK, USAGE, GpuliftError
from tests.gate.certified import certificate, evidence, origin

Shown = pytest.CaptureFixture[str]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("certificate"))


def edited(file: Path, tmp_path: Path, change: Callable[[Json], Any]) -> Path:
    document = json.loads(file.read_bytes())
    change(document)
    made = tmp_path / "edited.json"
    made.write_text(json.dumps(document), "utf-8")
    return made


def sealed_anew(document: Json) -> None:
    """As a liar does it."""
    held = [(one["file"], one["lines"]) for one in document["parts"]]
    *links, document["sha256"] = sealed._chain(held, document["made_at"], document["says"])
    for one, link in zip(document["parts"], links, strict=True):
        one["sha256"] = link


def launch(document: Json, number: int = 0) -> Json:
    """One of the screen's."""
    name = f"cases/stage1/launch-{number:04d}/launch.json"
    found: Json = next(one["lines"][0] for one in document["parts"] if one["file"] == name)
    return found


def test_it_holds_and_says_what_a_reviewer_asks(file: Path, capsys: Shown) -> None:
    assert cli.main(["verify", str(file)]) == OK
    said = capsys.readouterr().out
    assert "holds: 1 row: 1 improved (aaaaaaa -> bbbbbbb)" in said
    assert "step.py/wall: head/base 0.89998, 95 % interval 0.8" in said
    assert "whole runs: head / base 0.8" in said
    assert "equal in every run: out.txt" in said
    assert "gate: --setup=make -- python3 step.py" in said
    assert "control planted: passed" in said
    assert "no proof against a liar with patience" in said


@pytest.mark.parametrize(("form", "most"), [("--markdown", 8), ("--line", 1)])
def test_its_short_forms(file: Path, form: str, most: int, capsys: Shown) -> None:
    assert cli.main(["verify", str(file), form]) == OK
    said = capsys.readouterr().out.splitlines()
    assert len(said) <= most
    assert "holds: 1 row: 1 improved" in said[0]
    assert cli.main(["verify", str(file), "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["holds"] is True


def test_nothing_of_it_is_markup_or_obeyed(tmp_path: Path, capsys: Shown) -> None:
    words = ("python3", "`![x](y) @all \x1b[2J" + "x" * 9000)
    assert cli.main(["verify", str(certificate(tmp_path, command=words)), "--markdown"]) == OK
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 8
    (line,) = [one for one in said.splitlines() if "@all" in one]
    assert line.count("`") == 4
    assert "\\x1b" in line
    assert len(line) < 1000


def worse(document: Json) -> None:
    launch(document)["pairs"][0]["head"]["values"]["wall"]["value"] *= 0.5


def in_the_wrong_order(document: Json) -> None:
    launch(document)["pairs"][0]["order"].reverse()
    sealed_anew(document)


def all_of_one_duration(document: Json) -> None:
    for part in document["parts"][1:]:
        for side in ("base", "head"):
            part["lines"][0]["pairs"][0][side]["seconds"] = 1.0
    sealed_anew(document)


def of_another_wall(document: Json) -> None:
    launch(document)["pairs"][0]["head"]["seconds"] *= 3
    sealed_anew(document)


def longer_than_it_took(document: Json) -> None:
    document["parts"][0]["lines"][0]["result"]["ended_at"] = "2026-11-29T10:00:20+00:00"
    sealed_anew(document)


def of_tomorrow(document: Json) -> None:
    document["made_at"] = "2999-01-01T00:00:00+00:00"
    sealed_anew(document)


def other_claim(document: Json) -> None:
    document["says"]["rows"][0]["ratio"] = 0.5
    sealed_anew(document)


def of_no_commit(document: Json) -> None:
    document["parts"][0]["lines"][0]["setup"]["origin"]["head"] = "--output=x"
    document["says"]["head"] = "--output=x"
    sealed_anew(document)


def one_launch_less(document: Json) -> None:
    del document["parts"][-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (worse, "it was edited: the hash of cases/stage1/launch-0000/launch.json is another"),
        (one_launch_less, "it was edited: the hash of what it says is another"),
        (other_claim, "its windows give something else than it says: rows[0].ratio"),
        (in_the_wrong_order, "launch-0000: pair 1 has another order than a gate takes"),
        (all_of_one_duration, "64 runs have 1 durations, as no clock tells them"),
        (of_another_wall, "launch-0000: wall is"),
        (longer_than_it_took, "and 22 s passed"),
        (of_no_commit, "its commits are no hashes"),
        (of_tomorrow, "its times do not follow each other"),
    ],
)
def test_what_does_not_hold_is_said(
    file: Path, tmp_path: Path, change: Callable[[Json], None], said: str, capsys: Shown
) -> None:
    assert cli.main(["verify", str(edited(file, tmp_path, change))]) == FAILED
    problems = [one for one in capsys.readouterr().out.splitlines() if one.startswith("problem: ")]
    assert said in problems[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.update(gpulift_certificate="9\x1b[2J"), "is a certificate 9\\x1b[2J"),
        (lambda one: one.pop("gpulift_certificate"), "is no certificate of a gate"),
        (lambda one: one.update(more=1), "more is not known here"),
        (lambda one: one["parts"][1].update(file="../../x.json"), "'../../x.json' is as no gate"),
        (lambda one: one["parts"].append(one["parts"][1]), "is as no gate writes it"),
        (lambda one: one["parts"][0]["lines"].append({}), "'gate.json' is as no gate writes it"),
        (lambda one: launch(one).pop("pairs"), "launch.json: pairs is missing"),
        (lambda one: one["parts"].pop(0), "gate.json: no evidence of a gate"),
    ],
)
def test_what_is_no_certificate_is_one_line(
    file: Path, tmp_path: Path, change: Callable[[Json], Any], said: str, capsys: Shown
) -> None:
    assert cli.main(["verify", str(edited(file, tmp_path, change))]) == USAGE
    told = capsys.readouterr()
    assert said in told.err
    assert (told.err.count("\n"), told.out) == (1, "")
    assert "edited.json" in told.err
    assert "gpulift-temporary" not in told.err


@pytest.mark.parametrize("depth", range(940, 1000, 10))
def test_deep_nesting_is_no_failure_of_ours(file: Path, tmp_path: Path, depth: int) -> None:
    deep = b'"says": {"deep": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b", "
    (tmp_path / "deep.json").write_bytes(file.read_bytes().replace(b'"says": {', deep, 1))
    assert cli.main(["verify", str(tmp_path / "deep.json")]) in (FAILED, USAGE)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is no JSON: it was cut"),
        (b'{"gpulift_certificate": "1.0", "made', "is no JSON: it was cut"),
        (b"[" * 200_000, "is no JSON: it was cut"),
        (b'{"a": ' * 200_000, "is no JSON: it was cut"),
        (b"\0" * (sealed.MOST_BYTES + 1), "has more than 64 MiB, as no certificate has"),
    ],
)
def test_files_of_others_are_one_line(
    tmp_path: Path, content: bytes | None, said: str, capsys: Shown
) -> None:
    file = tmp_path / "x.json"
    if content is not None:
        file.write_bytes(content)
    assert cli.main(["verify", str(file)]) == USAGE
    assert said in capsys.readouterr().err


def test_two_forms_at_once_are_refused(capsys: Shown) -> None:
    assert cli.main(["verify", "x.json", "--markdown", "--line"]) == USAGE
    assert "give one of --json, --markdown" in capsys.readouterr().err


def test_another_decision_method_is_not_comparable(file: Path, tmp_path: Path) -> None:
    def change(document: Json) -> None:
        document["parts"][0]["lines"][0]["setup"]["method"] = "1"

    with pytest.raises(GpuliftError, match="was judged by decision method 1") as error:
        verified(edited(file, tmp_path, change))
    assert error.value.exit_code == NOT_COMPARABLE


def test_it_holds_nothing_of_this_machine(tmp_path: Path) -> None:
    private = {"kernel": "built by someone@builder", "card": "read /home/someone/x"}
    made = certificate(tmp_path, conditions=private).read_text("utf-8")
    assert "someone" not in made
    assert "(an account)" in made
    assert not verified(tmp_path / "0.9.json").problems
    with pytest.raises(GpuliftError, match="'/home/someone/x' has a path"):
        sealed.require_public(origin(command=("python3", "/home/someone/x")))


def test_a_gate_whose_control_failed_has_none(tmp_path: Path) -> None:
    gate = evidence(tmp_path / "gate")
    document = json.loads((gate / GATE_FILE).read_bytes())
    document["setup"]["planted_size"] = 0.0
    (gate / GATE_FILE).write_text(json.dumps(document), "utf-8")
    assert sealed.write(gate, tmp_path / "c.json") == "no certificate: control planted FAILED"
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize(
    ("here", "code", "answer"),
    [
        (0.901, OK, SAME),
        (0.8, OK, SIZE),
        (1.0, FAILED, "not confirmed"),
        (1.2, FAILED, "not confirmed"),
        (None, INCONCLUSIVE, "not confirmed: inconclusive here"),
    ],
)
def test_what_a_second_measurement_says(
    file: Path, tmp_path: Path, here: float | None, code: int, answer: str
) -> None:
    conditions = {"card": "1 x NVIDIA H100", "driver": "1 x 580.1", "processor": "P"}
    now = verified(certificate(tmp_path, here or 1.0, conditions=conditions))
    if here is None:
        now = replace(now, rows=(replace(now.rows[0], verdict="inconclusive"),))
    got, said = held_against(verified(file), now)
    assert (got, said[0]) == (code, answer)
    assert said[-1] == "differs: card (1 x NVIDIA H200 then, 1 x NVIDIA H100 here)"
