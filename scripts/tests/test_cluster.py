"""What others run of a fleet: manifests of Kubernetes, and jobs of Slurm where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.fleet import kept, measuring, ray_nodes, state
from gpulift.fleet import slurm as fleet_slurm
from gpulift.ground.errors import FAILED, OK
from tests.conftest import CHECKOUT
from tests.fleet import standins

pytestmark = pytest.mark.world

CLUSTER = CHECKOUT / "ci" / "cluster"
SLURM = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "squeue")
NODES = ("n1", "n2")
DEAD = "n3"


def test_manifests_are_what_kubernetes_takes() -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    yaml = pytest.importorskip("yaml")
    for file in sorted(CLUSTER.glob("*.yaml")):
        plain = file.read_text("utf-8")
        for text in (plain, plain.replace("#| ", "")):  # its examples, too
            for manifest in yaml.safe_load_all(text):
                kubernetes.validate(manifest, "1.31", strict=True)


def test_the_examples_of_the_manifest_are_where_kubernetes_looks_for_them() -> None:
    yaml = pytest.importorskip("yaml")
    text = (CLUSTER / "fleet.yaml").read_text("utf-8").replace("#| ", "")
    pod = next(yaml.safe_load_all(text))["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert [one["key"] for one in pod["tolerations"]] == ["nvidia.com/gpu"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/hca": 1}
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}


@pytest.mark.parametrize(
    ("script", "asked"),
    [("slurm_prolog", "--quick 30s"), ("slurm_epilog", "--burn 60s")],
)
@pytest.mark.parametrize(
    ("does", "code"),
    [
        ("exit 0", 0),
        ("echo '✗ Fail'; exit 1", 1),
        ("exit 5", 0),
        ("exit 77", 0),
        ("exit 2", 0),
        ("sleep 60", 1),
    ],
)
def test_slurm_drains_a_node_that_fails_or_hangs_alone(
    tmp_path: Path, script: str, asked: str, does: str, code: int
) -> None:
    standin, told = tmp_path / "gpulift", tmp_path / "told"
    standin.write_text(f'#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $*" > {told}\n{does}\n')
    standin.chmod(0o755)
    known = {**os.environ, "GPULIFT": str(standin), "GPULIFT_LIMIT_S": "2", "TMPDIR": str(tmp_path)}
    job = {**known, "SLURM_JOB_GPUS": "2,3,5"}
    ran = subprocess.run([CLUSTER / script], env=job, capture_output=True, text=True, check=False)
    assert ran.returncode == code
    assert told.read_text().startswith(f"2,3,5 qualify {asked} --gpus all --expect-gpus 3 --out ")
    assert f"gpulift: exit code {124 if 'sleep' in does else does[-2:].strip()}: " in ran.stderr
    assert sorted(tmp_path.iterdir()) == [standin, told], "nothing is left"


@pytest.mark.parametrize("script", ["slurm_prolog", "slurm_epilog"])
@pytest.mark.parametrize(
    ("known", "said"),
    [({}, ""), ({"SLURM_JOB_GPUS": "0"}, "gpulift: exit code 127: ")],
)
def test_a_job_without_gpus_or_a_node_without_gpulift_is_let_be(
    script: str, known: dict[str, str], said: str
) -> None:
    ran = subprocess.run(
        [CLUSTER / script],
        env={"PATH": os.environ["PATH"], "GPULIFT": "/nowhere/gpulift", **known},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0
    assert ran.stderr.startswith(said)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a cluster of this machine alone, whose daemons end with the test: two
    nodes, and one whose daemon was never started."""
    missing = [name for name in SLURM if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"Slurm's daemons need root and {', '.join(missing) or 'nothing else'}")
    key, host = tmp_path / "key", socket.gethostname().partition(".")[0]
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    conf = tmp_path / "slurm.conf"
    for folder in ("state", "spool"):
        (tmp_path / folder).mkdir()
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2"
        for name in (*NODES, DEAD)
    )
    conf.write_text(
        f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={tmp_path}/munge
CredType=cred/munge
StateSaveLocation={tmp_path}/state
SlurmdSpoolDir={tmp_path}/spool/%n
SlurmctldPidFile={tmp_path}/slurmctld.pid
SlurmdPidFile={tmp_path}/slurmd.%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
{nodes}
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
        *(["slurmd", "-D", "-N", name] for name in NODES),
    ]
    with ExitStack() as running:
        log = running.enter_context(told.open("wb"))
        for command in daemons:
            daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            running.callback(daemon.wait)
            running.callback(daemon.terminate)
            if command[0] == "munged":
                wait_until((tmp_path / "munge").exists, told)
        idle = ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"]
        wait_until(lambda: answer_of(idle, environment).split() == [*NODES], told)
        yield environment
        wait_until(lambda: not answer_of(["squeue", "-h"], environment), told)


