"""Help and version: what they say, and how little is imported for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import wraps

import pytest

from gpulift import cli
from gpulift.ground import later, place
from gpulift.ground.errors import OK, USAGE

pytestmark = pytest.mark.world

HEAVY = {"numpy", "scipy", "matplotlib", "jinja2", "rich.console", "gpulift.analysis.analyse"}
MOST_OURS = 110  # modules of gpulift that all helps together import: 65 of commands, the ground
ALL_HELPS = """
import io, json, sys
from contextlib import redirect_stdout
from gpulift import cli
from gpulift.ground import later
later.put_off()
told = {}
for command in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()) as said:
        assert cli.main([*command.split(), "--help"]) == 0
    told[command] = said.getvalue()
real = [name for name, one in sys.modules.items() if not isinstance(one, later._Module)]
print(json.dumps([told, real]))
"""


def examples() -> dict[str, list[str]]:
    return {name: calls for name, *calls, _ in cli.table("examples.tsv")}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_every_help_says_the_same_where_imports_are_put_off_and_has_two_examples(
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked = {*examples(), *cli.command_lines()} - {*cli.LAUNCHERS}
    done = python("-c", ALL_HELPS, json.dumps(sorted(asked)))
    assert done.stderr == ""
    told, imported = json.loads(done.stdout)
    for command in asked:
        assert cli.main([*command.split(), "--help"]) == OK
        assert told[command] == capfd.readouterr().out, command
        if command in examples():
            assert told[command].count(f"\n    {place.PROGRAM} {command}") == 2
    assert not HEAVY.intersection(imported)
    assert sum(name.startswith("gpulift.") for name in imported) <= MOST_OURS


def test_the_version_imports_nothing_that_draws_or_fits() -> None:
    script = "import sys; from gpulift.__main__ import main; main(); print(*sys.modules)"
    done = python("-c", script, "--version")
    assert not {"scipy.stats", "matplotlib", "rich", "gpulift.analysis.analyse"}.intersection(
        done.stdout.split()
    )


@pytest.mark.parametrize("command", examples())
def test_examples_are_command_lines_that_it_takes(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(taken: Callable[..., object]) -> Callable[..., object]:
        return wraps(taken)(lambda **_: None)

    monkeypatch.setattr(later, "refusing", refusing)
    for call in examples()[command]:
        assert f"{call} ".startswith(f"{command} ")
        assert cli.main(call.split()) == OK


def test_a_help_that_is_a_value_is_refused() -> None:
    done = python("-m", "gpulift", "report", "x", "--out", "--help")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "--help is no value of an option" in done.stderr
