"""`gpulift show ID --counters`: one step of each arm under ncu, beside what its cost says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from gpulift.engine import machine, ncu
from gpulift.engine.again import axes_of
from gpulift.engine.machine import TechniqueInfo
from gpulift.ground import terminal, text
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, NOTHING_RAN, OK, GpuliftError
from gpulift.ground.whole import temporary_folder
from gpulift.records.find import WANTED, find_record
from gpulift.records.model import Context

AGREES = 0.05
MEMORY = "device_memory"
ABOUT = (
    "Computed: what a step reads, writes and calculates by its cost, caches aside. The rest is what"
    " the card counted over all kernels of one step after two others, caches and clocks as they"
    " were; writes always hit the L2."
)


@dataclass(frozen=True)
class Subject:
    """The arms of one case."""

    technique: str
    case: str
    arms: tuple[str, ...]
    axes: tuple[str, ...] = ()
    modules: tuple[Path, ...] = ()  # of techniques of the user's own

    @property
    def name(self) -> str:
        """`technique/case`."""
        return "/".join(part for part in (self.technique, self.case) if part)


@dataclass(frozen=True)
class Compared:
    """What was computed and counted of a quantity, and why they differ by more than 5 %."""

    computed: float
    counted: float
    why: str = ""

    @property
    def deviation(self) -> float:
        """Of what was counted, relative to what was computed."""
        return self.counted / self.computed - 1


def find(
    wanted: str,
    places: Sequence[Path] | None,
    axes: tuple[str, ...] = (),
    modules: tuple[Path, ...] = (),
) -> Subject:
    """The case of a record's id, or the one that a filter selects, with these values of axes."""
    if WANTED.fullmatch(wanted.strip().lower()):
        record = find_record(wanted, places or machine.searched(), say)
        if record.kind != "technique":
            raise GpuliftError(f"{record.citation} is no plain run (kind {record.kind})")
        if axes:
            raise GpuliftError(
                f"--axis: {record.citation} has its own values; name {record.technique} instead"
            )
        arms = tuple(arm.name for arm in record.arms)
        return Subject(record.technique, record.case_id, arms, axes_of(record), modules)
    infos = machine.catalogue(machine.find_bench(), modules, axes=axes, filter=wanted)
    found = machine.require_selected(infos, wanted)
    named = [
        f"{info.id}/{case}".rstrip("/")
        for info in found
        for case in [one.id for one in info.cases] or [""]  # unknown where it was not built
    ]
    if len(named) > 1:
        more = ", ..." if len(named) > 3 else ""
        raise GpuliftError(
            f"{wanted!r} selects {len(named)} cases ({', '.join(named[:3])}{more}): name one"
        )
    (info,) = found
    if info.unavailable:
        told = "; ".join(part for part in (info.unavailable, info.remedy) if part)
        raise GpuliftError(f"{info.id} cannot run here: {told}", NOTHING_RAN)
    return Subject(info.id, info.cases[0].id, _arms(info, wanted), axes, modules)


def _arms(info: TechniqueInfo, wanted: str) -> tuple[str, ...]:
    matches = machine.matcher(wanted)
    (case,) = info.cases
    name = "/".join(part for part in (info.id, case.id) if part)
    return tuple(arm for arm in info.arms if matches(info.id, name, f"{name}/{arm}"))


def count(subject: Subject, context: Context, gpu: int | None) -> list[ncu.Step]:
    """Each arm by itself, so that what one of them cannot do costs no other."""
    if context.gpu is None:
        told = "; ".join(part for part in (context.gpu_missing, context.gpu_remedy) if part)
        raise GpuliftError(f"counters are a GPU's: {told}", NOTHING_RAN)
    program = ncu.find_ncu()
    wanted = ncu.metrics(context.gpu.facts.get("architecture", 0))
    flags = [] if gpu is None else ["--gpu", str(gpu)]
    flags += machine.axis_flags(subject.axes) + machine.more_flags(subject.modules)
    steps = []
    for arm in subject.arms:
        say(f"{subject.name}/{arm} under ncu")
        with temporary_folder() as folder:
            row = (subject.technique, subject.case, arm)
            steps.append(ncu.count(program, wanted, row, flags, folder))
    return steps


