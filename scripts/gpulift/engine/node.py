"""What several GPUs of a machine do together: which rows of it are measured, and in what time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.quick import FIRST_SHARE, LAUNCHES, Choice, Row

PEER_COPY = "ceiling/peer_copy"
COLLECTIVES = "ceiling/collectives"
DATA_PARALLEL = "distributed/data_parallel"
STRAGGLER = "distributed/straggler"
NODE_SHARE = 0.25  # of a quick qualification's time
LEAST_GPUS = 2
ALONE = "1 GPU: pairs, all-reduces and a data-parallel step take two"
KIB, MIB = 1 << 10, 1 << 20
# Of an arm in a launch, with its processes, check and lead-in: on four H200 ceiling/peer_copy took
# 2.6 s, ceiling/collectives 3.5 to 4.9 s, distributed/data_parallel with GPT-2 20 s and
# distributed/straggler 27 s; on two GPUs ceiling/collectives took 1.6 to 3.3 s, and a training as
# long as on four (results/).
PAIRS_S_PER_GPU = 0.65
EXCHANGE_S_PER_GPU = 1.05
TRAINING_S = 25.0


@dataclass(frozen=True)
class Part:
    """A case, the arms of it that are measured, and how long one takes in a launch."""

    technique: str
    case_id: str
    arms: tuple[str, ...]
    arm_s: float

    @property
    def name(self) -> str:
        """As cases are named."""
        return f"{self.technique}/{self.case_id}"


@dataclass(frozen=True)
class Times:
    """Shares of a quick qualification's time: each card alone, and all of them together."""

    alone_s: float
    node_s: float


def times(budget_s: float, cards: int) -> Times:
    """In the budget each card is measured alone, then all at once what was measured of each at
    first, then what they do together."""
    node_s = NODE_SHARE * budget_s if cards >= LEAST_GPUS else 0.0
    return Times((budget_s - node_s) / (cards + FIRST_SHARE), node_s)


def parts(gpus: int) -> tuple[Part, ...]:
    """All that is measured of so many GPUs, first what tells most of their links per second."""
    sizes = [("nvlink", 64 * MIB), ("host", 64 * MIB), ("nvlink", 1024 * MIB)]
    sizes += [("nvlink", MIB), ("nvlink", 8 * KIB), ("host", 1024 * MIB)]
    most = max(ranks for ranks in (2, 4, 8) if ranks <= gpus)
    copies = ("write", "through_host")  # all-reduces use links both ways at once
    return (
        Part(PEER_COPY, f"bytes:{256 * MIB}", copies, PAIRS_S_PER_GPU * gpus),
        *(
            Part(
                COLLECTIVES,
                f"gpus:{most}/link:{link}/bytes:{size}",
                ("all_reduce",),
                EXCHANGE_S_PER_GPU * most,
            )
            for link, size in sizes
        ),
        *(
            Part(
                DATA_PARALLEL,
                f"gpus:{most}/model:{model}/scaling:weak/compiled:no",
                ("one_gpu", "ddp"),
                TRAINING_S,
            )
            for model in ("gpt2", "resnet50_256")
        ),
        Part(STRAGGLER, f"ranks:{most}/link:nvlink", ("even",), TRAINING_S),
    )


def choose(
    gpus: int,
    techniques: Sequence[TechniqueInfo],
    matches: Callable[..., bool],
    budget_s: float,
) -> Choice:
    """Of the parts that match and that the build has, as many in their order as the time takes."""
    known = {info.id: info for info in techniques}
    rows: list[Row] = []
    left_out: list[str] = []
    spent_s = all_s = 0.0
    for part in parts(gpus):
        part_rows = _rows(part, known, matches)
        seconds = _launches(part, known) * len(part_rows) * part.arm_s
        all_s += seconds
        if spent_s + seconds > budget_s:
            left_out.append(part.name)
            continue
        spent_s += seconds
        rows += part_rows
    return Choice(tuple(dict.fromkeys(rows)), tuple(left_out), all_s)


def _rows(
    part: Part, known: Mapping[str, TechniqueInfo], matches: Callable[..., bool]
) -> list[Row]:
    info = known.get(part.technique)
    if info is None:
        return []
    if info.unavailable:  # one row says why
        return [(info.id, "", "-")] if matches(info.id) else []
    if part.case_id not in {case.id for case in info.cases}:
        return []
    arms = (arm for arm in part.arms if arm in info.arms)
    return [
        (info.id, part.case_id, arm)
        for arm in arms
        if matches(info.id, part.name, f"{part.name}/{arm}")
    ]


def _launches(part: Part, known: Mapping[str, TechniqueInfo]) -> int:
    """How many gpulift-bench takes in a quick run: one of what is long, none of what cannot run."""
    info = known.get(part.technique)
    if info is not None and info.unavailable:
        return 0
    return 1 if info is not None and info.whole_steps else LAUNCHES
