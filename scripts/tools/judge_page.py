"""certificates/judge.md: what the judge does with cheats and honest speed-ups, on this machine.

`python -m tools.judge_page` measures it anew and writes it: a quarter of an hour; with `--card`
certificates/judge_card.md, what only a card has: some minutes. Each case has a process of its own
kind, which may fail: `--log FILE` has what base and head say. `--only WORD` judges the cases that
have it in their names, and writes no page. A test holds the rows against the files.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from gpulift.gate.conditions import processor
from gpulift.gate.judge import describe
from gpulift.gate.load import CoreTimes, busy_elsewhere
from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.judge import cuda, side
from gpulift.judge.side import RefusedError
from gpulift.judge.task import Source
from gpulift.verdicts.decision import FASTER, IMPROVED, REGRESSED, Verdict
from gpulift.verdicts.stats import upper_bound
from proof.judged import CARD_HONEST, HONEST, cheats, honest, trials_of, verdict_on
from tools.page import write_page

PAGE, CARD_PAGE = "certificates/judge.md", "certificates/judge_card.md"
HEAD = """\
# What the judge does with cheats

Of {cheats} cheats {accepted} accepted: below {below:.1f} % of cheats like these, with 95 %
confidence (Clopper and Pearson, one-sided). Of {honest} honest speed-ups {refused} refused; {found}
were found, {slower} came out slower, and the others could not be told from the base in the {most}
launches that each got{more}.

