"""`gpulift fleet qualify`, with programs in the place of each scheduler's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.fleet import jobs, kept, measuring, ray_nodes, schedulers, slurm, state
from gpulift.ground.errors import FAILED, INCONCLUSIVE, OK, USAGE
from tests.fleet import standins
from tests.fleet.standins import pod, ray_node

pytestmark = pytest.mark.world

NODES = ("n1", "n2", "n3")


@dataclass(frozen=True)
class Cluster:
    """What the stand-ins read and write, and the fleet's folder."""

    control: Path
    folder: Path

    def qualify(self, *arguments: str) -> int:
        return cli.main(["fleet", "qualify", "--out", str(self.folder), *arguments])

    def has(self, **states: str) -> None:
        lines = [f"{name}|{told}|(null)" for name, told in states.items()]
        (self.control / "nodes").write_text("\n".join(lines), encoding="utf-8")

    def does(self, command: str, node: str, shell: str) -> None:
        (self.control / f"{command}-{node}").write_text(shell, encoding="utf-8")

    def calls(self, command: str) -> list[str]:
        """Since the last time: node, rank, arguments, number of ranks and their meeting place."""
        file = self.control / "calls"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return sorted(line.strip() for line in lines if f" {command} " in line)

    def text(self, *parts: str) -> str:
        return self.folder.joinpath(*parts).read_text("utf-8")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    programs, control = tmp_path / "programs", tmp_path / "control"
    programs.mkdir()
    control.mkdir()
    own = programs / "gpulift of this checkout"
    standins.install(programs, own)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(control))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "own"))
    for module in (slurm, ray_nodes):
        monkeypatch.setattr(module, "own_gpulift", lambda: [str(own)])
    made = Cluster(control, tmp_path / "shared by nodes")
    made.has(n1="idle", n2="idle", n3="idle")
    return made


def kubernetes(cluster: Cluster) -> None:
    pods = [pod(name, gpus=2) for name in NODES]
    standins.write_json(cluster.control / "pods", {"items": pods})


def ray(cluster: Cluster) -> None:
    nodes = [ray_node(name, GPU=2.0, CPU=8.0) for name in NODES]
    standins.write_json(cluster.control / "nodes", nodes)


def test_slurm_qualifies_nodes_then_pairs_then_groups(cluster: Cluster) -> None:
    assert cluster.qualify("--slurm", "all") == OK
    for name in NODES:
        node = state.node_folder(cluster.folder, name)
        assert (node / "exit_code").read_text("utf-8") == "0\n"
        assert (node / "verdicts.txt").read_text("utf-8") == "qualify --quick --gpus all\n"
        assert (node / "log.txt").read_text("utf-8").startswith("progress of 0\n")
        assert (node / "results" / "qualification.json").is_file()
    pairs = {folder.name for folder in (cluster.folder / "pairs").iterdir()}
    assert {frozenset(name.split("+")) for name in pairs} == {
        frozenset(pair) for pair in combinations(NODES, 2)
    }
    for name in pairs:
        assert cluster.text("pairs", name, "nodes.txt").split() == name.split("+")
        assert cluster.text("pairs", name, "exit_code") == "0\n"
    assert cluster.text("groups", "n1..n3", "nodes.txt") == "n1\nn2\nn3\n"
    run = "run ceiling/collectives --ranks given"
    calls = cluster.calls("run")
    assert len(calls) == 3 * 2 + 3
    assert {f"n1 0 {run}", f"n2 1 {run}", f"n3 2 {run}"} <= set(calls)


@pytest.mark.parametrize(
    ("scheduler", "prepare"),
    [(("--kubernetes", "gpus"), kubernetes), (("--ray", "head:6379"), ray)],
)
def test_what_nodes_keep_for_themselves_is_fetched(
    cluster: Cluster, scheduler: tuple[str, str], prepare: Callable[[Cluster], None]
) -> None:
    prepare(cluster)
    cluster.does("qualify", "n2", "exit 5\n")
    assert cluster.qualify(*scheduler, "--", "--quick", "5m") == INCONCLUSIVE
    for name, code in zip(NODES, (0, 5, 0), strict=True):
        node = state.node_folder(cluster.folder, name)
        assert (node / "exit_code").read_text("utf-8") == f"{code}\n"
        assert (node / "verdicts.txt").read_text(
            "utf-8"
        ) == "qualify --expect-gpus 2 --quick --gpus all --quick 5m\n"
        assert (node / "results" / "qualification.json").is_file()
    assert cluster.text("pairs", "n1+n2", "results", "written")
    assert not list((cluster.control.parent / "own").iterdir()), "what was fetched is gone there"
    ranks = [line for line in cluster.calls("run") if " 6 " in line]
    run = "run ceiling/collectives --ranks given 6 ip-of-n1"
    assert ranks == [f"n{1 + rank // 2} {rank} {run}" for rank in range(6)]
    keys = (cluster.control / "keys").read_text("utf-8").splitlines()
    assert len(keys) == 3 * 4 + 6, "each rank has one"
    assert {len(line.split()[-1]) for line in keys} == {64}
    assert len(set(keys)) == 4, "all of a meeting have the same, and each meeting its own"


