"""Nodes that are qualified as one job: by Slurm, where it is installed, and by hand."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

CLUSTER = CHECKOUT / "ci" / "cluster"
SLURM = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo")
# Takes the place of ./gpulift: what NODE_CODES says of this node, with two failed checks.
FAKE = """\
#!/bin/sh
echo "asked: $*"
echo progress >&2
out=; while [ $# -gt 0 ]; do [ "$1" = --out ] && out=$2; shift; done
mkdir -p "$out/node"
cat > "$out/node/qualification.json" << 'END'
{
 "checks": [
  {
   "id": "roof/gpu_link/burst",
   "verdict": "pass"
  },
  {
   "id": "pairs/0 (1a2b3c4d) to 1 (5e6f7a8b)",
   "verdict": "fail"
  },
  {
   "id": "time/launch/cuda_graph/n:1/stream",
   "verdict": "fail"
  }
 ]
}
END
exit "${CODE:-0}"
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    file = tmp_path / "gpulift of a test"
    file.write_text(FAKE, encoding="utf-8")
    file.chmod(0o755)
    return file


def called(
    program: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CLUSTER / program, *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def qualified(fake: Path, folder: Path, host: str, code: int, *arguments: str) -> str:
    """The node's name."""
    given = {"GPULIFT": str(fake), "GPULIFT_HOST": host, "CODE": str(code)}
    done = called("qualify_node", str(folder), *arguments, environment=given)
    assert done.returncode == 0, "one node's verdict ends no other's"
    return done.stdout.partition(":")[0]


def test_each_node_keeps_all_in_a_folder_that_does_not_name_it(fake: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shared by nodes"
    names = {qualified(fake, folder, host, 0) for host in ("rack1-node7", "rack1-node8")}
    assert names == {one.name for one in folder.iterdir()}
    assert all(len(name) == 8 and set(name) <= set("0123456789abcdef") for name in names)
    first = folder / names.pop()
    asked = f"asked: qualify --out {first}/results --gpus all\n"
    assert (first / "verdicts.txt").read_text("utf-8") == asked
    assert (first / "log.txt").read_text("utf-8") == "progress\n"
    assert (first / "exit_code").read_text("utf-8") == "0\n"
    again = folder / qualified(fake, folder, "rack1-node7", 5, "--quick", "5m", "--gpus", "0,1")
    assert "results --quick 5m --gpus 0,1" in (again / "verdicts.txt").read_text("utf-8")
    assert (again / "exit_code").read_text("utf-8") == "5\n"


def test_a_node_may_have_the_name_that_the_user_gives(fake: Path, tmp_path: Path) -> None:
    given = {"GPULIFT": str(fake), "GPULIFT_NODE_FROM": "NAME"}
    named = {**given, "NAME": "rack1-node7"}
    assert called("qualify_node", str(tmp_path / "out"), environment=named).returncode == 0
    assert (tmp_path / "out" / "rack1-node7" / "exit_code").is_file()
    for name in ("", "../up", "-x", "a/b"):
        wrong = called("qualify_node", str(tmp_path), environment={**given, "NAME": name})
        assert wrong.returncode == 2
        assert f"GPULIFT_NODE_FROM=NAME: '{name}' is no name" in wrong.stderr
    assert called("qualify_node").returncode == 2


def test_failed_nodes_are_named_with_their_checks(fake: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shared by nodes"
    sound, failed = (qualified(fake, folder, host, code) for host, code in (("a", 0), ("b", 1)))
    done = called("gather", str(folder), "2")
    assert done.returncode == 1
    pairs = "pairs/0 (1a2b3c4d) to 1 (5e6f7a8b)"
    assert f"{sound}: pass\n" in done.stdout
    assert f"{failed}: fail: {pairs}; see {folder}/{failed}/log.txt\n" in done.stdout
    assert done.stdout.endswith("2 nodes: 1 failed, 0 inconclusive, 0 without a result\n")


@pytest.mark.parametrize(
    ("codes", "expected", "code", "words"),
    [
        ([0, 0], "2", 0, "2 nodes: 0 failed"),
        ([0, 5], "2", 5, ": inconclusive"),
        ([0, 77], "2", 0, ": nothing could run"),
        ([77, 77], "2", 77, "2 without a result"),
        ([0, 70], "2", 1, ": fail: exit code 70; see "),
        ([0], "3", 1, "2 of 3 nodes kept nothing"),
        ([], "", 77, "0 nodes"),
    ],
)
def test_the_exit_code_is_that_of_the_worst_node(
    fake: Path, tmp_path: Path, codes: list[int], expected: str, code: int, words: str
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    for number, one in enumerate(codes):
        qualified(fake, folder, str(number), one)
    done = called("gather", str(folder), expected)
    assert (done.returncode, done.stderr) == (code, "")
    assert words in done.stdout


def test_a_node_that_did_not_end_failed(fake: Path, tmp_path: Path) -> None:
    node = qualified(fake, tmp_path / "shared", "a", 0)
    (tmp_path / "shared" / node / "exit_code").unlink()
    done = called("gather", str(tmp_path / "shared"))
    assert done.returncode == 1
    assert f"{node}: fail: it did not end; see " in done.stdout


@pytest.mark.parametrize("arguments", [[], ["/nowhere"], [".", "two"]])
def test_gather_refuses_what_it_cannot_read(arguments: list[str]) -> None:
    done = called("gather", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gather: ")


def test_manifests_are_what_kubernetes_takes() -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    yaml = pytest.importorskip("yaml")
    for file in sorted(CLUSTER.glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text("utf-8")):
            kubernetes.validate(manifest, "1.31", strict=True)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a cluster of this machine alone, whose daemons end with the test."""
    missing = [name for name in SLURM if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"Slurm's daemons need root and {', '.join(missing) or 'nothing else'}")
    key, host = tmp_path / "key", socket.gethostname().partition(".")[0]
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    conf = tmp_path / "slurm.conf"
    for folder in ("state", "spool"):
        (tmp_path / folder).mkdir()
    conf.write_text(
        f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={tmp_path}/munge
CredType=cred/munge
StateSaveLocation={tmp_path}/state
SlurmdSpoolDir={tmp_path}/spool
SlurmctldPidFile={tmp_path}/slurmctld.pid
SlurmdPidFile={tmp_path}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=1
PartitionName=all Nodes=ALL Default=YES
""",
        encoding="utf-8",
    )
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    munge = [f"--{name}-file={tmp_path}/munge.{name}" for name in ("pid", "log", "seed")]
    munge += [f"--key-file={key}", f"--socket={tmp_path}/munge"]
    told = tmp_path / "daemons.txt"
    daemons = [
        ["munged", "--foreground", "--force", *munge],
        ["slurmctld", "-D"],
        ["slurmd", "-D", "-N", host],
    ]
    with ExitStack() as running:
        log = running.enter_context(told.open("wb"))
        for command in daemons:
            daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            running.callback(daemon.wait)
            running.callback(daemon.terminate)
            if command[0] == "munged":
                wait_until((tmp_path / "munge").exists, told)
        wait_until(lambda: "idle" in answer_of(["sinfo", "-h", "-o", "%T"], environment), told)
        yield environment
        wait_until(lambda: not answer_of(["squeue", "-h"], environment), told)


def answer_of(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


def wait_until(happens: Callable[[], bool], told_in: Path) -> None:
    ends_s = time.monotonic() + 30
    while not happens():
        assert time.monotonic() < ends_s, told_in.read_text("utf-8", "replace")
        time.sleep(0.05)


def test_a_job_of_slurm_qualifies_its_nodes_and_names_the_failed(
    slurm: dict[str, str], fake: Path, tmp_path: Path
) -> None:
    folder, output = tmp_path / "shared", tmp_path / "job.txt"
    given = {**slurm, "GPULIFT": str(fake), "CODE": "1", "GPULIFT_NODE_FROM": "SLURMD_NODENAME"}
    submitted = subprocess.run(
        ["sbatch", "--nodes=1", f"--output={output}", CLUSTER / "qualify.sbatch", folder],
        env=given,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert submitted.returncode == 0, submitted.stderr
    daemons = tmp_path / "daemons.txt"
    wait_until(lambda: output.exists() and "nodes:" in output.read_text("utf-8"), daemons)
    node = socket.gethostname().partition(".")[0]
    told = output.read_text("utf-8")
    assert f"{node}: exit code 1\n" in told
    pairs = "pairs/0 (1a2b3c4d) to 1 (5e6f7a8b)"
    assert f"{node}: fail: {pairs}; see {folder}/{node}/log.txt\n" in told
    assert told.endswith("1 nodes: 1 failed, 0 inconclusive, 0 without a result\n")