`python -m tools.judge_page{option}` (in `scripts/`) measured this on {date}: {machine}, of which
other processes kept {others:.1f} cores busy ahead of it. {walls}. The files are in
[proof/cheats](../../scripts/proof/cheats), how it judges is in
[METHOD](../../scripts/gpulift/METHOD.md#judge).

{apart}

## Cheats

*Refused* is what returns something else than the task asks for; what looks for a way to win, finds
none and does the work gets the verdict that its time has.

| cheat | what it does | verdict |
| --- | --- | --- |
"""
APART = """\
**Not run here, for want of a card**: events and streams of CUDA, a warm L2, a destroyed context,
and memory of the card that both sides have mapped."""
CARD_APART = """\
These are the cheats that only a card makes possible; [the others](judge.md) ran on a processor."""
HONEST_HEAD = """
## Honest speed-ups

{of}

| change | verdict |
| --- | --- |
"""
OF_SOFTMAX = """\
Of the softmax that is the base, which computes its exponentials 200 times more than it needs; each
of these passes takes about 0.4 % of its time. What spares no passes by its name spares 60."""
OF_CARD = """\
Of bases that compute a product 40 times, or exponentials 300 times, more than they need; what
spares none by its name spares 40 % of them."""
MORE = ", or more where a screen had flagged it"
CARD_MORE = "; what looked faster in them counts as accepted, and as found"
# Launches of an honest one at most, and seconds that a case may take, on the processor and a card.
MOST, CARD_MOST = 68, 4
CASE_S, CARD_CASE_S = 1200.0, 75.0
FAILED = "failed"
QUIET_S = 5.0


Told = TypeVar("Told")


@dataclass(frozen=True)
class Row:
    """What was judged, and how."""

    name: str
    says: str
    word: str
    told: str

    @staticmethod
    def of(name: str, says: str, found: Verdict | RefusedError) -> Row:
        """The verdict."""
        if isinstance(found, Verdict):
            faster = found.unconfirmed and found.reason.startswith(f"looked {FASTER}")
            return Row(name, says, IMPROVED if faster else found.verdict, describe(found))
        of_base = "" if found.side == "head" else f"the {found.side}, "
        return Row(name, says, "refused", f"refused: {of_base}{visible(str(found))}")

    @property
    def line(self) -> str:
        """Of the table."""
        cells = (f"`{self.name}`", self.says, self.told.replace("|", "/"))
        return f"| {' | '.join(cell for cell in cells if cell)} |\n"


@dataclass(frozen=True)
class Case:
    """A cheat, or an honest speed-up, which gets so many launches."""

    name: str
    says: str
    most: int
    task: str
    head: Source

    def judged(self) -> Row:
        """In a process that may end of it; what the judge fails at is kept for its page."""
        try:
            return Row.of(self.name, self.says, verdict_on(self.task, self.head, self.most))
        except Exception as error:
            told = f"judge failed: {visible(f'{type(error).__name__}: {error}')}"
            return Row(self.name, self.says, FAILED, told)

    def about(self) -> tuple[str, str, str]:
        """What stands around it, through what memory, and the card."""
        trials = trials_of(self.task, self.head)
        trials.launch()
        card = trials.task.arrays == "cuda"
        name = cuda.required_torch().cuda.get_device_name() if card else ""
        return trials.walls, trials.through, name


def cases(card: bool) -> list[Case]:
    """All of a page."""
    true, most = (CARD_HONEST, 0) if card else (HONEST, MOST)
    return [
        *(Case(one.name, one.says, 0, one.task, one.source) for one in cheats(card)),
        *(Case(name, "", most, *honest(name)) for name in true),
    ]


class Judges:
    """A process that judges one case after another, and another one where it ends or hangs."""

    def __init__(self, limit_s: float, log: Path | None) -> None:
        self.limit_s = limit_s
        self.log = log
        self._pool = self._started()

    def told(self, step: Callable[[], Told]) -> Told:
        """Raises TimeoutError."""
        try:
            found: Told = self._pool.apply_async(step).get(self.limit_s)
        except multiprocessing.TimeoutError:
            self._pool.terminate()
            self._pool = self._started()
            raise TimeoutError(f"no answer within {self.limit_s:g} s") from None
        return found

    def rows(self, asked: Sequence[Case]) -> Iterator[Row]:
        """As they come."""
        for one in asked:
            began_s = time.monotonic()
            try:
                row = self.told(one.judged)
            except TimeoutError as error:
                row = Row(one.name, one.says, FAILED, f"judge failed: {error}")
            took_s = time.monotonic() - began_s
            print(f"{took_s:6.1f} s  {row.line}", end="", file=sys.stderr, flush=True)
            yield row

    def _started(self) -> Any:
        return multiprocessing.get_context("spawn").Pool(1, _log_to, (self.log,))


def page(
    found: Sequence[Row],
    true: Sequence[Row],
    walls: str,
    others: float,
    card: str = "",
) -> str:
    """The content of the page; `others` is how many cores others kept busy ahead of it."""
    accepted = sum(row.word == IMPROVED for row in found)
    words = [row.word for row in true]
    head = HEAD.format(
        cheats=len(found),
        accepted=_counted(accepted),
        below=100 * upper_bound(accepted, len(found)),
        honest=len(true),
        refused=_counted(words.count("refused")),
        found=words.count(IMPROVED),
        slower=words.count(REGRESSED),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        most=CARD_MOST if card else MOST,
        more=CARD_MORE if card else MORE,
        option=" --card" if card else "",
        apart=CARD_APART if card else APART,
        machine=f"{card}, {processor()}" if card else processor(),
        others=others,
        walls=walls[:1].upper() + walls[1:],
    )
    true_head = HONEST_HEAD.format(of=OF_CARD if card else OF_SOFTMAX)
    return head + "".join((*(row.line for row in found), true_head, *(row.line for row in true)))


def _counted(count: int) -> str:
    return f"{count or 'none'} {'were' if count > 1 else 'was'}"


def _log_to(log: Path | None) -> None:
    if log:
        side.STDERR = log.open("ab")


def _made(card: bool, judges: Judges) -> str:
    before = CoreTimes.now()
    time.sleep(QUIET_S)
    others = busy_elsewhere(before, CoreTimes.now(), QUIET_S)
    asked = cases(card)
    walls, through, name = judges.told(asked[-1].about)
    print(f"{name}: {through}; {walls}", file=sys.stderr, flush=True)
    rows: list[Row] = []
    try:
        rows.extend(judges.rows(asked))
    except KeyboardInterrupt:  # what was judged is kept
        left = ", ".join(f"`{one.name}`" for one in asked[len(rows) :])
        walls += f"; it was interrupted ahead of {left}"
    count = len(cheats(card))
    through = f"; inputs and outputs go through {through}" if card else ""
    return page(rows[:count], rows[count:], walls + through, others, name)


def main() -> None:
    """Writes a page, or shows some rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--card", action="store_true")
    parser.add_argument("--only", metavar="WORD")
    parser.add_argument("--log", metavar="FILE", type=Path)
    asked = parser.parse_args()
    try:
        if asked.card:
            cuda.required_torch()
    except GpuliftError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    judges = Judges(CARD_CASE_S if asked.card else CASE_S, asked.log)
    if asked.only is None:
        write_page(CARD_PAGE if asked.card else PAGE, lambda _: _made(asked.card, judges))
    else:
        list(judges.rows([one for one in cases(asked.card) if asked.only in one.name]))


if __name__ == "__main__":
    main()
