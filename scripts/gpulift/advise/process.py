"""One process of the user's command, with the probe in it, from its start to its end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpulift.advise import ranked
from gpulift.advise.evidence import BASELINE, Failed, Process
from gpulift.advise.following import Following, Hearing, Tail
from gpulift.advise.settings import Setting
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import text_of
from gpulift.ground.signals import Signals
from gpulift.ground.text import visible
from gpulift.ground.whole import temporary_folder

INJECT = Path(__file__).with_name("inject")
PLAN, SAID = "GPULIFT_ADVISE", "GPULIFT_ADVISE_SAID"
AHEAD = (
    "this is a rank of a job already: have advise start the launcher, as in advise -- torchrun"
    " --nproc-per-node 2 train.py"
)
SEVERAL_HOSTS = re.compile(r"--(?:nnodes|num[_-]machines)[= ](?!1(?::1)?(?:\s|$))")
ONE_HOST = "ranks are followed on one alone: start the command with --nnodes 1"
LAST_BYTES = 16384  # of an output, in which its last line is looked for
LAST_LETTERS = 300
COUNTED = ("AssertionError", "IndexError", "KeyError", "StopIteration", "ValueError")
NO_TORCH = "no Python that reads PYTHONPATH imported torch, so that nothing could be measured"
NO_STEP = "no optimizer of torch.optim took a step, by which steps are known"


@dataclass(frozen=True)
class Command:
    """What the user runs. `passes`: it is no trial; its output goes where ours goes, or all to
    stderr, and what would interrupt us is for it first."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    silence_s: float  # after which it hangs
    passes: bool = False
    verbose: bool = False
    to_stderr: bool = False


@dataclass(frozen=True)
class Ran:
    """A process that ended. `phase` is what it did last."""

    process: Process
    seconds: float
    code: int | None = None  # None where it was stopped
    phase: str = ""
    interrupted: bool = False

    @property
    def why(self) -> str:
        """How it ended short of its last message; empty where it did not."""
        return next((one.why for one in self.process.failed if not one.arm), "")

    @property
    def ran_over(self) -> bool:
        """Whether it died while steps were taken again, by what a script does that counts on the
        end of its epochs."""
        process = self.process
        if process.ended is not None or self.interrupted or process.facts is None:
            return False
        return not self.culprit or any(one.why in COUNTED for one in process.failed)

    @property
    def culprit(self) -> str:
        """The arm in which it died; empty where it did not, or none is known."""
        if self.process.ended is not None or self.interrupted:
            return ""
        said = [failed.arm for failed in self.process.failed if failed.arm]
        named = self.phase.rpartition(": ")[2]
        known = named in self.process.arms and named != BASELINE
        return said[-1] if said else named if known else ""


def require_open(command: Command) -> None:
    """Raises GpuliftError for a command into which the probe cannot get."""
    ranks = command.environment.get("WORLD_SIZE") or "1"
    if not ranks.isdecimal() or int(ranks) == 0:
        raise GpuliftError(f"WORLD_SIZE={ranks} is no number of ranks: unset it")
    if int(ranks) > 1:
        raise GpuliftError(f"WORLD_SIZE={ranks}: {AHEAD}")
    if SEVERAL_HOSTS.search(" ".join(command.arguments)):
        raise GpuliftError(f"several hosts: {ONE_HOST}")
    for option in _interpreter_options(command.arguments):
        if option in "IES":
            raise GpuliftError(
                f"python -{option} ignores PYTHONPATH or sitecustomize, by which the probe gets in:"
                " leave it out"
            )


def _interpreter_options(arguments: Sequence[str]) -> Iterator[str]:
    """Letters of a Python's own options, up to the script."""
    if not re.fullmatch(r"python[\d.]*", Path(arguments[0]).name):
        return
    rest = iter(arguments[1:])
    for argument in rest:
        if not re.match("-[A-Za-z]", argument):
            return
        for at, letter in enumerate(argument[1:], 2):
            yield letter
            if letter in "cm":
                return
            if letter in "WX":  # the rest is its value, or what follows
                if at == len(argument):
                    next(rest, None)
                break


