"""Tables on narrow terminals and in pipes."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace

import pytest
import rich.box
from rich.table import Table
from rich.text import Text

from gpulift import cli
from gpulift.analysis.doubts import NO_DOUBTS
from gpulift.analysis.summary import Problem
from gpulift.commands import shared as commands
from gpulift.ground import terminal
from gpulift.ground.errors import OK
from gpulift.report import tables
from tests import sample
from tests.figures import summary

TECHNIQUE = "compilation/fused_optimizer_steps"
REASON = "a reason of many words that has no room beside the names of what it is about"


class Terminal(io.StringIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO) -> list[str]:
    """The lines of a table with long names and long texts."""
    one = Problem(TECHNIQUE, "layout:channels_last/batch:4", "", "skipped", REASON, REASON)
    return printed(monkeypatch, stdout, tables.problems([one], "Skipped"))


def printed(monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO, table: Table) -> list[str]:
    """The lines of any table."""
    monkeypatch.setattr(sys, "stdout", stdout)
    terminal.console().print(table)
    return re.sub(r"\x1b\[[\d;]*m", "", stdout.getvalue()).splitlines()


def techniques(count: int = 2) -> Table:
    """A table with columns that can be spared: needs 85 columns with all, 57 without these."""
    table = terminal.titled("Techniques", ["quick", "cases"])
    for heading in ("technique", "question", "cases", "quick", "here"):
        table.add_column(heading)
    rows = [
        (TECHNIQUE, REASON, "102 of 102", "yes, 12 of 102", "yes"),
        ("a/b", "a question", "3", "no", "no"),
    ]
    for row in rows[:count]:
        table.add_row(*row)
    return table


def words(lines: list[str]) -> set[str]:
    """All that stands between blanks."""
    return set(" ".join(lines).split())


@pytest.mark.parametrize("columns", [120, 140])
def test_columns_that_have_room_for_their_words_stay_side_by_side(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown(monkeypatch, Terminal())
    assert max(map(len, lines)) <= columns
    assert lines[1].split() == ["technique", "cases", "outcome", "reason", "remedy"]
    assert {TECHNIQUE, "channels_last,", "skipped", *REASON.split()} <= words(lines)


def test_a_table_of_speedups_without_rows_is_not_shown() -> None:
    def shown(technique: str) -> str:
        arms = [sample.arm("slow", 2e-3), sample.arm("fast", 1e-3)]
        screen = terminal.console()
        with screen.capture() as seen:
            commands.show(screen, NO_DOUBTS, summary(sample.launches(2, technique, {"n": 1}, arms)))
        return seen.get()

    heading = "What is each technique worth on it?"
    assert heading in shown("launch/cuda_graph")
    assert heading not in shown("ceiling/host_memory")


def test_many_techniques_of_one_reason_are_one_row() -> None:
    def rows(count: int) -> list[list[str]]:
        found = [
            Problem(f"a/t{n}", f"n:{n}", "", "skipped", "no GPU", "buy one") for n in range(count)
        ]
        found += [replace(found[0], case_id="n:9"), replace(found[0], reason="no time")]
        table = tables.problems(found, "Skipped")
        return [list(map(str, column.cells)) for column in table.columns]

    assert rows(3)[:2] == [["a/t0", "a/t1", "a/t2", "a/t0"], ["2 cases", "n 1", "n 2", "n 0"]]
    many = rows(tables.MOST_NAMED + 1)
    assert many[:2] == [["6 techniques", "a/t0"], ["7 cases", "n 0"]]
    assert many[3:] == [["no GPU", "no time"], ["buy one", "buy one"]]


@pytest.mark.parametrize("columns", [40, 80])
def test_a_row_without_room_for_its_words_is_a_block(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown(monkeypatch, Terminal())
    assert lines[0] == "Skipped"
    assert "outcome: skipped" in lines
    assert lines[-1] == ""
    assert {TECHNIQUE, *REASON.split()} <= words(lines)
    assert all(len(line) <= columns or TECHNIQUE in line for line in lines)


def test_a_word_longer_than_the_terminal_is_neither_cut_nor_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert f"  {TECHNIQUE}" in shown(monkeypatch, Terminal())


def test_blocks_leave_out_what_is_empty_and_put_a_tick_before_what_it_is_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    table = terminal.titled("")
    for heading in ("", "check", "remedy", ""):
        table.add_column(heading)
    table.add_row("✓", Text("clock/[sm]"), "", "remark")
    table.add_row("✗", "one\ntwo", "wait " * 8, "")
    table.caption = "What a tick is"
    assert printed(monkeypatch, Terminal(), table) == [
        *("✓ check: clock/[sm]", "remark", ""),
        *("✗ check: one two", "remedy: wait wait wait wait", "  wait wait wait wait", ""),
        "What a tick is",
    ]


def test_a_table_keeps_its_columns_on_a_wider_console(monkeypatch: pytest.MonkeyPatch) -> None:
    table = terminal.titled("")
    for heading in ("verdict", "reason"):
        table.add_column(heading)
    table.add_row("inconclusive", REASON)
    monkeypatch.setenv("COLUMNS", "36")
    narrow = printed(monkeypatch, Terminal(), table)
    assert max(map(len, narrow)) <= 36
    assert {"inconclusive", *REASON.split()} <= words(narrow)
    monkeypatch.setenv("COLUMNS", "120")
    assert len(printed(monkeypatch, Terminal(), table)) == 2


def test_a_dumb_terminal_gets_no_colours_and_whole_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    assert TECHNIQUE in words(shown(monkeypatch, terminal))
    assert "\x1b" not in terminal.getvalue()


@pytest.mark.parametrize(
    ("room", "widths"), [(30, [10, 5, 15]), (26, [10, 5, 11]), (24, [10, 5, 9]), (9, [4, 5, 8])]
)
def test_what_is_missing_is_taken_from_the_widest(room: int, widths: list[int]) -> None:
    assert terminal.share([4, 5, 8], [10, 5, 15], room) == widths


@pytest.mark.parametrize("forced", ["", "1"])
@pytest.mark.parametrize(
    ("told", "columns"), [("80", 80), ("140", 140), ("", 120), ("0", 120), ("-3", 120), ("x", 120)]
)
def test_a_pipe_is_as_wide_as_it_is_told_or_120_columns(
    monkeypatch: pytest.MonkeyPatch, told: str, columns: int, forced: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", forced)
    monkeypatch.setenv("COLUMNS", told)
    lines = shown(monkeypatch, io.StringIO())
    assert max(map(len, lines)) <= columns
    assert terminal.console().width == columns


def test_what_is_the_same_in_each_row_goes_first_and_what_the_title_names_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headings = ("machine", "technique", "predicted", "since")
    made = terminal.titled("Predicted and measured", ("predicted", "since"), headings)
    for number in range(2):
        made.add_row("NVIDIA_H100_80GB", TECHNIQUE + "_" * number, f"{number}.24x", f"{number}")
    monkeypatch.setenv("COLUMNS", "66")
    lines = printed(monkeypatch, io.StringIO(), made)
    assert lines[1].split() == ["technique", "predicted", "since"]
    assert lines[-1] == "In each row: machine NVIDIA_H100_80GB."
    monkeypatch.setenv("COLUMNS", "50")
    lines = printed(monkeypatch, io.StringIO(), made)
    assert lines[1].split() == ["technique", "predicted"]
    assert lines[-1] == "Not shown: since; --wide shows all columns."


@pytest.mark.parametrize(
    ("columns", "headings", "said"),
    [
        (120, ["technique", "question", "cases", "quick", "here"], ""),
        (80, ["technique", "question", "cases", "here"], "quick"),
        (60, ["technique", "question", "here"], "quick, cases"),
    ],
)
def test_columns_that_can_be_spared_go_first_and_a_line_names_them(
    monkeypatch: pytest.MonkeyPatch, columns: int, headings: list[str], said: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(monkeypatch, Terminal(), techniques())
    assert max(map(len, lines)) <= columns
    assert lines[1].split() == headings
    assert {TECHNIQUE, *REASON.split(), "yes"} <= words(lines)
    line = f"Not shown: {said}; --wide shows all columns."
    assert [one for one in lines if "--wide" in one] == ([line] if said else [])
    assert lines[-1] == line or not said


def test_where_even_the_rest_has_no_room_a_row_is_a_block_of_all_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    lines = printed(monkeypatch, Terminal(), techniques(1))
    assert lines[0] == "Techniques"
    assert {"cases: 102 of 102", "quick: yes, 12 of 102", "here: yes"} <= {*lines}
    assert not any("--wide" in line for line in lines)


@pytest.mark.parametrize("stdout", [Terminal(), io.StringIO()])
def test_what_is_asked_for_as_wide_is_whole_on_one_line_a_row(
    monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", stdout)
    table = techniques()
    table.columns[1]._cells[0] = long = "many words " * 100 + "end"
    table.box, table.show_lines = rich.box.HORIZONTALS, True
    terminal.console(wide=True).print(table)
    lines = re.sub(r"\x1b\[[\d;]*m", "", stdout.getvalue()).splitlines()
    assert len(lines) == 4
    assert lines[1].split() == ["technique", "question", "cases", "quick", "here"]
    assert long in lines[2]
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    "command",
    [*("qualify", "bench", "cost", "claims"), "reference show"],
)
def test_commands_whose_tables_spare_columns_have_wide(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command.split(), "--help"]) == OK
    assert "--wide" in capsys.readouterr().out
