"""Tables on narrow terminals and in pipes."""

from __future__ import annotations

import io
import re
import sys

import pytest

from gpulift import tables
from gpulift.report.summary import Problem

TECHNIQUE = "compilation/fused_optimizer_steps"


class Terminal(io.StringIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO) -> list[str]:
    """The lines of a table with long names and long texts."""
    monkeypatch.setattr(sys, "stdout", stdout)
    reason = "a reason of many words that has no room beside the names of what it is about"
    one = Problem(TECHNIQUE, "layout:channels_last/batch:4", "", "skipped", reason, reason)
    tables.console().print(tables.problems([one], "Skipped"))
    return re.sub(r"\x1b\[[\d;]*m", "", stdout.getvalue()).splitlines()


def test_a_narrow_terminal_folds_names_and_cuts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = shown(monkeypatch, Terminal())
    assert max(map(len, lines)) <= 40
    assert "…" not in "".join(lines)
    width = next(line.index("cases") for line in lines if "cases" in line)
    assert "".join(line[:width].strip() for line in lines[1:]) == f"technique{TECHNIQUE}"


@pytest.mark.parametrize("forced", ["", "1"])
def test_a_pipe_is_wide_with_and_without_colours(
    monkeypatch: pytest.MonkeyPatch, forced: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", forced)
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, shown(monkeypatch, io.StringIO()))) > 100
