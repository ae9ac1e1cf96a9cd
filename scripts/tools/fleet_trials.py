"""certificates/fleet.md: how often the rule of siblings names a sound card, and finds a slow one.

`python -m tools.fleet_trials` simulates fleets from the committed records of one model and writes
it. A test holds the records' digest and the rows of few cards against it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.analysis.machine.results import WORTH_FAILING
from gpulift.analysis.model_records import committed_files
from gpulift.records.files import stem_of
from gpulift.verdicts.stats import upper_bound
from tools.fleet_simulation import (
    CEILINGS,
    DRAWS,
    RECORDED,
    SEED,
    Roof,
    Shares,
    false_names,
    found,
    roofs_of,
)
from tools.page import write_page

MODEL = "nvidia-h200"
PAGE = "certificates/fleet.md"
NODES, FLEETS = 1000, 1000
FEW = (3, 4, 8)
SOME = (20, 100)
SLOWER = (0.03, 0.1)
SIZES = tuple(size / 100 for size in range(1, 31))
ENOUGH_FOUND = 0.95
HEAD = """\
# How often a fleet's outlier is wrong, and what is found

Of {fleets} simulated fleets of {nodes} sound cards {wrong} had one named as slow. A card that is
3 % slower in one roof is named in 95 of 100 fleets where sound cards differ by little:
{found}.
In the other roofs they differ by so much that many a sound card is 3 % slower than the median, and
no rule names one without naming the others; there the card's own qualification, against the
reference of its model, is what finds it.

`python -m tools.fleet_trials` (in `scripts/`, seed {seed}) made this of the {model}'s committed
records {digest}: {runs} runs of roofs with three launches or more. In each roof, whatever it has in
the others, a simulated card has rate and interval of a run drawn from them, plus noise.
*Recorded*: the noise is normal, as wide as Silverman's rule has it for a density. *Normal*: the
rate is normal with the runs' standard deviation. *t(5)*, of either: Student's t with five degrees
of freedom and the same deviation, tails longer than any that was recorded. Few cards are held to
the reference's tolerance, too, which comes from these records; *no reference*: they are not.
[METHOD](../../scripts/gpulift/METHOD.md#siblings) has the rule. Bounds are exact, one-sided, with
95 % confidence (Clopper and Pearson).

## Sound fleets in which a card is named

*Named*: any card stands out below the others in any roof; *failed*: one by more than {failing}.

"""
FOUND = """
## One slow card in one roof

In how many of {fleets} fleets of *recorded* cards it is named, by how much slower it is and of how
many. *Spread* is the runs' standard deviation, *smallest* the slow-down that is named in 95 of 100
fleets of {nodes}.

"""
COLUMNS = ("cards", "drawn from", "fleets", "named", "bound", "failed", "bound")


def line_of_fleets(name: str, cards: int, shares: Shares) -> str:
    """A row of the table of false names."""
    cells = [_with_bound(hits, shares.fleets) for hits in (shares.named, shares.failed)]
    return _line([cards, name, shares.fleets, *cells])


@dataclass(frozen=True)
class Found:
    """Shares of fleets in which one slow card in a roof is named: of few by cards, of many."""

    roof: Roof
    few: Mapping[int, Sequence[float]]  # by SLOWER
    many: Mapping[float, float]  # by SIZES

    @property
    def smallest(self) -> float | None:
        """The smallest that is found nearly always."""
        sizes = (size for size, share in self.many.items() if share >= ENOUGH_FOUND)
        return next(sizes, None)

    @property
    def line(self) -> str:
        """A row of the table of slow cards."""
        shares = [
            share
            for number, size in enumerate(SLOWER)
            for share in (*(self.few[cards][number] for cards in FEW), self.many[size])
        ]
        cells = [f"{100 * share:.0f} %" for share in shares]
        smallest = self.smallest
        told = f"more than {_size(SIZES[-1])}" if smallest is None else _size(smallest)
        spread = f"{100 * self.roof.deviation:.2f} %"
        return _line([f"`{self.roof.id}`", self.roof.logs.size, spread, *cells, told])


def found_in(roof: Roof, roofs: int, fleets: int) -> Found:
    """In fleets of all sizes."""
    few = {cards: found(roof, roofs, cards, SLOWER, fleets) for cards in FEW}
    many = found(roof, roofs, NODES, SIZES, fleets)
    return Found(roof, few, dict(zip(SIZES, many, strict=True)))


def page(files: Mapping[Path, str], fleets: int = FLEETS) -> str:
    """The content of the page, of the record files of the model with their hashes."""
    roofs = roofs_of(files, MODEL)
    bare = [replace(roof, tolerance=None) for roof in roofs]
    rows = [(name, NODES, roofs) for name in DRAWS]
    rows += [(RECORDED, cards, roofs) for cards in (*SOME, *FEW)]
    rows += [(RECORDED, cards, bare) for cards in FEW]
    shares = [false_names(drawn, DRAWS[name], cards, fleets) for name, cards, drawn in rows]
    slow = [found_in(roof, len(roofs), fleets) for roof in roofs]
    told = [f"`{one.roof.id}`" for one in slow if one.many[SLOWER[0]] >= ENOUGH_FOUND]
    head = HEAD.format(
        seed=SEED,
        model=MODEL,
        digest=digest(files),
        runs=sum(roof.logs.size for roof in roofs),
        fleets=fleets,
        nodes=NODES,
        wrong=shares[0].named or "none",
        found=", ".join(told) or "none",
        failing=_size(WORTH_FAILING),
    )
    heads = [f"{_size(size)} of {cards}" for size in SLOWER for cards in (*FEW, NODES)]
    lines = [
        line_of_fleets(name if drawn is roofs else f"{name}, no reference", cards, one)
        for (name, cards, drawn), one in zip(rows, shares, strict=True)
    ]
    parts = (
        *(head, _head(COLUMNS), *lines, FOUND.format(fleets=fleets, nodes=NODES)),
        *(_head(("roof", "runs", "spread", *heads, "smallest")), *(one.line for one in slow)),
    )
    return "".join(parts)


def _size(size: float) -> str:
    return f"{100 * size:.0f} %"


def digest(files: Mapping[Path, str]) -> str:
    """Of the contents of the files that fleets are drawn from, which git has hashed."""
    hashes = sorted(hash for file, hash in files.items() if stem_of(file).startswith(CEILINGS))
    return hashlib.sha256("".join(hashes).encode("ascii")).hexdigest()[:12]


def _with_bound(hits: int, fleets: int) -> str:
    return f"{100 * hits / fleets:.1f} % | {100 * upper_bound(hits, fleets):.1f} %"


def _head(names: Sequence[str]) -> str:
    return _line(names) + _line(["---"] * len(names))


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


if __name__ == "__main__":
    write_page(PAGE, lambda results: page(committed_files(results, MODEL)))
