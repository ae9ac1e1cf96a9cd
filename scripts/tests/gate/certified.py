"""The evidence of a whole gate of a command, written by hand, and its certificate."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from gpulift.gate import sealed
from gpulift.gate.evidence import (
    BASE,
    CASES,
    COMMANDS,
    HEAD,
    NULL,
    PLANTED,
    Origin,
    Row,
    Setup,
    batch_folder,
    save,
    stage_folder,
)
from gpulift.gate.metrics import Reading
from gpulift.gate.pairs import Pair, PairedLaunch, Run, write_launch
from gpulift.gate.same import Equal
from gpulift.verdicts.decision import DECISION_METHOD

STEP = Row("step.py", "", "wall")
SIZE = 0.05
BEGAN, ENDED = "2026-11-29T10:00:00+00:00", "2026-11-29T10:05:00+00:00"
LAUNCHES = ((CASES, 4, 8), (NULL, 8, 0), (PLANTED, 4, 8))  # of both stages


def origin(**more: Any) -> Origin:
    given: dict[str, Any] = {
        "base": "a" * 40,
        "head": "b" * 40,
        "options": {"--setup": ("make",)},
        "command": ("python3", "step.py"),
        "conditions": {"card": "1 x NVIDIA H200", "driver": "1 x 580.1", "processor": "P"},
        "began_at": BEGAN,
    }
    return Origin(**{**given, **more})


def evidence(gate: Path, factor: float = 0.9, **more: Any) -> Path:
    """A head that takes so many times what the base takes; the other arguments are the origin's."""
    noise = random.Random(1)
    rows = (STEP,)
    setup = Setup(
        DECISION_METHOD, COMMANDS, "main", "HEAD", "P", "", 1, rows, least=0.01, equivalent=0.02,
        null_rows=rows, planted_size=SIZE, origin=origin(**more),
        equal=(Equal("out.txt", "c" * 64),),
    )  # fmt: skip
    save(gate, setup, {"ended_at": ENDED})
    for series, first, second in LAUNCHES:
        planted = SIZE if series == PLANTED else None
        faster = factor if series == CASES else 1.0
        for stage, count in ((1, first), (2, second)):
            for number in range(count):
                base, head = (noise.gauss(1, 0.001) * one for one in (1.0, faster))
                runs = [Run({"wall": Reading(base, "s")}, base)]
                runs += [Run({"wall": Reading(head * (1 + (planted or 0)), "s")}, head)]
                order = (BASE, HEAD) if (number + stage) % 2 else (HEAD, BASE)
                folder = batch_folder(stage_folder(gate, series, stage), range(number, number + 1))
                write_launch(folder, PairedLaunch((Pair(order, *runs),), planted))
    return gate


def certificate(folder: Path, factor: float = 0.9, **more: Any) -> Path:
    """Of that gate."""
    file = folder / f"{factor}.json"
    assert sealed.write(evidence(folder / f"gate-{factor}", factor, **more), file).endswith(
        file.name
    )
    return file
