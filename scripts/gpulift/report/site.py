"""The report as linked pages: the answer first, a page for each technique and for each machine, and
what is about all of them. The same sections make a single page."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulift.report import render
from gpulift.report.settings import settings
from gpulift.report.views import MachineView, TechniqueView

FRONT = "index.html"
FOLDER = "pages"  # of all other pages
# Of a single page: a section's anchor, its name, and the value without which it is left out.
SECTIONS = (
    ("ladder", "What to turn on", "ladders"),
    ("beside", "Side by side", "beside"),
    ("answer", "The answer", "machines"),
    ("changes", "Verdicts on changes", "changes"),
    ("duets", "Two builds", "duets"),
    ("roofs", "Roofs", "machines"),
    ("topology", "How the GPUs are linked", "topology"),
    ("techniques", "Techniques", "machines"),
    ("scaling", "Several GPUs", "scaled"),
    ("feeding", "Feeding", "fed"),
    ("claims", "Published claims", "machines"),
    ("models", "Models side by side", "models"),
    ("missing", "What was not measured", "machines"),
    ("conditions", "Conditions", "machines"),
    ("certificates", "How often the verdict is wrong", "certificates"),
    ("errata", "Known errors", "doubts"),
    ("reading", "How to read a number", "machines"),
    ("records", "Records", "machines"),
)
ON_FRONT = frozenset({"ladder", "beside", "answer", "changes", "duets"})
OF_MACHINE = frozenset({"roofs", "topology", "missing", "conditions", "records"})
# Pages about all machines and techniques: file, name, sections.
ABOUT_ALL = (
    ("several-gpus", "Several GPUs", ("scaling",)),
    ("feeding", "Feeding", ("feeding",)),
    ("claims", "Published claims", ("claims",)),
    ("models", "Models side by side", ("models",)),
    ("certificates", "How often the verdict is wrong", ("certificates",)),
    ("reading", "How to read a number", ("reading", "errata")),
)
ID = re.compile(r' id="([^"]+)"')
LINK = re.compile(r' href="#([^"]+)"')

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Page:
    """What one of the pages has: its sections, and what of the report's values is narrower."""

    file: str
    title: str
    sections: Sequence[str]
    own: Values = field(default_factory=dict)
    in_contents: bool = True

    @property
    def up(self) -> str:
        """The way from its folder to the front page's."""
        return "../" if "/" in self.file else ""


def single_page(values: Values) -> str:
    """Everything in one file."""
    present = _present(values)
    contents = [(f"#{anchor}", name) for anchor, name, _ in SECTIONS if anchor in present]
    return render.page({**values, "contents": contents, "parts": present})


def pages(values: Values) -> dict[str, str]:
    """All pages by their file, each linked to what stands on another."""
    planned = list(_planned(values))
    texts = {page.file: _text(page, planned, values) for page in planned}
    homes = {id: file for file, text in reversed(texts.items()) for id in ID.findall(text)}
    return {file: _linked(text, file, homes) for file, text in texts.items()}


def _present(values: Values) -> list[str]:
    return [anchor for anchor, _, needed in SECTIONS if values[needed]]


def _planned(values: Values) -> Iterator[Page]:
    present = _present(values)
    techniques: Sequence[TechniqueView] = values["techniques"]
    machines: Sequence[MachineView] = values["machines"]
    front = [anchor for anchor in present if anchor in ON_FRONT]
    yield Page(FRONT, values["title"], [*front, "index"] if techniques else front)
    for technique in techniques:
        own = {"techniques": (technique,), "cited": {technique.id}}
        file = f"{FOLDER}/{technique.anchor}.html"
        yield Page(file, technique.id, ("techniques", "records"), own, in_contents=False)
    elsewhere = {technique.id for technique in techniques}
    for machine in machines:
        if machine.main:
            yield _of_machine(
                machine, [one for one in present if one in OF_MACHINE], values, elsewhere
            )
    for name, title, wanted in ABOUT_ALL:
        if sections := [anchor for anchor in wanted if anchor in present]:
            yield Page(f"{FOLDER}/{name}.html", title, sections)


def _of_machine(
    machine: MachineView, sections: Sequence[str], values: Values, elsewhere: Collection[str]
) -> Page:
    """Of a machine's runs; the records of techniques `elsewhere` stand there."""
    runs = {one.number for one in machine.group}
    own = {
        "machines": machine.group,
        "settings": settings(machine.group),
        "topology": [one for one in values["topology"] if one.number in runs],
        "cited": {case.technique for one in machine.group for case in one.cases} - set(elsewhere),
    }
    title = f"{machine.summary.run.machine}: roofs, conditions"
    return Page(f"{FOLDER}/{machine.anchor}.html", title, sections, own)


def _text(page: Page, planned: Sequence[Page], values: Values) -> str:
    contents = [
        (_way(page.file, one.file), "The answer" if one.file == FRONT else one.title)
        for one in planned
        if one.in_contents
    ]
    files = {file: f"{page.up}{link}" for file, link in values["files"].items()}
    own = {**values, **page.own, "files": files, "title": page.title}
    return render.page({**own, "contents": contents, "parts": page.sections})


def _linked(text: str, file: str, homes: Mapping[str, str]) -> str:
    """The page, with links to what it does not have itself made links to the page that has it."""
    here = set(ID.findall(text))

    def link(match: re.Match[str]) -> str:
        target = match[1]
        if target in here or target not in homes:
            return match[0]
        return f' href="{_way(file, homes[target])}#{target}"'

    return LINK.sub(link, text)


def _way(origin: str, target: str) -> str:
    """The relative link from one page to another."""
    if "/" not in origin:
        return target
    return target.removeprefix(f"{FOLDER}/") if "/" in target else f"../{target}"
