"""results/FLEET.md: how often the rule of `siblings` names a sound card, and finds a slow one.

`python -m tools.fleet_trials` simulates fleets from the committed records of one model and writes
it. A test holds the records' digest and the rows of few cards against it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpulift.analysis.machine.checks import measured_checks
from gpulift.analysis.machine.siblings import WORTH_FAILING
from gpulift.analysis.machine.spread import Limits, Values, limits, spread_of
from gpulift.analysis.model_records import committed_files
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import summarise
from gpulift.engine import machine
from gpulift.ground import text
from gpulift.ground.errors import GpuliftError
from gpulift.ground.whole import write_whole
from gpulift.records.files import stem_of
from gpulift.records.read import cases_of
from gpulift.verdicts.stats import upper_bound

MODEL = "nvidia-h200"
PAGE = "FLEET.md"
SEED = 53
CEILINGS = "ceiling."
ENOUGH = 8  # runs of a roof, to draw from
NODES, FLEETS = 1000, 1000
FEW = (3, 4, 8)
SOME = (20, 100)
SLOWER = (0.03, 0.1)
SIZES = tuple(size / 100 for size in range(1, 31))
ENOUGH_FOUND = 0.95
HEAD = """\
# How often a fleet's outlier is wrong, and what is found

`python -m tools.fleet_trials` (in `scripts/`, seed {seed}) made this of the {model}'s committed
records {digest}: {runs} runs of roofs with three launches or more. A simulated card has in each
roof the rate and the interval of a run drawn from them, plus noise, roofs apart. *Recorded*: the
noise is normal, as wide as Silverman's rule has it for a density. *Normal*: no run is drawn, the
rate is normal with the runs' standard deviation. *t(5)* beside either: Student's t with five
degrees of freedom and the same deviation, tails longer than any that was recorded.
[METHOD](../scripts/gpulift/METHOD.md#siblings) has the rule. Bounds are exact, one-sided, with 95 %
confidence (Clopper and Pearson).
"""
FALSE = """
## Sound fleets in which a card is named

*Named*: any card stands out below the others in any roof; *failed*: one by more than {failing}.

"""
FOUND = """
## One slow card in one roof

How many of {fleets} fleets of *recorded* cards have it named, by roof and size of the fleet.
*Spread* is the runs' standard deviation, *smallest* the slow-down that is named in 95 of 100 fleets
of {nodes}.

"""
MEANING = """
Where sound cards differ by little, a card that is 3 % slower is found. In products on tensor cores
and on links of busy hosts they differ by so much that many a sound card is 3 % slower than the
median, and no rule names one without naming the others: there a card's own qualification, against
the reference of its model, is what finds it. Tails may be longer than those that were recorded: of
a fleet with t(5) in every roof most have a false name.

Few cards do not tell by what sound ones differ, so that the reference's tolerance holds for them,
which comes from these records, too; where a model has no reference, they are named more often.
"""
COLUMNS = ("cards", "drawn from", "fleets", "named", "below", "failed", "below")


@dataclass(frozen=True)
class Roof:
    """Runs of one roof: log rates about their median, and half their intervals on that scale."""

    id: str
    logs: Values
    halves: Values
    tolerance: float | None

    @property
    def deviation(self) -> float:
        """Standard deviation over runs."""
        return float(np.std(self.logs, ddof=1))


Draw = Callable[[Roof, int, np.random.Generator], tuple[Values, Values]]


def recorded(roof: Roof, count: int, random: np.random.Generator) -> tuple[Values, Values]:
    """Log rates and halves of intervals of so many cards."""
    return _of_runs(roof, random.standard_normal(count), random)


def recorded_t5(roof: Roof, count: int, random: np.random.Generator) -> tuple[Values, Values]:
    """The same with noise of long tails."""
    return _of_runs(roof, _student(count, random), random)


def normal(roof: Roof, count: int, random: np.random.Generator) -> tuple[Values, Values]:
    """Normal rates."""
    return _around(roof, random.standard_normal(count), random)


def normal_t5(roof: Roof, count: int, random: np.random.Generator) -> tuple[Values, Values]:
    """Rates of long tails."""
    return _around(roof, _student(count, random), random)


DRAWS: Mapping[str, Draw] = {
    "recorded": recorded,
    "recorded, t(5)": recorded_t5,
    "normal": normal,
    "t(5)": normal_t5,
}


def _of_runs(roof: Roof, noise: Values, random: np.random.Generator) -> tuple[Values, Values]:
    chosen = random.integers(roof.logs.size, size=noise.size)
    width = 1.06 * roof.deviation * roof.logs.size**-0.2
    return roof.logs[chosen] + width * noise, roof.halves[chosen]


def _around(roof: Roof, noise: Values, random: np.random.Generator) -> tuple[Values, Values]:
    return roof.deviation * noise, random.choice(roof.halves, size=noise.size)


def _student(count: int, random: np.random.Generator) -> Values:
    """Of unit variance."""
    values: Values = random.standard_t(5, count) * math.sqrt(3 / 5)
    return values


def named(logs: Values, halves: Values, needed: Limits) -> Values:
    """Log deviations of those that stand out below the others; 0 of all others."""
    spread = spread_of(logs)
    off = logs - spread.center
    near = -np.expm1(np.minimum(off + halves, 0))
    return np.where((spread.distances(logs) < -needed.far) & (near > needed.least), off, 0.0)


@dataclass(frozen=True)
class Shares:
    """Of how many sound fleets a card was named, and failed."""

    fleets: int
    named: int
    failed: int


def false_names(roofs: Sequence[Roof], draw: Draw, cards: int, fleets: int) -> Shares:
    """Of sound fleets."""
    random = np.random.default_rng(SEED)
    needed = [limits(cards, cards * len(roofs), roof.tolerance) for roof in roofs]
    hits = failed = 0
    for _ in range(fleets):
        off = [
            named(*draw(roof, cards, random), one) for roof, one in zip(roofs, needed, strict=True)
        ]
        hits += any(one.any() for one in off)
        failed += any((np.expm1(one) < -WORTH_FAILING).any() for one in off)
    return Shares(fleets, hits, failed)


def found(roof: Roof, roofs: int, cards: int, slower: Sequence[float], fleets: int) -> list[float]:
    """Shares of fleets in which one card that is so much slower is named."""
    random = np.random.default_rng(SEED)
    needed = limits(cards, cards * roofs, roof.tolerance)
    hits = np.zeros(len(slower))
    for _ in range(fleets):
        logs, halves = recorded(roof, cards, random)
        sound = logs[0]
        for number, one in enumerate(slower):
            logs[0] = sound + math.log1p(-one)
            hits[number] += named(logs, halves, needed)[0] < 0
    return [float(share) for share in hits / fleets]


def roofs_of(files: Iterable[Path], model: str) -> list[Roof]:
    """Of the runs that these record files are of, each apart."""
    stems: dict[Path, set[str]] = {}
    for file in files:
        if stem_of(file).startswith(CEILINGS):
            stems.setdefault(file.parent, set()).add(stem_of(file))
    values: dict[str, list[tuple[float, float]]] = {}
    for folder, names in sorted(stems.items()):
        for run in cases_of([folder], names):
            for check in measured_checks(summarise(run)):
                one = check.estimate
                if check.roof and one.launches > 2 and one.high is not None:
                    pair = (math.log(one.value), math.log(one.high / one.value))
                    values.setdefault(check.id, []).append(pair)
    known = find_reference(machine.checkout_root() / "results", model)
    tolerances = {id: entry.tolerance for id, entry in known.measured.items()} if known else {}
    return [
        _roof(id, runs, tolerances.get(id))
        for id, runs in sorted(values.items())
        if len(runs) >= ENOUGH
    ]


def _roof(id: str, runs: Sequence[tuple[float, float]], tolerance: float | None) -> Roof:
    logs, halves = np.asarray(runs).T
    return Roof(id, logs - np.median(logs), halves, tolerance)


def line_of_fleets(roofs: Sequence[Roof], name: str, cards: int, fleets: int) -> str:
    """A row of the table of false names."""
    shares = false_names(roofs, DRAWS[name], cards, fleets)
    cells = [_with_bound(hits, fleets) for hits in (shares.named, shares.failed)]
    return _line([cards, name, fleets, *cells])


def line_of_roof(roof: Roof, roofs: int, fleets: int) -> str:
    """A row of the table of slow cards."""
    few = [found(roof, roofs, cards, SLOWER, fleets) for cards in FEW]
    many = dict(zip(SIZES, found(roof, roofs, NODES, SIZES, fleets), strict=True))
    smallest = next((size for size, share in many.items() if share >= ENOUGH_FOUND), None)
    shares = [share for by_size in zip(*few, strict=True) for share in by_size]
    shares[len(FEW) : len(FEW)] = [many[SLOWER[0]]]
    cells = [f"{100 * share:.0f} %" for share in (*shares, many[SLOWER[1]])]
    largest = f"more than {text.percent(SIZES[-1])}"
    told = largest if smallest is None else text.percent(smallest)
    return _line([f"`{roof.id}`", roof.logs.size, text.percent(roof.deviation), *cells, told])


def page(files: Mapping[Path, str], fleets: int = FLEETS) -> str:
    """The content of FLEET.md, of the record files of the model with their hashes."""
    roofs = roofs_of(files, MODEL)
    many = [line_of_fleets(roofs, name, NODES, fleets) for name in DRAWS]
    few = [line_of_fleets(roofs, "recorded", cards, fleets) for cards in (*FEW, *SOME)]
    heads = [f"{text.percent(size)} of {cards}" for size in SLOWER for cards in (*FEW, NODES)]
    parts = (
        HEAD.format(
            seed=SEED, model=MODEL, digest=digest(files), runs=sum(r.logs.size for r in roofs)
        ),
        FALSE.format(failing=text.percent(WORTH_FAILING)),
        _head(COLUMNS),
        *many,
        *few,
        FOUND.format(fleets=fleets, nodes=NODES),
        _head(("roof", "runs", "spread", *heads, "smallest")),
        *(line_of_roof(roof, len(roofs), fleets) for roof in roofs),
        MEANING,
    )
    return "".join(parts)


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


def _main() -> None:
    results = machine.checkout_root() / "results"
    write_whole(page(committed_files(results, MODEL)), results / PAGE)


if __name__ == "__main__":
    try:
        _main()
    except GpuliftError as error:
        raise SystemExit(str(error)) from None
