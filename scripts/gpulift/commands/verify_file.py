"""`gpulift verify FILE.json`: does the certificate of a gate hold? `--again`: here, too?"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from subprocess import run
from typing import Annotated, Any

import typer

from gpulift.commands import plausible
from gpulift.commands.gate_options import AGAIN
from gpulift.commands.old import OLD_TOOLS
from gpulift.commands.shared import Gpu, print_json
from gpulift.gate import sealed
from gpulift.gate.answer import launches_of
from gpulift.gate.conditions import NONE
from gpulift.gate.evidence import COMMANDS, GATE_FILE, Origin
from gpulift.gate.judge import GateResult
from gpulift.gate.plan import judged_again
from gpulift.ground import errors
from gpulift.ground.arguments import Json, named
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import JOB_ENVIRONMENT
from gpulift.ground.text import counted, visible
from gpulift.ground.whole import temporary_folder
from gpulift.verdicts.decision import EQUIVALENT, IMPROVED, REGRESSED
from gpulift.verdicts.row import Row
from gpulift.verdicts.table import figures, line

PATIENCE = (
    "hashes show that nothing was edited since; they are no proof against a liar with patience,"
    " who makes all of it up: --again measures anew"
)
NOTHING = "nothing was asked to be (--same)"
SAME = "same sign and size"
SIZE = "same sign, size differs"
NOT = "not confirmed"
UNDECIDED = "not confirmed: inconclusive here"
WORST_FIRST = (NOT, UNDECIDED, SIZE, SAME)
SIGNS = {IMPROVED: -1, EQUIVALENT: 0, REGRESSED: 1}
COMMIT = re.compile(r"[0-9a-f]{7,64}")
SHOWN = ("card", "driver", "processor")
DIGITS = 7  # of a commit, for people
MOST_ROWS = 3  # of a comment of eight lines
LONGEST = 300  # letters of what the file says, in a comment


def verify(
    file: Annotated[
        Path, typer.Argument(parser=named, metavar="FILE.json", help="What `gate` wrote.")
    ],
    gpu: Gpu = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Measure it anew in this checkout, which runs the command that it names.",
        ),
    ] = False,
    as_json: Json = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="A comment of eight lines at most.")
    ] = False,
    as_line: Annotated[bool, typer.Option("--line", help="One line.")] = False,
) -> None:
    """Check the certificate of a gate, without a card: 1 where it does not hold; with --again also
    where it is not confirmed, 5 where that cannot be told."""
    if sum((as_json, as_markdown, as_line, again)) > 1:
        raise GpuliftError("give one of --json, --markdown, --line and --again")
    found = verified(file)
    code = found.exit_code
    if as_json:
        print_json(as_dict(found))
        raise typer.Exit(code)
    if again:
        code, said = measured_again(found, gpu)
    elif as_line:
        said = [one_line(found)]
    else:
        said = list(markdown(found) if as_markdown else lines(found, file))
    typer.echo("\n".join(map(visible, said)))
    raise typer.Exit(code)


@dataclass(frozen=True)
class Verified:
    """What the evidence in a certificate says, made anew, and what is wrong with the file."""

    made_at: str
    origin: Origin
    says: Mapping[str, Any]
    problems: tuple[str, ...]
    rows: tuple[Row, ...]  # those that changed first
    wall: float | None = None  # head / base of whole runs, where a command was measured

    @property
    def exit_code(self) -> int:
        """Whether it holds."""
        return errors.FAILED if self.problems else errors.OK

    @property
    def summary(self) -> str:
        """`holds: 2 rows: 1 improved, 1 equivalent`."""
        counts = Counter(row.verdict for row in self.rows)
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        holds = "does not hold" if self.problems else "holds"
        return f"{holds}: {counted(len(self.rows), 'row')}: {told}"

    @property
    def sides(self) -> str:
        """Both commits."""
        return f"{self.says['base'][:DIGITS]} -> {self.says['head'][:DIGITS]}"

    @property
    def where(self) -> str:
        """The machine, in short."""
        facts = self.says["conditions"]
        return ", ".join(facts[key] for key in SHOWN if facts.get(key, NONE) != NONE)

    @property
    def equal(self) -> str:
        """What was equal in every run; empty where nothing was asked for."""
        return ", ".join(
            one["source"] + (f" within {one['tolerance']:g}" if one["tolerance"] else "")
            for one in self.says["equal"]
        )


def verified(file: Path) -> Verified:
    """Raises GpuliftError: usage for what is no certificate, not comparable for one of another
    decision method."""
    held = sealed.read(file)
    with sealed.evidence_of(held, file) as folder:
        result = judged_again(folder)
        says = sealed.says(result)
        found = list(_problems(held, folder, result, says))
        wall = _wall(result, folder)
        rows = [one.verdict.row(one.row.id, one.margins.least) for one in result.rows]
        rows.sort(key=lambda row: row.verdict == EQUIVALENT)
        return Verified(held.made_at, result.setup.origin, says, tuple(found), tuple(rows), wall)


def _problems(
    held: sealed.Sealed, folder: Path, result: GateResult, says: Mapping[str, Any]
) -> Iterator[str]:
    if part := held.broken:
        yield f"it was edited: the hash of {part} is another"
    if key := sealed.difference(held.says, says):
        yield f"its windows give something else than it says: {key.removeprefix('.')}"
    if not all(map(COMMIT.fullmatch, (says["base"], says["head"]))):
        yield "its commits are no hashes"
    for control in result.controls:
        if not control.passed:
            yield f"control {control.name} {control.state}: {control.said}"
    gate = next(one for one in held.parts if one.file == GATE_FILE).lines[0]
    ended_at = gate["result"].get("ended_at") if "result" in gate else None
    yield from plausible.problems(folder, result.setup, held.made_at, ended_at)


def _wall(result: GateResult, folder: Path) -> float | None:
    pairs = [pair for one in launches_of(folder, result) for pair in one.pairs]
    ratios = [pair.head.seconds / pair.base.seconds for pair in pairs if pair.base.seconds]
    return median(ratios) if ratios and result.setup.mode == COMMANDS else None


def lines(found: Verified, file: Path) -> Iterator[str]:
    """All that a person wants to know before he believes it."""
    says = found.says
    yield f"{file}: {found.summary} ({found.sides})"
    yield from (f"problem: {one}" for one in found.problems)
    yield from map(line, found.rows)
    if found.wall is not None:
        yield f"whole runs: head / base {found.wall:.4f} by the wall clock"
    yield f"equal in every run: {found.equal or NOTHING}"
    yield f"gate: {shlex.join(found.origin.words)}"
    yield f"measured on {found.where}; seed {says['seed']}; {found.made_at}"
    yield "; ".join(says["error_rates"])
    for control in says["controls"]:
        yield f"control {control['name']}: {control['state']}: {control['said']}"
    yield PATIENCE


def one_line(found: Verified) -> str:
    """For a list of many."""
    first = found.rows[0] if found.rows else None
    shown = f", {first.subject} {_figures(first)}" if first else ""
    problem = f"; {found.problems[0]}" if found.problems else ""
    return f"{found.summary}{shown}; {found.sides}; {found.where}{problem}"


def markdown(found: Verified) -> Iterator[str]:
    """A comment for a pull request: eight lines at most, of which none is the file's own markup."""
    problem = f": {_code(found.problems[0])}" if found.problems else ""
    yield f"**gpulift certificate {found.summary}** ({_code(found.sides)}){problem}"
    for row in found.rows[:MOST_ROWS]:
        yield f"- {row.verdict} {_code(row.subject)} {_code(_figures(row))}"
    more = len(found.rows) - MOST_ROWS
    yield from [f"- and {counted(more, 'more row')}"] if more > 0 else []
    wall = f"; whole runs {found.wall:.4f}" if found.wall is not None else ""
    yield f"- equal in every run: {_code(found.equal or NOTHING)}{wall}"
    yield f"- {_code(found.where)}; {_code('gpulift gate ' + shlex.join(found.origin.words))}"
    yield f"- {PATIENCE}"


