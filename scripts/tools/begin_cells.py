"""What stands in the cells of results/BEGIN.md."""

from __future__ import annotations

from collections.abc import Sequence

from gpulift.analysis.arm_names import ARMS
from gpulift.analysis.bounds import DEVICE, HOST, PROCESSOR
from gpulift.analysis.gains import Gain, memory_share
from gpulift.analysis.reference import Reference
from gpulift.analysis.summary import Worth
from gpulift.ground import text
from gpulift.records.model import Arm
from gpulift.verdicts.cases import Case

BOUNDS = {DEVICE: "GPU-bound", HOST: "host-bound", PROCESSOR: "CPU-bound"}
SHARED = "shared host"  # other runs, or others' load, beside it
TERA = 1e12
FP8_ROOF = "gemm/fp8"
GRADIENTS, LOSSES = "gradient", "loss"  # in what a check says that it compares
# Arms that are another update: what their check compares are gradients of the step before it.
UPDATES = ("full_half_optimizer_on_host", "full_optimizer_in_8_bits")
MFU_ROOF = "gemm/bf16"  # of which MFU is a share, as the field has it


def speed(row: Worth) -> str:
    """`▲ **1.24×** [1.235, 1.247]`; of one launch, which tells none over launches, the value."""
    if len(row.case.measured) == 1:
        return f"**{text.ratio(row.speedup.value)}**"
    value, blank, interval = text.interval(row.speedup, "×").partition(" ")
    glyph = f"{text.verdict(row.speedup)[0]} " if interval else ""
    return f"{glyph}**{value}**{blank}{unbroken(interval)}"


def memory(row: Worth) -> str:
    """`**0.71×**, 28.5 GiB`: of the baseline's, and how much it is."""
    share, size = memory_share(row), row.facts.device_bytes
    return f"**{text.ratio(share)}**, {text.size(size)}" if share else "–"


def gpus(row: Worth) -> str:
    """`H200`, `2 × H200`."""
    gpu, ranks = row.case.first.context.gpu, row.case.arms[row.arm][0].ranks
    name = gpu.name.removeprefix("NVIDIA ").split()[0] if gpu else "no GPU"
    return f"{ranks} × {name}" if ranks > 1 else name


def flops(arm: Arm, seconds: float, reference: Reference | None) -> str:
    """`461 TFLOP/s, 47 % MFU` of a step that takes so long; of FP8 no MFU, nothing where the record
    counts no operations."""
    if arm.cost is None or not arm.cost.flops:
        return ""
    share = _mfu(arm, seconds, reference)
    return text.rate(arm.cost.flops / seconds, "FLOP/s") + (f", {share} MFU" if share else "")


def in_short(arm: Arm, seconds: float, reference: Reference | None) -> str:
    """`461 (47 %)`, in TFLOP/s."""
    if arm.cost is None or not arm.cost.flops:
        return ""
    share = _mfu(arm, seconds, reference)
    return f"{arm.cost.flops / seconds / TERA:.0f}" + (f" ({share})" if share else "")


def _mfu(arm: Arm, seconds: float, reference: Reference | None) -> str:
    peak = reference.peak(MFU_ROOF) if reference else None
    if not peak or arm.cost is None or arm.cost.roof == FP8_ROOF:
        return ""
    return f"{100 * arm.cost.flops / seconds / peak:.0f} %"


def over(row: Worth) -> str:
    """What it is held against, in words."""
    named = (f"{row.technique} {row.baseline}", row.baseline)
    return next((ARMS[one] for one in named if one in ARMS), f"`{row.baseline}`")


def error(row: Worth) -> str:
    """`0.46 (0.038)`, without the setting in brackets where that is another."""
    mine, theirs = (_largest(row.case, name) for name in (row.arm, row.baseline))
    if not mine:
        return "–"
    told = f"{mine} ({theirs})" if theirs and mine != theirs else mine
    return f"{told}{_of_what(row.case)}"


def error_of(case: Case, arm: str) -> str:
    """The same of one arm."""
    found = _largest(case, arm)
    return f"{found}{_of_what(case)}" if found else "–"


def _largest(case: Case, arm: str) -> str:
    """Of any launch, with two digits; empty where a check compares neither gradients nor losses, or
    ends before what the arm is about."""
    known = [one.check_error for one in case.arms[arm] if one.check_error is not None]
    compares = any(word in case.first.check_meaning for word in (GRADIENTS, LOSSES))
    return f"{max(known):.2g}" if known and compares and arm not in UPDATES else ""


def _of_what(case: Case) -> str:
    return "" if GRADIENTS in case.first.check_meaning else " of losses"


def rate(row: Worth) -> str:
    """`56,084 tokens/s, 8,192 a step`; empty where the record counts none."""
    cost = row.case.arms[row.arm][0].cost
    if not row.items_per_s or cost is None:
        return ""
    return f"{row.items_per_s.value:,.0f} {row.item}s/s, {cost.items:,.0f} a step"


def bound(row: Worth) -> str:
    """`GPU-bound`, `host-bound, before GPU-bound`."""
    mine, theirs = (BOUNDS.get(one.kind, one.kind) or "not told" for one in row.bounds)
    return mine if mine == theirs else f"{mine}, before {theirs}"


def evidence(gain: Gain) -> str:
    """`●●○<br>before (2026-11-27)<br>shared host`, and that the host sets the pace where it
    does."""
    waits = HOST in {one.kind for one in gain.row.bounds}
    shared = SHARED if gain.grade.beside else ""
    parts = (gain.grade.marks, gain.grade.text, shared, bound(gain.row) if waits else "")
    return "<br>".join(map(unbroken, filter(None, parts)))


def unbroken(text: str) -> str:
    """On one line of a cell."""
    return text.replace(" ", "&nbsp;")


def table(rows: Sequence[Sequence[str]], aligned: Sequence[str] = ()) -> str:
    """In Markdown; the first row is its head."""
    head, *body = rows
    every = (head, aligned or ["---"] * len(head), *body)
    return "".join(f"| {' | '.join(row)} |\n" for row in every)


def folded(title: str, content: str) -> str:
    """To be opened by a click."""
    return f"\n<details><summary>{title}</summary>\n\n{content}\n</details>\n"