def run(
    command: Command,
    setting: Setting,
    turn: int,
    plan: Mapping[str, Any],
    on_phase: Callable[[str], None],
    on: Mapping[str, Callable[[Process], None]] = MappingProxyType({}),
) -> Ran:
    """Starts the command with the setting and follows it to its end, which is that of all that it
    started. What was said until then goes to `on["window"]` behind each of them, and to
    `on["end"]` with the last message, as the command may go on.

    Raises GpuliftError where it cannot be started, and of ranks that cannot be followed."""
    with temporary_folder() as folder, Signals() as signals, ExitStack() as opened:
        said, outputs = folder / "said.jsonl", (folder / "stdout", folder / "stderr")

        def tell(listener: Callable[[Process], None]) -> None:
            try:
                listener(ranked.read_ranks(setting.name, turn, said))
            except (GpuliftError, OSError) as error:  # for which no training is stopped
                say(f"warning: {error}")

        began_s = time.monotonic()
        process = _started(command, setting, plan, said, signals, opened, outputs)
        listeners = {kind: partial(tell, listener) for kind, listener in on.items()}
        hearing = Hearing(said, on_phase, listeners)
        shown = [Tail(file) for file in outputs] if command.verbose else []
        silence_s, goes_on = command.silence_s, command.passes
        following = Following(process, signals, hearing, silence_s, goes_on, shown)
        try:
            why = following.to_end()
        finally:
            following.end()
        following.listen()
        ran = Ran(
            ranked.read_ranks(setting.name, turn, said),
            time.monotonic() - began_s,
            None if why else process.returncode,
            hearing.phase,
            following.interrupted,
        )
        return replace(ran, process=_with_end(ran, why, _last_words(outputs[1])))


def _started(
    command: Command,
    setting: Setting,
    plan: Mapping[str, Any],
    said: Path,
    signals: Signals,
    opened: ExitStack,
    outputs: Sequence[Path],
) -> subprocess.Popen[bytes]:
    stdout, stderr = (
        None if command.passes else opened.enter_context(file.open("wb")) for file in outputs
    )
    try:
        return subprocess.Popen(
            [*command.arguments, *setting.arguments],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if command.to_stderr else stdout,
            stderr=stderr,
            env=environment_of(command, setting, plan, said),
            start_new_session=True,
            preexec_fn=signals.restore_mask,
        )
    except OSError as error:
        what = command.arguments[0]
        raise GpuliftError(f"{what}: cannot be started: {error.strerror}") from None


def environment_of(
    command: Command, setting: Setting, plan: Mapping[str, Any], said: Path
) -> dict[str, str]:
    """The caller's, with the setting's and with the probe ahead of all other modules."""
    made = {**command.environment, **setting.environment}
    theirs = made.get("PYTHONPATH")
    made["PYTHONPATH"] = os.pathsep.join([str(INJECT), *([theirs] if theirs else [])])
    if not command.passes:
        made.setdefault("WANDB_MODE", "disabled")
    ahead = {"environment": setting.environment, "arguments": setting.arguments}
    return made | {PLAN: json.dumps({**plan, **ahead, **setting.told}), SAID: str(said)}


def _with_end(ran: Ran, why: str, last_words: str) -> Process:
    """What the process said, and first of all how it ended short of its last message."""
    process = ran.process
    if process.ended is not None:
        return process
    if ran.interrupted:
        return replace(process, failed=tuple(one for one in process.failed if one.arm))
    if why and process.hello is None:
        why += f", and {NO_STEP}"
    return replace(process, failed=(Failed(why=why or _ended(ran, last_words)), *process.failed))


def _ended(ran: Ran, last_words: str) -> str:
    said = f": {last_words}" if last_words else ""
    code = ran.code or 0
    if code:
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return f"it ended with {how}{said}"
    if ran.process.hello is None:
        return NO_STEP if ran.phase else NO_TORCH
    return ran.why or "it ended ahead of its last message"


def _last_words(file: Path) -> str:
    """The rank that a launcher says died, else the last line of what the command wrote there; empty
    where it wrote nothing, or to somewhere else."""
    with suppress(FileNotFoundError), file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - LAST_BYTES))
        written = text_of(opened.read())
        lines = [line for line in written.splitlines() if line.strip()]
        return visible((ranked.died(written) or "".join(lines[-1:])).strip()[-LAST_LETTERS:])
    return ""
