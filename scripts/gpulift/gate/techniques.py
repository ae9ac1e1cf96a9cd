"""The plan of a gate of techniques: what it compares, with what; nothing is measured here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from gpulift.engine import machine
from gpulift.engine.runs import make_new
from gpulift.gate import conditions
from gpulift.gate.asked import Asked
from gpulift.gate.builds import FOLDER, find_build, own_build, require_known
from gpulift.gate.certificate import Certificate, find_certificate, sentence
from gpulift.gate.environments import Sides, find_sides
from gpulift.gate.evidence import ALTERNATING, TURNS, TWO_IN_ONE, Row, Setup
from gpulift.gate.measure import Budget, Plan, Say
from gpulift.gate.programs import Program, Programs, Settings
from gpulift.gate.rows import cases_of, choose_rows
from gpulift.ground.errors import GpuliftError
from gpulift.verdicts import thresholds
from gpulift.verdicts.comparability import require_same_but_commit
from gpulift.verdicts.decision import DECISION_METHOD


def plan(asked: Asked, say: Say) -> Plan:
    """Both sides, built where that is to be done, and all that a gate of them measures. Refuses a
    filter that cannot be before anything is built for minutes."""
    machine.matcher(asked.filter)
    sides = find_sides(asked, say) if asked.pythons else _builds(asked, say)
    doubt = sides.base.context.build.doubt or sides.head.context.build.doubt
    if asked.certified and doubt:
        raise GpuliftError(f"--certificate is of commits, and a side was {doubt}")
    setup, infos = make_setup(asked, sides), sides.head_infos
    processes = 2 if setup.mode == TWO_IN_ONE else len(TURNS)
    used_s = time.monotonic() - asked.started_s
    base, head = (
        Program(side.bench, side.modules, side.python, side.takes_rows)
        for side in (sides.base, sides.head)
    )
    made = Plan(
        setup=setup,
        folder=_new_folder(asked.out, sides.base.stem, sides.head.stem),
        taker=Programs(base, head, Settings(asked.arm_time_s, asked.gpu)),
        budget=Budget(asked.budget_s, processes * asked.arm_time_s, used_s=used_s),
        say=say,
        on_gpu=frozenset(info.id for info in infos if info.gpus),
        launch_bound=frozenset(info.id for info in infos if info.launch_bound),
    )
    say(f"base {setup.base}, head {setup.head}: {setup.mode}; evidence goes to {made.folder}")
    return made


def _builds(asked: Asked, say: Say) -> Sides:
    base, head, gpu = asked.base or "", asked.head, asked.gpu
    require_known([base] if head is None else [base, head], gpu)
    first = find_build(base, gpu, say, asked.until_s)
    second = own_build(gpu) if head is None else find_build(head, gpu, say, asked.until_s)
    return Sides(first, second, machine.catalogue(first.bench), machine.catalogue(second.bench))


def make_setup(asked: Asked, sides: Sides) -> Setup:
    """The rows, how they are measured, and their margins. Refuses (exit code 4) builds that differ
    in more than their commit."""
    base, head = sides.base, sides.head
    require_same_but_commit(base.context, head.context)
    context, arm_time_s = head.context, asked.arm_time_s
    rows = choose_rows(sides.base_infos, sides.head_infos, asked.filter, asked.all_cases)
    # Of all rows that there are: a file may tell of more than this filter selects.
    every = sorted({*cases_of(sides.base_infos), *cases_of(sides.head_infos)})
    asked_changes = thresholds.of_rows(
        asked.thresholds, ((row.technique, row.case, row.id) for row in every)
    )
    not_here = {info.id: info.told_not_here(context) for info in sides.head_infos}
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


def _new_folder(out: Path | None, base: str, head: str) -> Path:
    if out is not None:
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
