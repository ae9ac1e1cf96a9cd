"""In which order processes of a command are started, and what is kept of those that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log
from typing import Any, Literal, TypeAlias

from gpulift.advise import launches, noise, plan, process
from gpulift.advise.advice import Advice, winners
from gpulift.advise.evidence import Failed, Process
from gpulift.advise.judge import ALL, advise
from gpulift.advise.process import Command, Ran
from gpulift.advise.progress import Progress
from gpulift.advise.settings import AS_IT_IS, Setting, merged
from gpulift.ground import text
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, INCONCLUSIVE, GpuliftError
from gpulift.ground.estimate import Estimate

FIRST_ROUNDS, LEAST_GAIN = 2, 1.01
LAUNCHES, MOST_LAUNCHES = 4, 50
ENDS = {"replays": 0.4, "turns": 0.8, "together": 1.0}  # of the time that there is
NO_TIME = "--within leaves no time for two processes of it"
LONGER = "let it train longer: some ten seconds of steps are needed"
AGAIN = "that was while steps were taken again, which --launch leaves out"
ROUNDED = 1  # the round whose process as it is tells how far rounding alone turns its losses
FLAT_S, LIVE_S, WINDOWS_S = 120.0, 2.0, 20.0
Mode: TypeAlias = Literal["replay", "launch", "live"]


@dataclass(frozen=True)
class Asked:
    """What the command line asks for. `only` is empty where all is tried."""

    command: Command
    mode: Mode = "replay"
    launches: int | None = None  # else as many as there is time for, or as usual
    only: tuple[str, ...] = ()
    vary: tuple[tuple[str, ...], ...] = ()
    within_s: float | None = None

    @property
    def most(self) -> int:
        """Launches."""
        return self.launches or (LAUNCHES if self.within_s is None else MOST_LAUNCHES)


@dataclass
class Measured:
    """What came of the processes until now. `code` is the exit code of a training that went on."""

    replays: list[Process] = field(default_factory=list)
    turns: list[Process] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    together: list[Process] = field(default_factory=list)
    cached: bool = True  # whether replays had their batches at once
    interrupted: bool = False
    hindered: str = ""  # why the command could not be started again
    code: int = 0
    seconds: float = 0.0  # of all processes

    @property
    def processes(self) -> list[Process]:
        """All, of whatever kind."""
        return [*self.replays, *self.turns, *self.together]

    def advice(self) -> Advice:
        """The answer."""
        every = self.replays or [one for one in self.turns if one.setting == AS_IT_IS.name]
        launch_s = self.seconds / len(every) if every else None
        sides = self.replays, self.turns, self.settings, self.together
        return advise(*sides, self.cached, launch_s)


class Interrupted(Exception):
    """While a process ran."""


class Hindered(Exception):
    """The command as it is, which ran before, cannot start."""


def measure(
    asked: Asked, progress: Progress, on_end: Callable[[Measured], None] = lambda _: None
) -> Measured:
    """All processes, or those until an interruption. `on_end` gets what was measured of a training
    that goes on.

    Raises GpuliftError where the first process came to no result."""
    rounds = _Rounds(asked, progress)
    try:
        if asked.mode == "live":
            rounds.live(on_end)
        else:
            rounds.replays() if asked.mode == "replay" else rounds.first_turn()
            rounds.turns()
            rounds.all_that_help()
    except (Interrupted, KeyboardInterrupt):
        rounds.measured.interrupted = True
    except Hindered as error:
        rounds.measured.hindered = str(error)
    return rounds.measured


class _Rounds:
    def __init__(self, asked: Asked, progress: Progress) -> None:
        self._asked, self._progress = asked, progress
        self._without: list[str] = []  # arms in which a process died
        self._ends_epochs = False  # while steps are taken again
        self._round = 0
        self._begun, self._expected = 0, ""
        self._turn_s = 0.0  # what a process without windows takes
        self._chosen = False  # settings
        self._known: dict[str, str] = {}  # of rows that were told, the gain
        self.measured = Measured(cached=asked.mode != "live")

    def _launches(self, phase: str, takes_s: float = 0.0) -> Iterator[int]:
        """As many as are asked for, and that there is time for until this phase ends. Without two
        replays nothing has an interval."""
        for launch in range(self._asked.most):
            began_s = self.measured.seconds
            if takes_s > self._left_s(phase) and (phase != "replays" or launch > 1):
                return
            yield launch
            takes_s = self.measured.seconds - began_s

    def _left_s(self, phase: str) -> float:
        if self._asked.within_s is None:
            return inf
        has_turns = not self._chosen or any(not one.why_not for one in self.measured.settings)
        end = ENDS["turns" if phase == "replays" and not has_turns else phase]
        return end * self._asked.within_s - self.measured.seconds

    def _leave_out(self) -> None:
        """Settings for which there is no time, as two rounds are the fewest that tell."""
        left_s = self._left_s("turns") / FIRST_ROUNDS - self._turn_s
        settings = []
        for one in self.measured.settings:
            if not one.why_not and (left_s := left_s - self._turn_s) < 0:
                one = replace(one, why_not=NO_TIME)
            settings.append(one)
        self.measured.settings = settings

    def _tell_rows(self, *under_way: Process) -> None:
        """What is new, as the rest takes minutes: gains alone, for verdicts are of all launches.
        What a process under way shows is told where there was nothing."""
        advice = replace(self.measured, replays=[*self.measured.replays, *under_way]).advice()
        rows = [*advice.rows, *([advice.together] if advice.together else [])]
        gains = {row.label: _shown(row.gain.estimate) for row in rows if row.gain}
        known = self._known
        kept = known if under_way else [one for one in gains if known.get(one) == gains[one]]
        if new := {label: gain for label, gain in gains.items() if label not in kept}:
            known.update(new)
            by = ", first windows" if under_way else ""
            say(f"so far, process {self._begun}{by}: {', '.join(map(' '.join, new.items()))}")

    def replays(self) -> None:
        """A process for each launch, and one more for each arm in which one died, and for a script
        that counts on the end of its epochs."""
        replays = self.measured.replays
        for launch in self._launches("replays"):
            ran = self._replay(launch)
            while self._leaves_out(ran, replays):
                ran = self._replay(launch)
            self._tell_rows()
            if launch == 0:
                self._choose(ran)

    def _leaves_out(self, ran: Ran, replays: list[Process]) -> bool:
        """Whether a process without what this one died of may come to more."""
        arm = ran.culprit
        if not self._ends_epochs and ran.ran_over:
            say(f"{ran.why}; the process is started once more, with epochs that end")
            self._ends_epochs = True
            replays.pop()
            return True
        if not arm or arm in self._without:
            return False
        say(f"{arm}: {ran.why}; the process is started once more, without it")
        self._without.append(arm)
        died = Failed(why=ran.why, arm=arm)
        replays[-1] = replace(ran.process, windows=(), failed=(died,))
        return True

    def first_turn(self) -> None:
        """What settings are chosen by, where nothing is replayed."""
        turn = self._take(AS_IT_IS, self._round, self._told("turn"), self.measured.turns)
        self._choose(turn)

    def turns(self) -> None:
        """Rounds of all settings and the step as it is, each the other way round. What helped in
        none of the first is not gone on with."""
        self._leave_out()
        tried = [one for one in self.measured.settings if not one.why_not]
        for launch in self._launches("turns"):
            if launch == FIRST_ROUNDS:
                tried = [one for one in tried if self._has_helped(one)]
            if tried:
                self._take_round(tried, self.measured.turns)

    def _has_helped(self, setting: Setting) -> bool:
        pairs = launches.paired(self.measured.turns, setting.name)
        logs = [
            launches.paired_gain_log(*pair) + (launches.items_log(*pair) or 0) for pair in pairs
        ]
        return max(logs, default=0.0) > log(LEAST_GAIN)

    def all_that_help(self) -> None:
        """The same of all changes that help at once. One setting alone was measured already."""
        names = [row.name for row in winners(self.measured.advice().rows)]
        parts = [one for one in self.measured.settings if one.name in names]
        switches = [name for name in names if name not in {one.name for one in parts}]
        if switches or len(parts) > 1:
            if self._asked.within_s is None:
                self._expected = f" of about {self._begun + 2 * self._asked.most}"
            for _ in self._launches("together", 2 * self._turn_s):
                self._take_round([merged(ALL, parts, switches)], self.measured.together)

    def live(self, on_end: Callable[[Measured], None]) -> None:
        """One process, which goes on to its own end."""

        def told_all(training: Process) -> None:
            self.measured.replays = [training]
            if training.steps_s:
                on_end(self.measured)

        told = self._told("live")
        on = {"end": told_all}
        ran = process.run(self._asked.command, AS_IT_IS, 0, told, self._progress.phase, on)
        self.measured.replays = [ran.process]
        self.measured.code = ran.code or 0
        if ran.interrupted:
            raise Interrupted
        _require_measured(ran)

    def _replay(self, launch: int) -> Ran:
        return self._take(AS_IT_IS, launch, self._told("replay"), self.measured.replays)

    def _take_round(self, settings: Sequence[Setting], kept: list[Process]) -> None:
        order = [AS_IT_IS, *settings]
        for setting in order if self._round % 2 == 0 else reversed(order):
            if not any(self._spares(setting, one) for one in kept if one.setting == setting.name):
                rounded = setting is AS_IT_IS and self._round == ROUNDED
                told = self._told("turn") | ({"rounded": True} if rounded else {})
                self._take(setting, self._round, told, kept)
                self._tell_rows()
        self._round += 1

    def _spares(self, setting: Setting, earlier: Process) -> bool:
        """Whether a process of the setting need not be started, for another that there was."""
        failed = any(not one.arm for one in earlier.failed)
        return earlier.turn == self._round or (failed and setting is not AS_IT_IS)

    def _take(
        self, setting: Setting, turn: int, told: Mapping[str, Any], kept: list[Process]
    ) -> Ran:
        self._begun += 1
        self._progress.begin(f"process {self._begun}{self._expected}: {setting.label}")
        on = {"window": self._tell_rows}
        ran = process.run(self._asked.command, setting, turn, told, self._progress.phase, on)
        self.measured.seconds += ran.seconds
        if not ran.interrupted or ran.process.steps_s:
            kept.append(ran.process)
        if ran.interrupted:
            raise Interrupted
        if setting is AS_IT_IS and self._begun > 1 and ran.code and ran.process.hello is None:
            raise Hindered(ran.why)
        return ran

    def _told(self, mode: str) -> dict[str, Any]:
        told = {"mode": mode, "flat_s": FLAT_S, "live_s": LIVE_S}
        if mode == "turn":
            return told
        only = list(self._asked.only) or None
        told |= {"windows_s": WINDOWS_S, "only": only, "without": [*self._without]}
        return told | ({"ends_epochs": True} if self._ends_epochs else {})

    def _choose(self, ran: Ran) -> None:
        """The settings, for what a process showed; tells how long all will take."""
        _require_measured(ran)
        for line in self.measured.advice().pace:
            say(line)
        asked = self._asked
        seen = plan.Seen.of(ran.process, asked.command.environment)
        settings = self.measured.settings = plan.settings(seen, asked.only, asked.vary)
        tried = sum(not one.why_not for one in settings)
        self._chosen = True
        turn_s = self._turn_s = ran.seconds - sum(one.seconds for one in ran.process.windows)
        if asked.within_s is not None:
            whole = f"{ran.seconds:.0f} s, or {turn_s:.0f} s where no step is taken again"
            say(f"a process takes {whole}; {text.seconds(asked.within_s)} for all of them")
            return
        replays = asked.most if asked.mode == "replay" else 0
        count = max(1, replays + (asked.most * (1 + tried) if tried else 0))
        self._expected = f" of about {self._begun - 1 + count}"
        if left := count - 1:
            minutes = ((replays or 1) - 1) * (ran.seconds - turn_s) / 60 + left * turn_s / 60
            say(
                f"about {left} more processes, {minutes:.1f} min; and"
                f" {2 * asked.most} of all that helps together"
            )


def _shown(gain: Estimate) -> str:
    """With its interval, where that tells anything."""
    tells = gain.half_width is not None and gain.half_width <= noise.WIDE
    return text.interval(gain, "×") if tells else text.ratio(gain.value)


def _require_measured(ran: Ran) -> None:
    """Raises GpuliftError where the process came to no result."""
    if ran.process.ended is None:
        trained = ran.code == 0 and bool(ran.phase or ran.process.hello)
        too_short = trained and ran.process.hello is not None
        hint = f"; {LONGER}" if too_short else f"; {AGAIN}" if ran.process.facts else ""
        raise GpuliftError(f"the command: {ran.why}{hint}", INCONCLUSIVE if trained else FAILED)
    if ran.why or ran.process.facts is None:
        why = ran.why or "its steps showed nothing to go by"
        raise GpuliftError(f"the command: {why}", INCONCLUSIVE)
