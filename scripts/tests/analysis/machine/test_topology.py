"""What nvidia-smi says of links between GPUs, and how the report shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpulift.analysis.machine import topology
from gpulift.analysis.machine.topology import Topology
from gpulift.analysis.summary import summarise
from gpulift.ground.errors import RecordError
from gpulift.records.read import read_run
from gpulift.report import page
from tests import sample
from tests.figures import analysed, written

pytestmark = pytest.mark.world

# As driver 580 prints it, with a network card whose name is nobody's business.
FOUR = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\tSYS\tPXB\t0-55\t0\t\tN/A
GPU1\tNV18\t X \tNODE\tSYS\tSYS\t0-55\t0\t\tN/A
GPU2\tPIX\tNODE\t X \tNV1\tSYS\t56-111\t1\t\tN/A
GPU3\tSYS\tSYS\tNV1\t X \tSYS\t56-111\t1\t\tN/A
NIC0\tPXB\tSYS\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes

NIC Legend:

  NIC0: mlx5_secret
"""


def found() -> Topology:
    parsed = topology.parse(FOUR)
    assert parsed is not None
    return parsed


def test_links_numa_nodes_and_no_other_device() -> None:
    assert found() == Topology(
        (0, 1, 2, 3),
        (
            ("X", "NV18", "PIX", "SYS"),
            ("NV18", "X", "NODE", "SYS"),
            ("PIX", "NODE", "X", "NV1"),
            ("SYS", "SYS", "NV1", "X"),
        ),
        ("0", "0", "1", "1"),
    )


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("NV18", "18 NVLinks"),
        ("NV1", "1 NVLink"),
        ("PIX", "one PCIe switch"),
        ("SYS", "between NUMA nodes"),
        ("X", "–"),
        ("NEW", "NEW"),
    ],
)
def test_links_in_words(link: str, words: str) -> None:
    assert topology.in_words(link) == words


@pytest.mark.parametrize(
    "answer", ["", "No devices were found\n", "\tGPU0\tGPU1\nGPU0\t X \n", "\tNIC0\nNIC0\t X \n"]
)
def test_what_is_no_matrix_is_none(answer: str) -> None:
    assert topology.parse(answer) is None


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (["/nowhere/nvidia-smi"], "cannot be started: No such file"),
        (["false"], "false ended with exit code 1"),
        (["true"], "true shows no matrix of GPUs"),
    ],
)
def test_why_there_is_none_is_one_line(question: list[str], why: str) -> None:
    said = topology.ask(question)
    assert isinstance(said, str)
    assert why in said


def write_kept(run: Path, document: object) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / topology.FILE).write_text(json.dumps(document), encoding="utf-8")
    return run


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    assert topology.kept(tmp_path) is None
    run = write_kept(tmp_path, topology.document(found()))
    assert topology.kept(run) == found()
    assert "secret" not in (run / topology.FILE).read_text()


def test_what_is_no_square_is_refused(tmp_path: Path) -> None:
    run = write_kept(tmp_path, {"gpus": [{"index": 0, "links": ["X", "SYS"], "numa": "0"}]})
    with pytest.raises(RecordError, match="is no square of the links"):
        topology.kept(run)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two GPUs, with rates and a link whose name is markup."""
    run = tmp_path_factory.mktemp("linked") / "node"
    size = 256.0 * (1 << 20)
    cost = {"bytes": size, "roof": "gpu_link"}
    noted = {"pairs": "0 to 1: 390 GB/s; 1 to 0: 389 GB/s; "}
    arms = [sample.arm("write", size / 390e9, cost=cost)]
    sample.write(run, sample.launches(3, "ceiling/peer_copy", {"bytes": 1}, arms, notes=noted))
    links = (("X", "NV18", "<b>"), ("NV18", "X", "SYS"), ("<b>", "SYS", "X"))
    write_kept(run, topology.document(Topology((0, 1, 2), links, ("0", "0", ""))))
    page.write(analysed([summarise(read_run(run))]), run / "report")
    return run / "report"


def test_the_page_has_a_matrix_that_needs_neither_colour_nor_width(report: Path) -> None:
    html = written(report)
    assert '<h2 id="topology">How the GPUs are linked</h2>' in html
    (table,) = re.findall(
        r'<table class="stack"><caption id="links-0">.*?</table>', html, re.DOTALL
    )
    assert "18 NVLinks, 390 GB/s" in table
    assert "18 NVLinks, 389 GB/s" in table
    assert 'data-label="to GPU 1"' in table, "a phone shows each row as a list"
    assert "&lt;b&gt;" in table
    assert "faster" not in table
    assert "3 GPUs; 18 NVLinks: 1 pair; &lt;b&gt;: 1 pair; between NUMA nodes: 1 pair; NUMA" in html


def test_without_a_topology_there_is_no_such_section(tmp_path: Path) -> None:
    run = sample.write(tmp_path / "run", [sample.record("a/b", {}, [sample.arm("x", 1e-3)])])
    page.write(analysed([summarise(read_run(run))]), tmp_path / "report")
    assert "are linked" not in written(tmp_path / "report")
