"""The two ladders of results/BEGIN.md: speed, where BF16 is 1.00, and memory, with a bar for each
setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpulift.analysis.arm_names import setting
from gpulift.analysis.begin_rows import FIGURES, FIRST, Known
from gpulift.analysis.bounds import trained_model
from gpulift.analysis.facts import facts
from gpulift.analysis.gains import BF16, FIRST_MODELS, Gain, gain_of
from gpulift.analysis.standing import LADDER
from gpulift.analysis.summary import worth_over
from gpulift.analysis.today import TODAYS
from gpulift.ground import text
from gpulift.report.fit import points_of
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case
from tools import begin_cells as cells

FRONTIER = "job/frontier"
TOKENS = "tokens"  # its axis
DRAWN, FIGURE = "model:llama_1b/tokens:16384", "fit.svg"  # by tools.showcase
PICTURE = "Speed over peak memory of each of these settings, as the table has them"
BAR = 20  # blocks of a bar: BF16's memory
BEST = (
    "All are compiled, with cut cross entropy. **Bold**: the fastest in so little memory, as far as"
    " intervals tell. What the host keeps is not counted."
)


def ladders(known: Known) -> Iterator[str]:
    """Of each card that has one; of speed the one with most launches of today is first."""
    added_up = sorted(_cases(LADDER, known), key=lambda case: _rank(case, known))
    for case in added_up:
        yield f"\n## Speed: settings added up, {_where(case)}\n\n{_speed(case, known)}"
    for case in sorted(_cases(FRONTIER, known), key=lambda one: int(one.first.case[TOKENS])):
        length = f"{int(case.first.case[TOKENS]):,} tokens"
        yield f"\n## Memory: a row of {length}, {_where(case)}\n\n{_frontier(case, known)}"


def _cases(technique: str, known: Known) -> list[Case]:
    found = (one for one in known.cases.get(technique, ()) if one.measured)
    return [one for one in found if trained_model(one.first) == FIRST]


def _rank(case: Case, known: Known) -> tuple[bool, int]:
    return known.today.text(case.first) != TODAYS, -len(case.measured)


def _where(case: Case) -> str:
    gpu = case.first.context.gpu
    return f"{FIRST_MODELS[FIRST]} on {gpu.name.removeprefix('NVIDIA ') if gpu else 'no GPU'}"


def _measured(case: Case) -> list[str]:
    return [arm.name for arm in case.first.arms if arm.name in case.times_s]


def _gain(case: Case, arm: str, over: str, known: Known) -> Gain | None:
    row = worth_over(case, arm, over)
    return gain_of(row, known.doubts) if row else None


def _told(gain: Gain | None) -> str:
    if gain is None:
        return "–"
    return "withheld" if gain.grade.withheld else cells.speed(gain.row)


# --- Speed ---


def _speed(case: Case, known: Known) -> str:
    names = _measured(case)
    cost = case.arms[names[0]][0].cost
    item = cost.item if cost else "item"
    head = ("with all above it", f"{item}s/s", "over the row above", "over BF16", "TFLOP/s (MFU)")
    rows: list[Sequence[str]] = [(*head, "peak memory", "error")]
    for before, name in zip(("", *names), names, strict=False):
        rows.append(_rung(case, name, before, known))
    aligned = ("---", "---:", "---", "---", "---:", "---:", "---:")
    return f"{cells.table(rows, aligned)}\n{_caption(case, known)}\n"


def _rung(case: Case, name: str, before: str, known: Known) -> tuple[str, ...]:
    launches, time_s = case.arms[name], case.times_s[name]
    rate = stats.rate_over(launches, stats.items)
    words, how = setting(name, case.technique)
    below_bf16 = _measured(case).index(name) < _measured(case).index(BF16)
    return (
        "<br>".join(filter(None, (f"*{words}*" if below_bf16 else words, how))),
        f"{rate.value:,.0f}" if rate else "–",
        _told(_gain(case, name, before, known)) if before else "–",
        "1.00×" if name == BF16 else _told(_gain(case, name, BF16, known)),
        cells.in_short(launches[0], time_s.value, known.references.get(case.first.context.slug)),
        text.size(facts(case, name).device_bytes),
        cells.error_of(case, name),
    )


def _caption(case: Case, known: Known) -> str:
    """What is trained, with what, on how much it rests, and what else ran."""
    names = _measured(case)
    gain = _gain(case, names[-1], names[0], known)
    cost, context = case.arms[names[0]][0].cost, case.first.context
    told = [
        f"{cost.items:.0f} {cost.item}s a step" if cost else "",
        f"torch {context.versions.get('torch', 'not told')}, driver {context.driver}",
        f"{gain.grade.marks} {replace(gain.grade, bound='').words}" if gain else "",
        f"record `{case.measured[0].id}`",
    ]
    return f"{'; '.join(filter(None, told))}."


# --- Memory ---


def _frontier(case: Case, known: Known) -> str:
    """Settings of a length, those that hold most first, and which of them are on the frontier."""
    first = next(arm.name for arm in case.first.arms if arm.role == "baseline")
    withheld = [one for one in case.arms if known.doubts.withheld(case.measured, (one, first))]
    best = {one.arm for one in points_of(case, withheld) if one.best}
    rows = [_held(case, name, first, name in best, known) for name in _by_memory(case)]
    words, _ = setting(first, case.technique)
    is_drawn = case.case_id == DRAWN and FIGURE in known.figures
    picture = f"\n![{PICTURE}]({FIGURES}/{FIGURE})\n" if is_drawn else ""
    head = ("setting", "peak memory", f"of {words}", "", f"speed over {words}", "error")
    table = cells.table([head, *rows], ("---", "---:", "---:", "---", "---", "---:"))
    return f"{table}\n{BEST} {_caption(case, known)}\n{picture}"


def _by_memory(case: Case) -> list[str]:
    return sorted(_measured(case), key=lambda name: -(facts(case, name).device_bytes or 0))


def _held(case: Case, name: str, over: str, best: bool, known: Known) -> tuple[str, ...]:
    sizes = (facts(case, one).device_bytes if one in case.arms else None for one in (name, over))
    mine, all_of_it = sizes
    share = mine / all_of_it if mine and all_of_it else None
    full = round(BAR * min(share or 0.0, 1.0))
    words, how = setting(name, case.technique)
    return (
        "<br>".join(filter(None, (f"**{words}**" if best else words, how))),
        text.size(mine) if mine else "–",
        text.ratio(share) if share else "–",
        f"`{'█' * full}{'░' * (BAR - full)}`" if share else "",
        "1.00×" if name == over else _told(_gain(case, name, over, known)),
        cells.error_of(case, name),
    )
