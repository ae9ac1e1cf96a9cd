"""The report as linked pages: the answer first, a page for each technique and for each machine, and
what is about all of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulift.report import render
from gpulift.report.machine_views import MachineView
from gpulift.report.settings import settings
from gpulift.report.technique_views import TechniqueView

FRONT = "index.html"
FOLDER = "pages"  # of all other pages
ON_FRONT = ("beside", "ladder", "answer", "changes", "duets", "index")
OF_MACHINE = ("roofs", "topology", "missing", "conditions", "records")
# Pages about all machines and techniques: file, name, sections.
ABOUT_ALL = (
    ("several-gpus", "Several GPUs", ("scaling",)),
    ("feeding", "Feeding", ("feeding",)),
    ("claims", "Published claims", ("claims",)),
    ("models", "Models side by side", ("models",)),
    ("certificates", "False alarms and detection rates", ("certificates",)),
    ("reading", "How to read a number", ("reading", "errata")),
)
# Of a section, the value without which it is left out; of all others it is the machines.
NEEDED = {
    "ladder": "ladders",
    "beside": "beside",
    "changes": "changes",
    "duets": "duets",
    "index": "techniques",
    "topology": "topology",
    "scaling": "scaled",
    "feeding": "fed",
    "models": "models",
    "certificates": "certificates",
    "errata": "doubts",
}
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


def pages(values: Values) -> dict[str, str]:
    """All pages by their file, each linked to what stands on another."""
    planned = list(_planned(values))
    texts = {page.file: _text(page, planned, values) for page in planned}
    homes = {id: file for file, text in reversed(texts.items()) for id in ID.findall(text)}
    return {file: _linked(text, file, homes) for file, text in texts.items()}


def _present(sections: Sequence[str], values: Values) -> list[str]:
    return [one for one in sections if values[NEEDED.get(one, "machines")]]


def _planned(values: Values) -> Iterator[Page]:
    techniques: Sequence[TechniqueView] = values["techniques"]
    machines: Sequence[MachineView] = values["machines"]
    yield Page(FRONT, values["title"], _present(ON_FRONT, values))
    for technique in techniques:
        own = {"technique": technique, "cited": {technique.id}}
        file = f"{FOLDER}/{technique.anchor}.html"
        yield Page(file, technique.id, ("technique", "records"), own, in_contents=False)
    elsewhere = {technique.id for technique in techniques}
    for machine in machines:
        if machine.main:
            yield _of_machine(machine, values, elsewhere)
    for name, title, wanted in ABOUT_ALL:
        if sections := _present(wanted, values):
            yield Page(f"{FOLDER}/{name}.html", title, sections)


def _of_machine(machine: MachineView, values: Values, elsewhere: Collection[str]) -> Page:
    """Of a machine's runs; the records of techniques `elsewhere` stand there."""
    runs = {one.number for one in machine.group}
    own = {
        "machines": machine.group,
        "settings": settings(machine.group),
        "topology": [one for one in values["topology"] if one.number in runs],
        "cited": {case.technique for one in machine.group for case in one.cases} - set(elsewhere),
    }
    title = f"{machine.summary.run.machine}: roofs, conditions"
    return Page(f"{FOLDER}/{machine.anchor}.html", title, _present(OF_MACHINE, values), own)


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
