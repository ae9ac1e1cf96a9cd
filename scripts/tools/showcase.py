"""The figures of README.md, with their texts, and what `qualify` says of a good card there, made
from committed records: `python -m tools.showcase`.

Each SVG holds what it shows as JSON in a description. Fonts differ from machine to machine, so that
a test holds these values, and not the drawing, against what the committed records give today.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape, unescape

from gpulift.analysis.bounds import trained_model
from gpulift.analysis.choice import cases_of, choice_of
from gpulift.analysis.doubts import NO_DOUBTS, Doubts, doubts_of
from gpulift.analysis.gains import FIRST_MODELS
from gpulift.analysis.grade import Grade, grade_of_arms
from gpulift.analysis.ladder import Ladder, Rung, ladders_of
from gpulift.analysis.machine import rows, verdict
from gpulift.analysis.machine.card_lines import of_card
from gpulift.analysis.machine.checks import judge_run
from gpulift.analysis.machine.saved import kept_health
from gpulift.analysis.model_records import committed_files
from gpulift.analysis.neighbours import neighbours_at
from gpulift.analysis.reference import find_reference
from gpulift.analysis.standing import LADDER
from gpulift.analysis.summary import Summary, summarise
from gpulift.engine import machine
from gpulift.ground import text
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError, write_error
from gpulift.ground.estimate import Estimate
from gpulift.records.files import stem_of
from gpulift.records.model import Record
from gpulift.records.read import read_run
from gpulift.report import fit, ladder, plots
from gpulift.report.drawing import Drawing
from gpulift.report.fit import Point
from gpulift.verdicts import table
from gpulift.verdicts.cases import Case
from tools.begin_ladders import DRAWN, FRONTIER, TOKENS

MODELS = ("nvidia-h200", "nvidia-h100-80gb-hbm3")  # the first that has records
CASE = "model:llama_1b"
ROW_TOKENS = 4096  # of llama_1b, in workloads/python/gpulift_work/llama.py
RECIPES = {
    LADDER: "AdamW; FP8 by torchao, tensorwise",
    FRONTIER: "layers compiled; cut cross entropy; fused AdamW",
}
DIGITS = 6
ABOUT_LETTERS = 78  # of a line below a figure
DARK = {  # of the page, by the colours that are drawn
    plots.INK: "#e8e8ea",
    plots.MUTED: "#a8aaae",
    plots.BLUE: "#4aa3df",
    "#ffffff": "#15171a",
}
QUALIFIED = f"{MODELS[1]}/2026-11-27-791d3f9"  # a run of `qualify --quick`
CHECKS = (
    "roof/device_memory/burst",
    "roof/gemm/bf16/burst",
    "health/temperature",
    "health/integrity",
)
LINES = re.compile(r"(<!-- qualify -->\n```\n).*?(```)", re.DOTALL)
SHOWN = re.compile(r"!\[[^\]]*\]\(results/figures/([^)]*)\)")
DATA = re.compile(r"<desc>(.*?)</desc>", re.DOTALL)


@dataclass(frozen=True)
class Exhibit:
    """A figure, and the values that it shows."""

    drawing: Drawing
    values: Mapping[str, Any]

    @property
    def file_name(self) -> str:
        """Below results/figures."""
        return f"{self.drawing.name}.svg"


def exhibits(results: Path) -> list[Exhibit]:
    """All of them: how fast a step of Llama 1B is by setting, what memory it takes, and what it
    costs to take less. Of each those of the first GPU model that has records."""
    known = choice_of(results)
    found: list[Exhibit] = []
    for technique, drawn in ((LADDER, climbed), (FRONTIER, fitted)):
        for model in MODELS:
            runs = runs_of(technique, results, model)
            beside = neighbours_at([one.run for one in runs], say)
            if made := drawn(runs, doubts_of(runs, known.errata, known.today, beside)):
                found += made
                break
    return found


def climbed(summaries: Sequence[Summary], doubts: Doubts = NO_DOUBTS) -> list[Exhibit]:
    """Speed and memory with each setting on top of those before it; none where no run has it, where
    today's technique has no more what it has, and where an erratum withholds it."""
    every = (one for one in ladders_of(summaries, doubts) if one.case.case_id == CASE)
    one = next(every, None)
    if one is None:
        return []
    grade = _grade(one.case, doubts)
    if grade.gone or len(_withheld(one.case, doubts)) == len(one.case.arms) - 1:
        return []
    about = _about(one.case, one.run, grade)
    drawings = (ladder.drawing("ladder", one, about), ladder.memory_drawing("memory", one, about))
    rows = list(_rungs(one))
    return [Exhibit(each, _values(each, about, grade, rows)) for each in drawings]


