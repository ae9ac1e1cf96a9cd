"""certificates/judge.md: what the judge does with cheats and honest speed-ups, on this machine.

`python -m tools.judge_page` measures it anew and writes it: a quarter of an hour. What only a card
has is not in it. A test holds its rows against the files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from gpulift.gate.conditions import processor
from gpulift.gate.judge import describe
from gpulift.gate.load import CoreTimes, busy_elsewhere
from gpulift.ground.text import visible
from gpulift.judge.side import RefusedError
from gpulift.verdicts.decision import IMPROVED, REGRESSED, Verdict
from gpulift.verdicts.stats import upper_bound
from proof.judged import HONEST, SOFTMAX, cheats, honest, trials_of, verdict_on
from tools.page import write_page

PAGE = "certificates/judge.md"
HEAD = """\
# What the judge does with cheats

Of {cheats} cheats {accepted} accepted: below {below:.1f} % of cheats like these, with 95 %
confidence (Clopper and Pearson, one-sided). Of {honest} honest speed-ups {refused} refused; {found}
were found, {slower} came out slower, and the others could not be told from the base in the {most}
launches that each got, or more where a screen had flagged it.

`python -m tools.judge_page` (in `scripts/`) measured this on {date}: {machine}, of which other
processes kept {others:.1f} busy ahead of it. {walls}. The files are in
[proof/cheats](../../scripts/proof/cheats), how it judges is in
[METHOD](../../scripts/gpulift/METHOD.md#judge).

**Not run here, for want of a card**: events and streams of CUDA, a warm L2, a destroyed context,
and memory of the card that both sides have mapped.

## Cheats

*Refused* is what returns something else than the task asks for; what looks for a way to win, finds
none and does the work gets the verdict that its time has.

| cheat | what it does | verdict |
| --- | --- | --- |
"""
HONEST_HEAD = """
## Honest speed-ups

Of the softmax that is the base, which computes its exponentials 200 times more than it needs; each
of these passes takes about 0.4 % of its time. What spares no passes by its name spares 60.

| change | verdict |
| --- | --- |
"""
MOST = 68
QUIET_S = 5.0


@dataclass(frozen=True)
class Row:
    """What was judged, and how."""

    name: str
    says: str
    found: Verdict | RefusedError

    @property
    def word(self) -> str:
        """The verdict."""
        return self.found.verdict if isinstance(self.found, Verdict) else "refused"

    @property
    def line(self) -> str:
        """Of the table."""
        if isinstance(self.found, Verdict):
            told = describe(self.found)
        else:
            told = f"refused: {visible(str(self.found))}"
        cells = (f"`{self.name}`", self.says, told.replace("|", "/"))
        return f"| {' | '.join(cell for cell in cells if cell)} |\n"


def judged() -> tuple[list[Row], list[Row]]:
    """All of them, one after another."""
    return (
        list(_shown(Row(one.name, one.says, verdict_on(one.task, one.source)) for one in cheats())),
        list(
            _shown(Row(name, "", verdict_on(SOFTMAX, honest(name), most=MOST)) for name in HONEST)
        ),
    )


def page(found: Sequence[Row], true: Sequence[Row], walls: str, others: float) -> str:
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
        most=MOST,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        machine=processor(),
        others=others,
        walls=walls[:1].upper() + walls[1:],
    )
    lines = (*(row.line for row in found), HONEST_HEAD, *(row.line for row in true))
    return head + "".join(lines)


def _counted(count: int) -> str:
    return f"{count or 'none'} {'were' if count > 1 else 'was'}"


def _shown(rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        print(row.line, end="", file=sys.stderr, flush=True)
        yield row


def _made(_: Path) -> str:
    before = CoreTimes.now()
    time.sleep(QUIET_S)
    others = busy_elsewhere(before, CoreTimes.now(), QUIET_S)
    trials = trials_of(SOFTMAX, honest(next(iter(HONEST))))
    trials.launch()
    return page(*judged(), trials.walls, others)


if __name__ == "__main__":
    write_page(PAGE, _made)
