"""What a gate compares, with what, and where its evidence goes; nothing is measured here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from gpulift.engine import machine
from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.runs import make_new
from gpulift.gate import conditions
from gpulift.gate.builds import FOLDER, Build
from gpulift.gate.certificate import Certificate, find_certificate, sentence
from gpulift.gate.evidence import ALTERNATING, TURNS, TWO_IN_ONE, Origin, Row, Setup
from gpulift.gate.measure import Budget, Gate, Say
from gpulift.gate.programs import Program, Programs, Settings
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError, write_error
from gpulift.verdicts import thresholds
from gpulift.verdicts.comparability import require_same_but_commit
from gpulift.verdicts.decision import DECISION_METHOD

NAMED = 3  # of the cases that one side lacks


@dataclass(frozen=True)
class Asked:
    """What the user asked for; `started_s` is when, by the clock of budgets. `environments` names
    the Python of base and head, where those are compared instead of builds."""

    base: str
    head: str | None
    filter: str | None
    all_cases: bool
    budget_s: float | None
    seed: int
    settings: Settings
    out: Path | None
    started_s: float
    environments: tuple[str, str] | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)  # least changes by pattern
    origin: Origin = field(default_factory=Origin)
    certified: bool = False

    @property
    def until_s(self) -> float | None:
        """When the budget ends, by the same clock."""
        return None if self.budget_s is None else self.started_s + self.budget_s


def require_sound(asked: Asked) -> None:
    """Refuses a filter or a folder that cannot be, before anything is built for minutes."""
    machine.matcher(asked.filter)
    if asked.out is not None:
        require_new(asked.out)


def make_setup(
    asked: Asked,
    base: Build,
    head: Build,
    base_infos: Sequence[TechniqueInfo],
    head_infos: Sequence[TechniqueInfo],
) -> Setup:
    """The rows, how they are measured, and their margins. Refuses (exit code 4) builds that differ
    in more than their commit."""
    require_same_but_commit(base.context, head.context)
    context, arm_time_s = head.context, asked.settings.arm_time_s
    rows = choose_rows(base_infos, head_infos, asked.filter, asked.all_cases)
    # Of all rows that there are: a file may tell of more than this filter selects.
    every = sorted({row for infos in (base_infos, head_infos) for row in _cases(infos)})
    asked_changes = thresholds.of_rows(
        asked.thresholds, ((row.technique, row.case, row.id) for row in every)
    )
    not_here = {info.id: info.told_not_here(context) for info in head_infos}
    certificate = find_certificate(machine.checkout_root() / "results", context.slug)
    covering = certificate if certificate and _covers(certificate, arm_time_s) else None
    unmeasurable = {row.id: why for row in rows if (why := not_here[row.technique])}
    unasked = [] if _names_rows(asked) else [row for row in rows if row.id not in unmeasurable]
    return Setup(
        method=DECISION_METHOD,
        mode=TWO_IN_ONE if base.abi_tag == head.abi_tag else ALTERNATING,
        base=base.name,
        head=head.name,
        machine=context.slug,
        certificate=_describe(certificate, arm_time_s, rows),
        seed=asked.seed,
        rows=tuple(rows),
        unmeasurable=unmeasurable,
        floors=covering.floors if covering else {},
        unsteady=_unsteady(unasked, covering) if covering else (),
        least_changes={row.id: asked_changes[row.id] for row in rows if row.id in asked_changes},
        origin=replace(
            asked.origin,
            base=base.context.build.commit,
            head=context.build.commit,
            conditions=conditions.of_techniques(context),
        ),
    )


def make_gate(
    asked: Asked,
    setup: Setup,
    infos: Sequence[TechniqueInfo],
    base: Build,
    head: Build,
    say: Say,
) -> Gate:
    """What is started for it, and the folder for the evidence."""
    processes = 2 if setup.mode == TWO_IN_ONE else len(TURNS)
    return Gate(
        folder=_new_folder(asked.out, base.stem, head.stem),
        taker=Programs(
            Program(base.bench, base.modules, base.python, base.takes_rows),
            Program(head.bench, head.modules, head.python, head.takes_rows),
            asked.settings,
        ),
        on_gpu=frozenset(info.id for info in infos if info.gpus),
        launch_bound=frozenset(info.id for info in infos if info.launch_bound),
        budget=Budget(
            asked.budget_s,
            processes * asked.settings.arm_time_s,
            used_s=time.monotonic() - asked.started_s,
        ),
        say=say,
    )


def choose_rows(
    base: Iterable[TechniqueInfo],
    head: Iterable[TechniqueInfo],
    filter: str | None,
    all_cases: bool,
    more: str = "; --all takes all",
) -> list[Row]:
    """The selected rows, which both sides must have; refuses (exit code 4) what one side lacks.

    `more` says how a user gets at other than the quick cases.
    """
    matches = machine.matcher(filter)
    sides = (_cases(base), _cases(head))
    chosen = [
        {
            row
            for row, quick in side.items()
            if (quick or all_cases) and matches(row.technique, row.case, row.id)
        }
        for side in sides
    ]
    lacking = [(name, chosen[i] - sides[1 - i].keys()) for i, name in enumerate(("base", "head"))]
    if any(rows for _, rows in lacking):
        named = "; ".join(f"only in the {name}: {_some(rows)}" for name, rows in lacking if rows)
        raise GpuliftError(
            f'not comparable: {named}; leave them out with --filter "-NAME"', NOT_COMPARABLE
        )
    if not chosen[0] | chosen[1]:
        machine.require_selected([*base, *head], filter)
        what = f"the filter {filter!r}" if filter else "the selection"
        hint = "" if all_cases else f" among the quick cases{more}"
        raise GpuliftError(f"no case matches {what}{hint}")
    return sorted(chosen[0] | chosen[1])


def _cases(infos: Iterable[TechniqueInfo]) -> dict[Row, bool]:
    """The rows, and whether each is quick enough for many launches, which whole steps are not."""
    return {
        Row(info.id, case.id, arm): case.quick and not info.whole_steps
        for info in infos
        for case in info.cases
        for arm in info.arms
    }


def _some(rows: Iterable[Row]) -> str:
    names = sorted({row.id for row in rows})
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def require_new(out: Path) -> None:
    """Refuses a folder that holds anything."""
    try:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise GpuliftError(f"--out {out}: is there already; name a new folder")
    except OSError as error:
        raise write_error(out, error) from None


def _new_folder(out: Path | None, base: str, head: str) -> Path:
    if out is not None:
        require_new(out)
        return out
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return make_new(machine.own_folder() / FOLDER / "runs", f"{date}-{base}-{head}")


def _names_rows(asked: Asked) -> bool:
    """Whether the user chose the rows, and did not only leave some out."""
    return asked.all_cases or (asked.filter is not None and not asked.filter.startswith("-"))


def _unsteady(rows: Sequence[Row], certificate: Certificate) -> tuple[Row, ...]:
    """Those that a gate of unchanged code would most likely leave inconclusive; none where all are,
    since someone wants to know of them."""
    noisy = {one.row for one in certificate.unsteady}
    found = tuple(row for row in rows if row.id in noisy)
    return found if len(found) < len(rows) else ()


def _covers(certificate: Certificate, arm_time_s: float) -> bool:
    return certificate.method == DECISION_METHOD and certificate.arm_time_s == arm_time_s


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _describe(certificate: Certificate | None, arm_time_s: float, rows: Sequence[Row]) -> str:
    """What the certificate says, or why it says nothing of this gate."""
    if certificate is None:
        return "no certificate for this model"
    if _covers(certificate, arm_time_s):
        held = {row.id for row in rows}.intersection(certificate.rows)
        trials = {one.row: one.suites for one in certificate.unchanged}
        each = _range([trials.get(id, 0) for id in held]) if held else ""
        said = sentence(certificate).removesuffix(".")
        return f"certificate {said}; {len(held)} of {len(rows)} rows are in it" + (
            f", each in {each} of its suites" if each else ""
        )
    other = []
    if certificate.method != DECISION_METHOD:
        other.append(f"is of decision method {certificate.method}, this gate of {DECISION_METHOD}")
    if certificate.arm_time_s != arm_time_s:
        other.append(
            f"was made with {certificate.arm_time_s:g} s per build and launch, this gate takes"
            f" {arm_time_s:g} s"
        )
    return f"the certificate {certificate.name} {' and '.join(other)}: it does not cover this gate"