def _rungs(one: Ladder) -> Iterator[dict[str, Any]]:
    for rung in one.rungs:
        name, whole = _name(one.case, rung.name), rung.whole
        over = {"speedup": text.speedup(whole.speedup)} if whole and not whole.why_not else {}
        yield {"name": name, "run": one.run, **_ends(rung.per_s), **_memory(rung), **over}


def _memory(one: Rung | Point) -> dict[str, Any]:
    return {"memory_bytes": one.memory_bytes} if one.memory_bytes else {}


def fitted(summaries: Sequence[Summary], doubts: Doubts = NO_DOUBTS) -> list[Exhibit]:
    """What each way to need less memory costs; none for the same reasons, and where a launch lacks
    an arm or the baseline's memory is not known."""
    every = (case for one in summaries for case in one.cases if _is_whole(case))
    asked = [case for case in every if (case.technique, case.case_id) == (FRONTIER, DRAWN)]
    if not asked:
        return []
    case = max(asked, key=lambda one: len(one.arms))
    grade, folder = _grade(case, doubts), case.first.file.parent.name
    points = fit.points_of(case, _withheld(case, doubts))
    if grade.gone or len(points) < 2 or points[0].arm != next(iter(case.arms)):
        return []
    about = _about(case, folder, grade)
    drawing = fit.drawing("fit", case, points, about)
    rows = [
        {"name": _name(case, one.arm), "run": folder, **_ends(one.speed), **_memory(one)}
        for one in points
    ]
    return [Exhibit(drawing, _values(drawing, about, grade, rows))]


def _is_whole(case: Case) -> bool:
    """Whether each launch measured all arms that any did."""
    counts = {len(launches) for launches in case.arms.values()}
    return counts == {len(case.measured)}


def _grade(case: Case, doubts: Doubts) -> Grade:
    """Of all arms that were measured, the baseline first."""
    arms = list(case.arms)
    gone = doubts.today.gone(case.first, arms, arms[0])
    return replace(grade_of_arms(case.measured, arms, doubts), gone=gone)


def _withheld(case: Case, doubts: Doubts) -> list[str]:
    """The arms whose ratio over the baseline is wrong."""
    baseline, *others = case.arms
    return [one for one in others if doubts.withheld(case.measured, (one, baseline))]