def memory(step: ncu.Step, l2_bytes: int) -> Compared | None:
    """Bytes of the cost beside those of the DRAM; None where the cost has none of the device's."""
    if step.counted is None or not step.cost.bytes or step.cost.roof not in ("", MEMORY):
        return None
    found = Compared(step.cost.bytes, step.counted.dram_bytes)
    if abs(found.deviation) <= AGREES:
        return found
    if found.deviation > 0:
        why = "more than computed: the cost counts each operand once, and kernels move some again"
    elif step.cost.roof == MEMORY:
        why = (
            "less than computed: part of it stayed in the L2, or went by copies and fills of the"
            " driver, which are no kernels"
        )
    else:
        why = f"less than computed: it stays in the L2 of {text.size(l2_bytes)}"
    return Compared(found.computed, found.counted, why)


def arithmetic(step: ncu.Step) -> Compared | None:
    """Operations of the cost beside those of the tensor cores; None where either has none."""
    if step.counted is None or not step.cost.flops or step.counted.tensor_flops is None:
        return None
    found = Compared(step.cost.flops, step.counted.tensor_flops)
    if abs(found.deviation) <= AGREES:
        return found
    if not found.counted:
        why = "none on the tensor cores: other units do its arithmetic"
    elif found.deviation > 0:
        why = "more than computed: tiles reach beyond the shape, or it computes some again"
    else:
        why = "fewer than computed: other units do a part, or it leaves some out, such as zeros"
    return Compared(found.computed, found.counted, why)


def notes(step: ncu.Step, l2_bytes: int) -> list[str]:
    """Why nothing was counted, or why what was differs."""
    if step.outcome != "ok":
        told = "; ".join(part for part in (step.reason, step.remedy) if part)
        return [f"{step.outcome}: {told}" if told else step.outcome]
    if step.counted is None:
        return ["no kernel was seen: its step works on the host, or by copies of the driver alone"]
    found = [
        f"{name}: {one.why}"
        for name, one in (("DRAM", memory(step, l2_bytes)), ("tensor work", arithmetic(step)))
        if one and one.why
    ]
    if step.cost.bytes and step.cost.roof not in ("", MEMORY):
        found.append(f"its cost counts bytes of {step.cost.roof}, not of the DRAM")
    return found


def table(subject: Subject, steps: Sequence[ncu.Step], l2_bytes: int) -> Table:
    """A row for each arm that was counted."""
    made = terminal.titled(subject.name)
    for name in ("arm", "kernels", "computed", "DRAM", "L2 hits", "tensor pipe", "tensor work"):
        made.add_column(name, justify="left" if name == "arm" else "right")
    for step in steps:
        if (counted := step.counted) is None:
            continue
        amounts = ((step.cost.bytes, "B"), (step.cost.flops, "FLOP"))
        computed = [text.rate(amount, unit) for amount, unit in amounts if amount]
        worked = arithmetic(step)
        made.add_row(
            text.visible(step.arm),
            str(counted.kernels),
            ", ".join(computed) or "–",
            _shown(counted.dram_bytes, "B", memory(step, l2_bytes)),
            text.percent(counted.l2_hits),
            text.percent(counted.tensor_busy),
            _shown(counted.tensor_flops, "FLOP", worked) if counted.tensor_flops else "–",
        )
    return made


def _shown(counted: float | None, unit: str, compared: Compared | None) -> str:
    shown = text.rate(counted or 0.0, unit)
    return f"{shown} ({100 * compared.deviation:+.1f} %)" if compared else shown


def as_dict(step: ncu.Step, l2_bytes: int) -> dict[str, object]:
    """The arm for programs."""
    compared = {"dram": memory(step, l2_bytes), "tensor": arithmetic(step)}
    off = {f"{name}_deviation": one.deviation for name, one in compared.items() if one}
    return {**asdict(step), **off, "notes": notes(step, l2_bytes)}


def exit_code(steps: Sequence[ncu.Step]) -> int:
    """Whether anything was counted, or else whether something broke."""
    if any(step.outcome in ("failed", "error") for step in steps):
        return FAILED
    return OK if any(step.counted for step in steps) else NOTHING_RAN
