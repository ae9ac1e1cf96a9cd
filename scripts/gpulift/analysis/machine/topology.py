"""How GPUs of a machine are linked, as `nvidia-smi topo -m` says it; kept beside the records."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulift.ground.errors import RecordError
from gpulift.ground.programs import finished, text_of
from gpulift.records.decode import converted, parse_line

FILE = "topology.json"
QUESTION = ("nvidia-smi", "topo", "-m")
ANSWER_LIMIT_S = 30
SELF = "X"
NVLINKS = re.compile(r"NV(\d+)")
GPU = re.compile(r"GPU(\d+)")
UNDERLINED = re.compile(r"\x1b\[[0-9;]*m")
NUMA = "NUMA Affinity"
MEANINGS = {  # of nvidia-smi's own legend
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the processor's PCIe",
    "NODE": "one NUMA node",
    "SYS": "between NUMA nodes",
}


@dataclass(frozen=True)
class Topology:
    """GPUs by the driver's numbers, and in that order what links each to each, in the driver's
    words, and the NUMA nodes that are near; empty where the driver does not say."""

    gpus: tuple[int, ...]
    links: tuple[tuple[str, ...], ...]
    numa: tuple[str, ...]

    def words(self, row: int, column: int) -> str:
        """`18 NVLinks`; what has no known meaning stays as it is."""
        return in_words(self.links[row][column])


def in_words(link: str) -> str:
    """What the driver's short name of a link means."""
    nvlinks = NVLINKS.fullmatch(link)
    if nvlinks:
        return "1 NVLink" if nvlinks[1] == "1" else f"{nvlinks[1]} NVLinks"
    return "–" if link == SELF else MEANINGS.get(link, link)


def ask(question: Sequence[str] = QUESTION) -> Topology | str:
    """What the driver says, or why it is not known, in one line."""
    try:
        answer = finished(question, ANSWER_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"{question[0]} has not answered in {ANSWER_LIMIT_S} s"
    except OSError as error:
        return f"{question[0]} cannot be started: {error.strerror}"
    if answer.returncode != 0:
        return f"{' '.join(question)} ended with exit code {answer.returncode}"
    return parse(text_of(answer.stdout)) or f"{' '.join(question)} shows no matrix of GPUs"


def parse(answer: str) -> Topology | None:
    """The rows and columns of GPUs: other devices, and their names, are left out."""
    lines = [line.split("\t") for line in UNDERLINED.sub("", answer).splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines]
    head = next((row for row in cells if len(row) > 1 and not row[0] and GPU.fullmatch(row[1])), [])
    columns = [at for at, name in enumerate(head) if GPU.fullmatch(name)]
    names = [head[at] for at in columns]
    rows = {row[0]: row for row in cells if row[0] in names and len(row) > max(columns)}
    if not names or list(rows) != names:
        return None
    near = head.index(NUMA) if NUMA in head else len(head)
    return Topology(
        gpus=tuple(int(name.removeprefix("GPU")) for name in names),
        links=tuple(tuple(rows[name][at] for at in columns) for name in names),
        numa=tuple("".join(rows[name][near : near + 1]) for name in names),
    )


@dataclass(frozen=True)
class LinkedGpu:
    """A GPU as it is kept."""

    index: int
    links: tuple[str, ...]
    numa: str


def document(topology: Topology) -> dict[str, object]:
    """As it is kept."""
    rows = zip(topology.gpus, topology.links, topology.numa, strict=True)
    return {"gpus": [{"index": gpu, "links": links, "numa": numa} for gpu, links, numa in rows]}


def kept(run: Path) -> Topology | None:
    """What was kept beside the records of this run; None where nothing was. Raises RecordError for
    a file that is not of ours."""
    file = run / FILE
    try:
        raw = parse_line(file.read_bytes(), str(file))
    except OSError:
        return None
    gpus = converted(raw.get("gpus", []), tuple[LinkedGpu, ...], str(file), "gpus")
    links = tuple(gpu.links for gpu in gpus)
    if {len(gpus), *map(len, links)} != {len(gpus)}:
        raise RecordError(f"{file}: is no square of the links between its GPUs")
    return Topology(tuple(gpu.index for gpu in gpus), links, tuple(gpu.numa for gpu in gpus))