def as_dict(found: Verified) -> dict[str, Any]:
    """All of it as JSON."""
    return {
        "holds": not found.problems,
        "problems": list(found.problems),
        "made_at": found.made_at,
        "wall_ratio": found.wall,
        **found.says,
        "verdict_exit_code": found.says["exit_code"],
        "exit_code": found.exit_code,
    }


def _figures(row: Row) -> str:
    return "; ".join(filter(None, (figures(row), row.reason)))


def _code(text: str) -> str:
    """Code, in which GitHub sees no markup and no name."""
    return f"`{visible(text)[:LONGEST].replace('`', chr(39))}`"


def measured_again(found: Verified, gpu: int | None) -> tuple[int, list[str]]:
    """Measures the same here, of the checkout that is the current folder; runs what it names."""
    says = found.says
    if found.problems:
        raise GpuliftError("it does not hold, so that nothing is measured again", errors.FAILED)
    origin = found.origin
    if not {*AGAIN, *OLD_TOOLS}.issuperset(origin.options) or origin.script.startswith("-"):
        raise GpuliftError("it has options that no certificate keeps")
    sides = [f"--base={origin.base}", f"--head={origin.head}", f"--seed={says['seed'] + 1}"]
    card = [] if gpu is None else [f"--gpu={gpu}"]
    with temporary_folder() as folder:
        file = folder / "again.json"
        out = [f"--out={folder / 'evidence'}", f"--certificate={file}"]
        say(f"measuring again: gate {shlex.join([*sides, *origin.words])}")
        program = [sys.executable, "-m", "gpulift"]
        command = [*program, "gate", *sides, *card, *out, *origin.words]
        callers = [int(one) for one in (os.environ.get(JOB_ENVIRONMENT),) if one]
        code = run(command, stdout=2, pass_fds=callers, check=False).returncode
        if not file.is_file():
            raise GpuliftError("nothing was measured again, see above", code or errors.FAILED)
        return held_against(found, verified(file))


