"""Plants faults in training scripts and asks `gpulift advise` of each, in some two hours.

    python -m proof.advise OUT.json [--size small|large] [--python INTERPRETER] [SCRIPT...]
    python -m proof.advise OUT.json --same 6: nothing planted, six changes that do nothing

Run by hand, in `scripts/`. Scripts with and without a fault are timed in turns. Each case is kept
in the file as soon as it is measured; a file that is there is gone on with.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from gpulift.engine import machine
from gpulift.ground.entry import say
from gpulift.ground.errors import INCONCLUSIVE, OK, GpuliftError
from gpulift.ground.programs import finished, text_of
from gpulift.records.decode import decoded
from gpulift.records.private import private_strings
from proof import advice
from proof.advice import IDLE_SWITCHES, Advice, Case, Facts, fault_of, names_to_try

SCRIPTS = Path(__file__).with_name("advised")
PROGRAM = Path(__file__).parents[1]  # with its __main__.py
SMALL, LARGE = "small", "large"
STEPS = {SMALL: 200, LARGE: 96}  # of a timed process, of which the last half counts
PASSES = 4  # the order of each is that of the one before, turned round
SCRIPT_LIMIT_S, ADVICE_LIMIT_S = 600.0, 3600.0
TIMED = re.compile(r"steps (\d+) seconds (\d+\.\d+)\s*")
LINE = 160  # characters of a reason


class NotTaken(Exception):
    """Why a program came to no result."""


@dataclass(frozen=True)
class Trials:
    """How cases are taken, and who keeps each as soon as it changes."""

    python: Path
    size: str
    on_gpu: bool
    keep: Callable[[Case], None]
    say: Callable[[str], None]
    same: int = 0  # changes that do nothing, of scripts as they are and nothing else

    def take(self, script: str, held: Iterable[Case]) -> None:
        """Takes what `held` lacks of the cases of one script."""
        if self.same:
            if not any(case.script == script and case.advice for case in held):
                self.keep(self._advised(Case(script, "")))
            return
        timed_before = {
            case.fault: replace(case, reason="")
            for case in held
            if case.script == script and len(case.step_s) == PASSES
        }
        cases = [
            timed_before.get(name) or self._planned(script, name) for name in faults_in(script)
        ]
        timed = [case for case in cases if not case.reason]
        if not all(len(case.step_s) == PASSES for case in timed):
            timed = self._timed(timed)
        for case in (*(one for one in cases if one.reason), *timed):
            self.keep(case)
        for case in timed:
            if case.advice is None and not case.reason:
                self.keep(self._advised(case))

    def _planned(self, script: str, fault: str) -> Case:
        told = fault_of(script, fault) if fault else None
        if told and told.on_gpu and not self.on_gpu:
            return Case(script, fault, reason="costs nothing without a GPU")
        if told and told.large and self.size != LARGE:
            return Case(script, fault, reason="costs nothing in a small model")
        return Case(script, fault)

    def _timed(self, cases: Sequence[Case]) -> list[Case]:
        """Each once a pass; where one fails no other of its script is timed."""
        seconds: dict[str, list[float]] = {case.fault: [] for case in cases}
        for number in range(PASSES):
            for case in cases if number % 2 == 0 else reversed(cases):
                name = _name(case)
                self.say(f"pass {number + 1} of {PASSES}: {name}")
                try:
                    seconds[case.fault].append(self._step_s(case))
                except NotTaken as error:
                    return [replace(one, reason=f"{name}: {error}") for one in cases]
        return [replace(case, step_s=tuple(seconds[case.fault])) for case in cases]

    def _step_s(self, case: Case) -> float:
        command = [*self._command(case), "--steps", str(STEPS[self.size])]
        done = _finished(command, SCRIPT_LIMIT_S)
        if done.returncode != OK:
            raise NotTaken(_last_line(done))
        found = TIMED.fullmatch(text_of(done.stdout))
        if found is None:
            raise NotTaken("did not say its time")
        return float(found[2]) / int(found[1])

    def _advised(self, case: Case) -> Case:
        self.say(f"advice: {_name(case)}")
        try:
            with TemporaryDirectory() as folder:
                program = [sys.executable, str(PROGRAM), "advise", "--json", "--out", folder]
                names = names_to_try(case.script, case.fault)
                if self.same:
                    names = [IDLE_SWITCHES[0]]
                tried = ["--only", ",".join(names)] if names else []
                if not case.fault:  # what is there already does nothing more
                    tried += ["--vary", f"--size {self.size}"] * max(self.same, 1)
                program += [*tried, "--", *self._command(case)]
                done = _finished(program, ADVICE_LIMIT_S)
            if done.returncode not in (OK, INCONCLUSIVE):
                raise NotTaken(_last_line(done))
            advice = decoded(done.stdout.strip(), Advice, "gpulift advise --json")
        except (NotTaken, GpuliftError) as error:
            return replace(case, reason=f"advise: {error}")
        notes = tuple(note for note in advice.notes if not any(private_strings(note)))
        return replace(case, advice=replace(advice, notes=notes))

    def _command(self, case: Case) -> list[str]:
        plant = ["--plant", case.fault] if case.fault else []
        script = SCRIPTS / f"{case.script}.py"
        return [str(self.python), str(script), "--size", self.size, *plant]


def faults_in(script: str) -> list[str]:
    """What can be planted in a script; first nothing, the empty name."""
    text = (SCRIPTS / f"{script}.py").read_text(encoding="utf-8")
    (names,) = re.findall(r'^FAULTS = "(.*)"', text, re.MULTILINE)
    return ["", *names.split()]


def _finished(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[bytes]:
    try:
        return finished(command, limit_s)
    except subprocess.TimeoutExpired:
        raise NotTaken(f"not done in {limit_s:.0f} s") from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """What a program said last, unless that tells of this machine."""
    lines = text_of(done.stderr).strip().splitlines()
    line = lines[-1][:LINE] if lines else ""
    told = "" if not line or any(private_strings(line)) else f": {line}"
    return f"exit code {done.returncode}{told}"


def _name(case: Case) -> str:
    return f"{case.script} with {case.fault}" if case.fault else case.script


def main(
    out: Annotated[Path, typer.Argument(metavar="OUT.json", help="The certificate.")],
    scripts: Annotated[list[str] | None, typer.Argument(help="All by default.")] = None,
    size: Annotated[str, typer.Option(help=f"{SMALL} or {LARGE} models.")] = "",
    python: Annotated[str, typer.Option(help="Interpreter of the scripts.")] = sys.executable,
    same: Annotated[int, typer.Option(min=0, help="Plant nothing: so many idle changes.")] = 0,
) -> None:
    """Plant faults in training scripts and see whether `advise` names and prices them."""
    interpreter = machine.find_interpreter("--python", python)
    context = machine.describe(machine.find_bench())
    on_gpu = context.gpu is not None
    facts = Facts(
        machine=context.slug,
        size=size or (LARGE if on_gpu else SMALL),
        driver=context.driver,
        commit=context.build.commit,
        dirty=bool(context.build.dirty),
        on_gpu=on_gpu,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    )
    cases = held_cases(out, facts)

    def keep(case: Case) -> None:
        cases[case.script, case.fault] = case
        advice.write_certificate(advice.issue(facts, tuple(cases.values())), out)

    trials = Trials(interpreter, facts.size, on_gpu, keep, say, same)
    for script in scripts or advice.SCRIPTS:
        trials.take(script, tuple(cases.values()))
    for planted in advice.issue(facts, tuple(cases.values())).planted:
        typer.echo(f"{planted.script} {planted.fault}: {planted.outcome} {planted.reason}".strip())


def held_cases(file: Path, facts: Facts) -> dict[tuple[str, str], Case]:
    """The cases of a certificate that is gone on with. Raises GpuliftError where they do not go
    with what is measured now."""
    if not file.exists():
        return {}
    held = advice.read_certificate(file)
    if {**asdict(held.facts), "date": ""} != {**asdict(facts), "date": ""}:
        raise GpuliftError(f"{file}: its cases are of another machine, size or build: name another")
    return {(case.script, case.fault): case for case in held.cases}


if __name__ == "__main__":
    try:
        typer.run(main)
    except GpuliftError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
