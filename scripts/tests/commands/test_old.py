"""Command lines of before, which run what they are called now and say so."""

from __future__ import annotations

import pytest

from gpulift import cli
from gpulift.commands.old import rewritten

NAMES = cli.command_lines(old=True)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        *((f"{name} x --all", f"{now} x --all") for name, now in NAMES.items()),
        ("verify a.json --again", ""),
        ("verify --help", ""),
        ("verify", ""),
        ("show x", ""),
        ("", ""),
        ("claims --results a --gpu h100", "claims a --gpu h100"),
        ("claims --results=a b", "claims a b"),
        ("compare a b --junit=c", "compare a b --format junit=c"),
    ],
)
def test_a_name_of_before_is_that_of_today_and_says_so(
    before: str, now: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert " ".join(rewritten(before.split(), NAMES)) == (now or before)
    said = capfd.readouterr().err
    assert said.count(" now, and goes with the next release\n") == (now != "")


def test_names_of_before_are_of_commands_and_options_of_today(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert not NAMES.keys() & (cli.command_lines().keys() - {"verify"})
    for now in NAMES.values():
        assert cli.main([now.split()[0], "--help"]) == 0
        told = capfd.readouterr().out.split()
        assert set(now.split()[1:]) <= set(told), now
