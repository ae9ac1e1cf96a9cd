"""`results/GATE_TRIALS.md`: the trials behind a certificate by gate and by row, with bounds.

`python -m tools.certificates_page` writes it anew; a test fails where it is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpulift.gate.certificate import Certificate, file_of, read_certificate
from gpulift.verdicts.decision import percent
from tools.page import write_page

FILE = "GATE_TRIALS.md"
MODEL = "nvidia-h200"
ABOUT = """\
# The trials of the H200's gate, by gate and by row

Made of `certificates/nvidia-h200.json` by `python -m tools.certificates_page` (in `scripts/`);
[GATE](GATE.md) says what they mean. Bounds are exact and one-sided, with 95 % confidence (Clopper
and Pearson), and take trials for independent: several of one row are less. A gate shares its
error budget among its rows, so that one of a single row finds more than it would among others.
*Order*: whether the runs of a screen carry on the order in which sides prepare (from 75a03a7 on);
in the trials before, the head prepared first in the first four launches, which read up to 0.5 %
slower in overlaps of 1 MiB, so that slow-downs that were planted there were found more easily.
"""


def text(certificate: Certificate) -> str:
    """The content of the file."""
    suites = (
        (one.gate, _order(one.order_carried), one.suites, one.alarms, percent(one.upper))
        for one in certificate.suites_by_gate
    )
    gates = (
        (
            *(one.gate, _order(one.order_carried), percent(one.size)),
            *(one.trials, one.found, percent(one.lower)),
        )
        for one in certificate.detection_by_gate
    )
    rows = (
        (
            *(f"`{one.row}`", percent(one.size), one.trials, one.found, percent(one.lower)),
            percent(certificate.floors[one.row]) if one.row in certificate.floors else "",
        )
        for one in certificate.detection_by_row
    )
    shares = ("trials", "found", "share found above")
    parts = (
        ABOUT,
        "## Suites of unchanged code\n",
        *_table(("gate", "order", "suites", "alarms", "share with an alarm below"), suites),
        "\n## Planted slow-downs, by gate\n",
        *_table(("gate", "order", "size", *shares), gates),
        "\n## Planted slow-downs, by row\n",
        *_table(("row", "size", *shares, "floor"), rows),
    )
    return "\n".join(parts) + "\n"


def _order(carried: bool) -> str:
    return "carried on" if carried else "begun anew"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield _line(heads)
    yield _line(["---"] * len(heads))
    yield from map(_line, rows)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    write_page(FILE, lambda results: text(read_certificate(file_of(results, MODEL))))
