"""Command lines of before, as they are written now; until the release of 2026-12."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpulift.ground.entry import say

OF_FORMS = ("gate", "compare")  # commands whose options were called otherwise
OLD_FORMS, OLD_FILES = ("--json", "--github", "--markdown"), ("--junit", "--bmf")
OLD_TOOLS = ("--gbench", "--nvbench", "--pytest")  # with what they run
RESULTS = re.compile("--results(=|$)")
KEPT = (".json", "-h", "--help")  # ends of words with which `verify` is of a certificate


def rewritten(arguments: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The command line as it is written now; `names` has what old commands are called."""
    command, given = arguments[:1], list(arguments[1:])
    if now := names.get("".join(command), ""):
        if command == ["verify"] and any(word.endswith(KEPT) for word in given or KEPT):
            return [*command, *given]
        _tell(command[0], now)
        return rewritten([*now.split(), *given], names)
    if command == ["claims"] and (names_folder := [*filter(RESULTS.match, given)]):
        _tell(names_folder[0], "by its folder alone")
        given = [word.partition("=")[2] or word for word in given if word != "--results"]
    if not command or command[0] not in OF_FORMS:
        return [*command, *given]
    end = given.index("--") if "--" in given else len(given)
    made, tool = _options(given[:end])
    behind = [*tool, *given[end + 1 :]]
    # What follows `--` is a command behind an empty filter: unless it begins with a hyphen, as a
    # filter that leaves something out does.
    with_tool = any(option.partition("=")[0] == "--with" for option in made)
    if behind and (with_tool or not behind[0].startswith("-")):
        return [*command, *made, "--", "", *behind]
    return [*command, *made, *given[end:]]


def _tell(before: str, now: str) -> None:
    say(f"{before} is called {now} now, and goes with the next release")


def _options(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of options of before those of today, and what a tool runs."""
    made: list[str] = []
    command: list[str] = []
    words = iter(given)
    for word in words:
        name, equals, value = word.partition("=")
        form = name.removeprefix("--")
        if name in OLD_FORMS and not equals:
            made += ["--format", form]
        elif name in OLD_FILES:
            made += ["--format", f"{form}={value if equals else next(words, '')}"]
        elif name in OLD_TOOLS:
            command = [value if equals else next(words, "")]
            made += ["--with", form]
        else:
            made.append(word)
            continue
        if name != "--json":  # as other commands have it
            _tell(
                name, f"--with {form} -- {command[0]}" if name in OLD_TOOLS else " ".join(made[-2:])
            )
    return made, command
