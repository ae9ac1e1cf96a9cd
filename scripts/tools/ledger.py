"""Appends to results/predictions.tsv what techniques' files predict and it lacks.

`python -m tools.ledger`, in `scripts/`, once the build knows the files and before the first run.
What a record or an earlier range makes of a new line stands in its remark.
"""

from __future__ import annotations

from datetime import datetime, timezone

from gpulift.analysis import prediction_ledger as ledger
from gpulift.analysis.today import read_today
from gpulift.commands.predictions import records_of
from gpulift.commands.shared import known_techniques
from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError


def main() -> None:
    """Prints what it adds."""
    results = machine.checkout_root() / "results"
    file = results / ledger.FILE
    since = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        told = ledger.told_by(known_techniques(), since)
        lines, today = ledger.read_ledger(file), read_today(results)
        added = ledger.to_append(lines, told, records_of([results]), today)
        ledger.append(file, added)
    except (GpuliftError, OSError) as error:
        raise SystemExit(str(error)) from None
    for line in added:
        print("\t".join(line.cells()))
    print(f"{file}: {len(added)} lines added")


if __name__ == "__main__":
    main()
