"""What an arm hears of its case, and how its time is told."""

from __future__ import annotations

import time
from pathlib import Path

import gpulift_case
import pytest


def test_without_an_engine_that_says_more_it_is_a_first_launch() -> None:
    gpulift_case.begin({"seed": 7})
    assert gpulift_case.launch() == 1
    assert gpulift_case.check_seed() == 7
    assert gpulift_case.earlier() is None
    assert gpulift_case.shared() is None
    assert gpulift_case.spent_s() == {}


def test_what_the_engine_says_holds_until_the_next_case(tmp_path: Path) -> None:
    told = {"launch": 3, "check_seed": 5, "earlier": {"loss": 2.5}, "shared": str(tmp_path)}
    gpulift_case.begin({"seed": 7, **told})
    assert gpulift_case.launch() == 3
    assert gpulift_case.check_seed() == 5
    assert gpulift_case.earlier() == {"loss": 2.5}
    assert gpulift_case.shared() == tmp_path
    gpulift_case.begin({"seed": 8})
    assert gpulift_case.earlier() is None


def test_an_arm_without_metrics_was_measured_all_the_same() -> None:
    gpulift_case.begin({"seed": 7, "earlier": {}})
    assert gpulift_case.earlier() == {}


def test_a_folder_that_is_not_on_this_host_is_none(tmp_path: Path) -> None:
    gpulift_case.begin({"seed": 7, "shared": str(tmp_path / "elsewhere")})
    assert gpulift_case.shared() is None


def test_a_part_within_a_part_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(gpulift_case, "monotonic", lambda: clock[0])
    gpulift_case.begin({"seed": 7})
    with gpulift_case.spent("reference"):
        clock[0] += 1
        with gpulift_case.spent("compile"):
            clock[0] += 10
        with gpulift_case.spent("compile"):
            clock[0] += 100
        clock[0] += 1000
    with gpulift_case.spent("compile"):
        clock[0] += 10000
    assert gpulift_case.spent_s() == {"reference": 1001, "compile": 10110}


def test_the_time_of_a_part_that_fails_is_told_and_the_error_comes_through() -> None:
    def fail() -> None:
        time.sleep(0.01)
        raise KeyError

    gpulift_case.begin({"seed": 7})
    with pytest.raises(KeyError), gpulift_case.spent("reference"):
        fail()
    assert gpulift_case.spent_s()["reference"] >= 0.01


def test_another_part_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="'checking' is no part"), gpulift_case.spent("checking"):
        pass