def held_against(then: Verified, now: Verified) -> tuple[int, list[str]]:
    """The exit code and what to say of a certificate and a new one of the same gate."""
    rows = {row.subject: row for row in now.rows}
    here = [(row, rows.get(row.subject)) for row in then.rows if row.verdict in SIGNS]
    answers = [_answer(*both) for both in here]
    if not answers:
        return errors.INCONCLUSIVE, ["it decides no row, so that nothing can be confirmed"]
    worst = next(one for one in WORST_FIRST if one in answers)
    told = [
        f"{answer}: {old.subject}: {_figures(old)} then, {_figures(new) if new else ''} here"
        for answer, (old, new) in zip(answers, here, strict=True)
    ]
    facts = [("outputs", then.says["equal"], now.says["equal"])]
    conditions = (then.says["conditions"], now.says["conditions"])
    keys = dict.fromkeys([*conditions[0], *conditions[1]])
    facts += [(key, *(one.get(key, "not told") for one in conditions)) for key in keys]
    differ = [
        f"differs: {fact}" + (f" ({old} then, {new} here)" if fact != "outputs" else "")
        for fact, old, new in facts
        if old != new
    ]
    code = {NOT: errors.FAILED, UNDECIDED: errors.INCONCLUSIVE}.get(worst, errors.OK)
    return code, [worst, *told, *(differ or ["differs: nothing that either tells"])]


def _answer(then: Row, now: Row | None) -> str:
    """Sizes are the same where intervals overlap, or lie within the least change of each other."""
    if not (then.estimate and now and now.estimate and now.verdict in SIGNS):
        return UNDECIDED
    if SIGNS[then.verdict] != SIGNS[now.verdict]:
        return NOT
    old, new = then.estimate, now.estimate
    overlap = (old.low or 0) <= (new.high or 0) and (new.low or 0) <= (old.high or 0)
    apart = abs(math.log(new.value / old.value))
    return SAME if overlap or apart <= math.log1p(then.limit or 0) else SIZE