def _values(
    drawing: Drawing, about: str, grade: Grade, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {"alt": drawing.alt, "about": about, "grade": grade.marks, "rows": rows}


def _about(case: Case, run: str, grade: Grade) -> str:
    """What was measured, on what, and how much it rests on: lines as wide as the figure."""
    first, stop = case.first, case.first.stop
    gpu = first.context.gpu
    torch = first.context.versions.get("torch", "not told").partition("+")[0]
    blocks = (
        stop and stop.planned_blocks and f"{stop.blocks} of {stop.planned_blocks} planned blocks"
    )
    what = (
        f"{FIRST_MODELS[trained_model(first)]}, {_tokens(first)} a step",
        RECIPES[case.technique],
        f"{gpu.name if gpu else 'no GPU'}, torch {torch}, run {run}",
    )
    rests_on = (
        f"{grade.marks} {grade.words}",
        blocks or "",
    )
    parts = ("; ".join(filter(None, each)) for each in (what, rests_on))
    return "\n".join(line for part in parts for line in wrap(part, ABOUT_LETTERS))


def _tokens(record: Record) -> str:
    cost, row = record.arms[0].cost, int(record.case.get(TOKENS, ROW_TOKENS))
    if cost is None:
        return "tokens not told"
    rows, rest = divmod(cost.items, row)
    return f"{cost.items:.0f} tokens" if rest else f"{rows:.0f} x {row} tokens"


def runs_of(technique: str, results: Path, model: str) -> list[Summary]:
    """The committed runs of the model that have the technique."""
    stem = technique.replace("/", ".")
    files = [file for file in committed_files(results, model) if stem_of(file) == stem]
    folders = sorted({file.parent for file in files})
    return [summarise(run) for run in cases_of(results, folders, {stem})]


def qualified(results: Path) -> str:
    """What `qualify` says of a good card: some of its checks, its rates and the verdict."""
    folder = results / QUALIFIED
    run = read_run(folder)
    summary = summarise(run, find_reference(results, run.records[0].context.slug))
    checks = judge_run(summary, summary.reference, kept_health(folder) or ())
    answer = verdict.answer(checks, load=verdict.load_of(summary))
    page = f"{QUALIFIED}/report/index.html"
    lines = (
        *(table.line(rows.row(one)) for id in CHECKS for one in checks if one.id == id),
        of_card(summary),
        f"{answer.glyph} {answer.sentence}{answer.names}; report: results/{page}",
    )
    return "".join(f"{line}\n" for line in lines)


def in_readme(readme: str, found: Sequence[Exhibit], lines: str) -> str:
    """README.md with these texts of its figures, and these lines of `qualify`."""
    alts = {one.file_name: one.drawing.alt for one in found}
    made = SHOWN.sub(lambda match: f"![{alts[match[1]]}](results/figures/{match[1]})", readme)
    return LINES.sub(lambda match: f"{match[1]}{lines}{match[2]}", made)


def write(found: Sequence[Exhibit], folder: Path) -> None:
    """Writes the SVG files with their values, readable on light pages and on dark ones."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            file = folder / one.file_name
            one.drawing.write_svg(file)
            head, body = file.read_text(encoding="utf-8").split("<title>", 1)
            said = escape(json.dumps(one.values, indent=1))
            made = f"{head}<desc>{said}</desc>\n{_dark_style()}\n<title>{body}"
            file.write_text(made, encoding="utf-8")
    except OSError as error:
        raise write_error(folder, error) from None


def _dark_style() -> str:
    """Other colours where the reader's page is dark; the figure has its own ground in either."""
    rules = (
        f'[style*="{kind}: {light}"],[{kind}="{light}"]{{{kind}:{dark}!important}}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    return f"<style>@media (prefers-color-scheme:dark){{{''.join(rules)}}}</style>"


def values_in(file: Path) -> Mapping[str, Any]:
    """The values that a written figure shows."""
    found = DATA.search(file.read_text(encoding="utf-8"))
    if found is None:
        raise GpuliftError(f"{file}: holds no values; python -m tools.showcase makes it anew")
    values: Mapping[str, Any] = json.loads(unescape(found[1]))
    return values


def _name(case: Case, arm: str) -> str:
    return f"{case.technique}/{case.case_id}/{arm}"


def _ends(one: Estimate) -> dict[str, Any]:
    ends = {"value": one.value, "low": one.low, "high": one.high}
    rounded = {
        key: float(f"{end:.{DIGITS}g}") for key, end in ends.items() if end is not None
    }  # one launch has no interval
    return {"launches": one.launches, **rounded}


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the figures and README; --out names another folder for the figures alone."""
    results = machine.checkout_root() / "results"
    parser = argparse.ArgumentParser(description="Makes the figures of README.md anew.")
    parser.add_argument("--out", type=Path, default=results / "figures")
    folder: Path = parser.parse_args(arguments).out
    found = exhibits(results)
    write(found, folder)
    if folder == results / "figures":
        readme = results.parent / "README.md"
        made = in_readme(readme.read_text("utf-8"), found, qualified(results))
        readme.write_text(made, "utf-8")
    print(folder)


if __name__ == "__main__":
    main()
