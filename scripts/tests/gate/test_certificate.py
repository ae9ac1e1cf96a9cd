"""Certificates: what is read, what is refused, and how they are written."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.gate.certificate import (
    Certificate,
    file_of,
    find_certificate,
    read_certificate,
    sentence,
)
from gpulift.ground.errors import GpuliftError
from gpulift.verdicts.decision import DECISION_METHOD
from proof.certificate import issue, write_certificate
from tests.trials_made import ROWS, planted, unchanged

Json = dict[str, Any]


@pytest.fixture
def made() -> Certificate:
    trials = [unchanged(number) for number in range(3)]
    sizes = dict(zip(ROWS, (0.002, 0.005), strict=True))
    return issue([*trials, planted(3, sizes, blind=ROWS), planted(4, {ROWS[1]: 0.01})])


def test_a_certificate_is_found_by_its_machine(tmp_path: Path, made: Certificate) -> None:
    write_certificate(made, file_of(tmp_path, made.machine))
    found = find_certificate(tmp_path, "nvidia-h200")
    assert found == made
    assert (made.name, made.method) == ("nvidia-h200", DECISION_METHOD)
    assert dict(made.floors) == {ROWS[1]: 0.01}
    assert find_certificate(tmp_path, "nvidia-b200") is None


def test_the_same_certificate_gives_the_same_bytes(tmp_path: Path, made: Certificate) -> None:
    one, other = tmp_path / "a" / "x.json", tmp_path / "b" / "x.json"
    write_certificate(made, one)
    write_certificate(read_certificate(one), other)
    assert one.read_bytes() == other.read_bytes()
    assert [file.name for file in one.parent.iterdir()] == ["x.json"]


def _floors(floors: Any) -> Json:
    return {"floors": floors}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "2.0"}, "schema is 2.0"),
        ({"schema": "1.0"}, "only 1.2, 1.3 can be read: `python -m proof"),
        ({"more": 1}, "more is not known here"),
        ({"arm_time_s": -0.1}, "arm_time_s must be float >= 0"),
        ({"citable": "yes"}, "citable must be bool, not str"),
        ({"cards": ["a", 1]}, r"cards\[1\] must be str, not int"),
        ({"aa": []}, "aa must be object, not array"),
        ({"aa": {"suites": 1}}, "aa.alarms is missing"),
        (
            {"aa": {"suites": 1, "alarms": -1, "upper": 1}},
            "aa.alarms must be int >= 0",
        ),
        ({"missed": [{"trial": "x"}]}, r"missed\[0\].row is missing"),
        (_floors([]), "floors must be object, not array"),
        (_floors({"a/b/c": "0.1"}), "floors.a/b/c must be float, not str"),
        (_floors({"a/b/c": 0}), "floors.a/b/c must be float > 0"),
        (_floors({"a/b/c": 1}), "floors.a/b/c must be float < 1"),
        (_floors({"a/b/c": -0.1}), "floors.a/b/c must be float > 0"),
    ],
)
def test_what_is_no_certificate_is_refused(
    tmp_path: Path, made: Certificate, change: Json, words: str
) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps({**asdict(made), **change}))
    with pytest.raises(GpuliftError, match=words) as refused:
        read_certificate(file)
    assert refused.value.exit_code == 2
    assert str(file) in str(refused.value)


@pytest.mark.parametrize("key", ["schema", "method", "floors", "aa", "citable", "trials"])
def test_every_field_is_required(tmp_path: Path, made: Certificate, key: str) -> None:
    file = tmp_path / "x.json"
    content = asdict(made)
    del content[key]
    file.write_text(json.dumps(content))
    with pytest.raises(GpuliftError, match=f"{key} is missing") as refused:
        read_certificate(file)
    assert refused.value.exit_code == 2


def test_one_of_1_2_is_read_without_what_nothing_shows_any_more(
    tmp_path: Path, made: Certificate
) -> None:
    content = json.loads(json.dumps(asdict(made)))
    content["aa"]["undecided"] = 0
    former: Json = {"replays": {}, "incumbents": [], "autocorrelation": {}}
    file = tmp_path / "x.json"
    file.write_text(json.dumps({**content, **former, "schema": "1.2"}))
    assert read_certificate(file) == replace(made, schema="1.2")
    file.write_text(json.dumps({**content, **former}))
    with pytest.raises(GpuliftError, match="is not known here"):
        read_certificate(file)


def test_nonsense_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("nonsense")
    with pytest.raises(GpuliftError, match="not a line of JSON"):
        read_certificate(file)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="cannot be read"):
        read_certificate(tmp_path)


def test_the_sentence_says_both_rates(made: Certificate) -> None:
    assert sentence(made) == (
        "nvidia-h200 (1 card): 0 of 3 A/A suites raised an alarm (95 % bound 63.2 %);"
        " planted slow-downs were found: 0.2 % in 0 of 1, 0.5 % in 0 of 1, 1 % in 1 of 1 trials."
    )