def test_of_a_node_whose_gpus_are_parts_of_some_one_is_expected(cluster: Cluster) -> None:
    (cluster.control / "nodes").write_text("n1|idle|gpu:1g.10gb:7\nn2|idle|gpu:h100:8\n")
    cluster.qualify("--slurm", "all")
    for name, gpus in (("n1", 1), ("n2", 8)):
        asked = f"qualify --expect-gpus {gpus} --quick --gpus all\n"
        assert cluster.text("nodes", name, "verdicts.txt") == asked


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ('ln -s "$STANDIN/profile" "$out/qualification"', "'results/qualification' is neither"),
        ('rm -rf "$out"; ln -s "$STANDIN" "$out"', "'results' is neither a file nor a folder"),
        ('rm -rf "${out%/*}"; echo "gpulift: results are in /etc" >&2', "can't cd"),
        ('head -c 4M /dev/zero > "$out/zeros"', "more than 1 MiB came"),
    ],
)
def test_a_node_that_sends_what_is_no_result_changes_nothing_here(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    planted: str,
    words: str,
) -> None:
    monkeypatch.setattr(measuring, "FETCH_BYTES", 1 << 20)
    profile = cluster.control / "profile"
    profile.write_text("of the operator\n", encoding="utf-8")
    kubernetes(cluster)
    cluster.does("qualify", "n2", f"{planted}\n")
    assert cluster.qualify("--kubernetes", "gpus") == FAILED
    said = capsys.readouterr().err
    assert "n2: no answer: its results did not come: " in said
    assert words in said
    assert not (cluster.folder / "nodes" / "n2" / "results").exists()
    assert profile.read_text("utf-8") == "of the operator\n"


