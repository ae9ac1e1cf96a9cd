"""What the probe says, and which process does."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from gpulift_probe import said


@pytest.fixture(name="file")
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where messages go."""
    file = tmp_path / "said"
    monkeypatch.setenv(said.FILE, str(file))
    return file


def messages(file: Path) -> list[Any]:
    """All that were said."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_messages_are_lines(file: Path) -> None:
    say = said.Said()
    say("hello", torch="2.11.0")
    say("check", losses=[math.nan, 1.0], why="π\n")
    first, second = messages(file)
    assert first == {"say": "hello", "torch": "2.11.0"}
    assert math.isnan(second["losses"][0])
    assert second["why"] == "π\n"


def test_phases_are_few(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([0.0, 0.25, 0.5])
    monkeypatch.setattr(said.time, "monotonic", lambda: next(times_s))
    say = said.Said()
    for text in "abc":
        say.phase(text)
    assert [one["text"] for one in messages(file)] == ["a", "c"]


def test_the_first_that_imports_torch_says_so(file: Path) -> None:
    said.Said().imported()
    (first,) = messages(file)
    assert first["say"] == "phase"
    said.Said().imported()
    assert messages(file) == [first]


def test_one_process_says_something(file: Path) -> None:
    assert [said.Said().owns() for _ in range(2)] == [True, False]


def test_nobody_listens(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(said.FILE, str(file / "gone" / "said"))
    assert not said.Said().owns()


def test_the_plan_is_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(said.PLAN, '{"mode": "turn"}')
    assert said.plan() == {"mode": "turn"}