@pytest.fixture
def ray() -> Iterator[str]:
    """The address of a Ray cluster of two nodes on this machine, which ends with the test."""
    if shutil.which("ray") is None:
        pytest.skip("ray is not there")
    address = f"127.0.0.1:{free_port()}"
    begin = ["ray", "start", "--block", "--disable-usage-stats", "--num-cpus=1"]
    head = ["--head", f"--port={address.partition(':')[2]}", "--include-dashboard=false"]
    # Its sockets' names have no room for a longer folder's.
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        for own in ([*head, f"--temp-dir={folder}"], [f"--address={address}"]):
            told = Path(folder, f"{len(own)}.txt")
            log = running.enter_context(told.open("wb"))
            node = subprocess.Popen([*begin, *own], stdout=log, stderr=log)
            running.callback(node.wait)
            running.callback(node.terminate)
            wait_until(partial(has, told, "Ray runtime started"), told)
        yield address


def answer_of(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


def has(file: Path, words: str) -> bool:
    return words in file.read_text("utf-8")


def wait_until(happens: Callable[[], bool], told_in: Path) -> None:
    ends_s = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < ends_s, told_in.read_text("utf-8", "replace")
        time.sleep(0.05)


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stand-in of gpulift, which nodes call."""
    programs = tmp_path / "programs"
    programs.mkdir()
    gpulift = programs / "gpulift of a test"
    standins.write_program(gpulift, standins.GPULIFT)
    for module in (fleet_slurm, ray_nodes):
        monkeypatch.setattr(module, "own_gpulift", lambda: [str(gpulift)])
    monkeypatch.setenv("STANDIN", str(programs))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return programs


@pytest.fixture
def fleet(slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Calls `fleet qualify` of the nodes of Slurm."""
    monkeypatch.setenv("SLURM_CONF", slurm["SLURM_CONF"])
    return lambda *arguments: cli.main(["fleet", "qualify", "--slurm", "all", *arguments])


def test_jobs_of_slurm_qualify_nodes_and_pairs(
    fleet: Callable[..., int],
    control: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "shared by nodes"
    (control / "qualify-n2").write_text("exit 5\n", encoding="utf-8")
    assert fleet("--out", str(folder)) == FAILED, "a node did not answer"
    said = capsys.readouterr().err
    assert f"{DEAD}: no answer: " in said
    assert [kept.exit_code(state.node_folder(folder, name)) for name in NODES] == [0, 5]
    assert kept.exit_code(folder / "pairs" / "n1+n2") == 0
    calls = (control / "calls").read_text("utf-8").splitlines()
    ranks = sorted(line.split()[:2] for line in calls if " run " in line)
    assert ranks == [["n1", "0"], ["n2", "1"]]


def test_a_node_of_slurm_that_hangs_is_named(
    fleet: Callable[..., int],
    control: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (control / "qualify-n1").write_text("sleep 600\n", encoding="utf-8")
    fleet("--out", str(tmp_path / "shared"), "--wait", "15s")
    assert "n1: no answer: has not answered within 15 s" in capsys.readouterr().err


def test_tasks_of_ray_qualify_nodes_and_pairs(
    ray: str, control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "OWN", tmp_path / "own")
    folder = tmp_path / "here"
    assert cli.main(["fleet", "qualify", "--ray", ray, "--out", str(folder)]) == OK
    nodes = kept.expected(folder).nodes
    assert [kept.exit_code(state.node_folder(folder, name)) for name in nodes] == [0, 0]
    assert kept.exit_code(folder / "pairs" / "+".join(nodes)) == 0
    assert (folder / "pairs" / "+".join(nodes) / "results" / "written").is_file()
