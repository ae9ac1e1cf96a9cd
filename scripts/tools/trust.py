"""results/TRUST.md: how often what gpulift says is wrong, in five numbers: `python -m tools.trust`.

They are taken from the certificate of the gate and from the pages beside it, and put into the text
of trust.txt; a test fails where TRUST.md is stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from gpulift.gate.certificate import (
    DetectionByGate,
    SuitesByGate,
    file_of,
    read_certificate,
)
from gpulift.ground.errors import GpuliftError
from gpulift.verdicts.decision import percent
from tools import advise_page, coverage, fleet_trials, judge_page
from tools.page import write_page

PAGE = "TRUST.md"
MODEL = "nvidia-h200"
NORMAL = "6 rows or more"
ByGate = TypeVar("ByGate", SuitesByGate, DetectionByGate)
SIZE = 0.005
# The columns of each page that a number is taken from.
LEFT_OUT = r"^\| all \| \d+ \| (?P<left_out>\d+) \| (?P<held>\S+ %) \| (?P<later>\S+ %) \|"
LONG_TAILS = r"^\| 1000 \| t\(5\) \| \d+ \| (?P<long_tails>\S+ %) \|"
FEW = r"^\| 3 \| recorded, no reference \| \d+ \| (?P<few>\S+ %) \|"
FLEETS = r"^\| 1000 \| recorded \| (?P<fleets>\d+) \| (?P<named>\S+ %) \| (?P<named_below>\S+ %)"
CHEATS = (
    r"^Of (?P<cheats>\d+) cheats (?P<accepted>\w+) (?:was|were) accepted: below"
    r" (?P<accepted_below>\S+ %) .* (?P<honest>\d+) honest speed-ups (?P<refused>\w+) w"
)
ADVICE = (
    r"^Of (?P<faults>\d+) planted faults whose cost shows (?P<faults_named>\w+) w\w+ named,"
    r" .*\s(?P<agreeing>\d+) of (?P<prices>\d+) prices agree, (?P<bounds>\d+) .*"
    r"\s(?P<idle>\d+)\schanges that do nothing (?P<helping>\w+) w\w+ told to help:"
    r" below (?P<helping_below>\S+ %)"
)
TEXT = Path(__file__).with_suffix(".txt")


def page(results: Path) -> str:
    """The content of TRUST.md."""
    certificate = read_certificate(file_of(results, MODEL))
    suites = _normal(certificate.suites_by_gate)
    planted = _normal(one for one in certificate.detection_by_gate if one.size == SIZE)
    found = {
        key: value
        for name, pattern in (
            (coverage.TABLE, LEFT_OUT),
            (fleet_trials.PAGE, FLEETS),
            (fleet_trials.PAGE, LONG_TAILS),
            (fleet_trials.PAGE, FEW),
            (judge_page.PAGE, CHEATS),
            (advise_page.PAGE, ADVICE),
        )
        for key, value in _read(results / name, pattern).items()
    }
    by_gate: list[SuitesByGate | DetectionByGate] = [*certificate.suites_by_gate]
    by_gate += certificate.detection_by_gate
    return TEXT.read_text(encoding="utf-8").format(
        alarms=suites.alarms,
        suites=suites.suites,
        alarms_below=percent(suites.upper),
        size=percent(SIZE),
        found=planted.found,
        trials=planted.trials,
        found_above=percent(planted.lower),
        by_gate="".join(map(_line, by_gate)),
        **found,
    )


def _normal(rows: Iterable[ByGate]) -> ByGate:
    """The row of normal gates; the certificate has one."""
    (found,) = (one for one in rows if one.gate == NORMAL)
    return found


def _read(page: Path, pattern: str) -> dict[str, str]:
    """What a page says of itself. Raises GpuliftError where it says no such thing."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise GpuliftError(f"{page}: {error.strerror}") from None
    found = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise GpuliftError(f"{page}: does not say what TRUST.md takes from it")
    return found.groupdict()


def _line(one: SuitesByGate | DetectionByGate) -> str:
    order = "carried on" if one.order_carried else "begun anew"
    if isinstance(one, SuitesByGate):
        cells = ("nothing", one.suites, one.alarms, f"below {percent(one.upper)}")
    else:
        cells = (percent(one.size), one.trials, one.found, f"above {percent(one.lower)}")
    return f"| {' | '.join(map(str, (one.gate, order, *cells)))} |\n"


if __name__ == "__main__":
    write_page(PAGE, page)