def test_what_is_there_is_not_measured_again(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.does("qualify", "n2", 'rm "$out"/*; exit 1\n')
    cluster.does("run", "n3", "exit 1\n")
    cluster.qualify("--slurm", "all")
    assert len(cluster.calls("qualify")) == 3
    cluster.does("qualify", "n2", "")
    cluster.does("run", "n3", "")
    cluster.qualify("--slurm", "all")
    assert "2 qualified already, 1 to qualify" in capsys.readouterr().err
    assert cluster.calls("qualify") == ["n2 0 qualify --quick --gpus all"]
    cluster.qualify("--slurm", "all")
    assert not cluster.calls("run")


def test_a_pair_that_failed_is_measured_again(cluster: Cluster) -> None:
    cluster.does("run", "n3", "exit 1\n")
    cluster.qualify("--slurm", "all")
    assert cluster.text("groups", "n1..n3", "exit_code") == "1\n"
    cluster.calls("run")
    cluster.does("run", "n3", "")
    cluster.qualify("--slurm", "all")
    assert len(cluster.calls("run")) == 2 * 2 + 3, "the pair without n3 was measured"


def test_nodes_that_do_not_answer_are_named_and_stay_expected(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.has(n1="idle", n2="down*", n3="idle")
    assert cluster.qualify("--slurm", "all") == FAILED
    told = capsys.readouterr()
    assert "gpulift: n2: no answer: down\n" in told.err
    report = cluster.folder / "report" / "index.html"
    sentence = f"3 nodes: 1 no answer, 2 pass; report: {report}"
    assert told.out.splitlines() == ["n2: no answer: down", sentence]
    assert report.is_file()
    assert cluster.text("nodes", "n2", "log.txt") == "gpulift: no answer: down\n"
    assert not (cluster.folder / "nodes" / "n2" / "exit_code").exists()
    assert [at.name for at in (cluster.folder / "pairs").iterdir()] == ["n1+n3"]
    assert not (cluster.folder / "groups").exists(), "that would be the pair"
    cluster.has(n1="idle", n3="idle")
    cluster.qualify("--slurm", "all")
    assert "n2: no answer: not known to slurm now" in capsys.readouterr().err
    assert kept.expected(cluster.folder).nodes == NODES


def test_a_node_that_hangs_costs_its_limit_only(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LOOK_S", 0.05)
    cluster.has(n1="idle", n2="idle")
    cluster.does("qualify", "n2", "sleep 600\n")
    cluster.qualify("--slurm", "all", "--wait", "3s")
    said = capsys.readouterr().err
    late = "n2: no answer: has not answered within 3 s: progress of 0; see "
    assert f"{late}{cluster.folder}/nodes/n2" in said
    assert not (cluster.folder / "pairs").exists()


def test_so_many_nodes_as_were_asked_for(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.has(n1="drained", n2="idle", n3="idle")
    cluster.qualify("--slurm", "all", "--nodes", "2")
    assert kept.expected(cluster.folder).nodes == ("n2", "n3")
    assert cluster.qualify("--slurm", "all", "--nodes", "4") == USAGE
    assert "--nodes 4: there are 3" in capsys.readouterr().err


def test_racks_are_kept(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    racks = cluster.control / "racks.csv"
    others = "".join(f"m{number},rack 2\n" for number in range(9))
    racks.write_text(f"n1,rack 1\n{others}", encoding="utf-8")
    cluster.qualify("--slurm", "all", "--labels", str(racks))
    said = capsys.readouterr().err
    assert "--labels: 9 of 10 are no nodes of this fleet: m0, m1, m2 and 6 more\n" in said
    cluster.qualify("--slurm", "all")
    assert kept.expected(cluster.folder).labels["n1"] == "rack 1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give one of --slurm"),
        (("--slurm", "all", "--ray", "head"), "give one of --slurm"),
        (("--slurm", ""), "is empty"),
        (("--slurm", "nowhere"), "no partition with nodes; there is all, tests"),
        (("--ray", "elsewhere:1"), "Ray at elsewhere:1: ConnectionError: no Ray at elsewhere:1"),
        (("--slurm", "all", "--wait", "2"), "--wait 2: give a time"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_measured(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert cluster.qualify(*arguments) in (USAGE, FAILED)
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not cluster.folder.exists()


def test_a_scheduler_that_is_not_here_or_silent(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "ANSWER_S", 0.1)
    (cluster.folder.parent / "programs" / "sinfo").write_text("#!/bin/sh\nsleep 600\n")
    assert cluster.qualify("--slurm", "all") == FAILED
    assert "sinfo has not answered within 0.1 s" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "/nowhere")
    for option, program in (("--slurm", "srun"), ("--kubernetes", "kubectl"), ("--ray", "ray")):
        assert cluster.qualify(option, "all") == USAGE
        assert f"{program} is not here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("Welcome to this cluster\nn1|idle|(null)\n", ""),
        ("../n1|idle|(null)\n", "a node is called '../n1', which no folder can be"),
        ("..|down|(null)\n", "a node is called '..'"),
    ],
)
def test_names_that_are_none_of_a_folder_are_refused(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], listed: str, words: str
) -> None:
    (cluster.control / "nodes").write_text(listed, encoding="utf-8")
    assert cluster.qualify("--slurm", "all") == (FAILED if words else OK)
    assert words in capsys.readouterr().err
    assert (cluster.folder / "nodes").exists() is not bool(words)


@pytest.mark.parametrize(
    ("breaks", "file"),
    [
        ("qualify", "nodes/n2/results/qualification.json"),
        ("run", "pairs/n1+n2/results/ceiling.collectives.jsonl"),
    ],
)
def test_what_cannot_be_read_is_measured_again(cluster: Cluster, breaks: str, file: str) -> None:
    cluster.has(n1="idle", n2="idle")
    cluster.qualify("--slurm", "all")
    cluster.calls(breaks)
    (cluster.folder / file).write_text("{", encoding="utf-8")
    cluster.qualify("--slurm", "all")
    nodes = [line.split()[0] for line in cluster.calls(breaks)]
    assert nodes == (["n2"] if breaks == "qualify" else ["n1", "n2"])


def test_a_group_is_measured_again_when_more_of_it_answer(cluster: Cluster) -> None:
    cluster.has(n1="idle", n2="idle", n3="idle", n4="down")
    cluster.qualify("--slurm", "all")
    assert cluster.text("groups", "n1..n4", "nodes.txt").split() == [*NODES]
    cluster.calls("run")
    cluster.qualify("--slurm", "all")
    assert not cluster.calls("run")
    cluster.has(n1="idle", n2="idle", n3="idle", n4="idle")
    cluster.qualify("--slurm", "all")
    assert cluster.text("groups", "n1..n4", "nodes.txt").split() == [*NODES, "n4"]
    assert len(cluster.calls("run")) == 3 * 2 + 4


def test_a_node_without_a_verdict_has_not_passed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.has(n1="idle", n2="idle")
    gone = 'rm "$out"/*; echo "gpulift: error: No such option: --x" >&2; exit'
    cluster.does("qualify", "n1", f"{gone} 0")
    cluster.does("qualify", "n2", f"{gone} 2")
    assert cluster.qualify("--slurm", "all") == FAILED
    said = capsys.readouterr()
    told = [f"exit code {code} without a verdict: No such option: --x" for code in (0, 2)]
    assert said.out.splitlines()[:2] == [f"n2: fail: {told[1]}", f"n1: no answer: {told[0]}"]
    assert all(f"{why}; see {cluster.folder}/nodes" in said.err for why in told)


def test_nodes_that_burn_are_not_quick(cluster: Cluster) -> None:
    cluster.has(n1="idle")
    cluster.qualify("--slurm", "all", "--", "--burn=60s")
    assert cluster.calls("qualify") == ["n1 0 qualify --gpus all --burn=60s"]


def test_a_folder_of_another_fleet_is_refused(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.qualify("--slurm", "all")
    assert cluster.qualify("--slurm", "all", "--", "--quick", "5m") == USAGE
    assert "holds nodes qualified with --quick --gpus all" in capsys.readouterr().err
    kubernetes(cluster)
    assert cluster.qualify("--kubernetes", "gpus") == USAGE
    assert "holds a fleet of slurm" in capsys.readouterr().err
