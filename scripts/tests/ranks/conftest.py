"""Hosts made of network namespaces, and ranks that are started on them."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpulift.engine.machine import checkout_root
from gpulift.ground.programs import finished

BUILD = checkout_root() / "build"
LIMIT_S = 240
KEY = b"of all ranks, 16+"
ADDRESSES = ("10.253.0.1", "10.253.0.2")
WORKS = """
import os, pathlib, signal, time
from gpulift_work import distributed
import torch
import torch.distributed as dist
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What does an exchange between hosts cost?",
    "arms": ["alone", "pair"],
    "sweep": {"ranks": [2], "does": ["dies", "ends", "fine", "hangs"]},
    "spans_hosts": True,
    "ranks": {"pair": "ranks"},
    "check": {"meaning": "the sum over ranks", "tolerance": 0.0},
}
LOST = {"dies": [os.getppid(), os.getpid()], "ends": [os.getpid()]}
BYTES = int(os.environ.get("TEST_BYTES", "4"))
STEP_S = 0.05  # a window of one: busy cores make clocks uncertain by a tenth of a millisecond


def make(arm, point, seed, gpu):
    group = distributed.join("gloo", gpu)
    numbers = torch.ones(BYTES // 4)
    steps = []

    def step():
        time.sleep(STEP_S)
        steps.append(1)
        if group.rank == 1 and len(steps) == 3 and point["does"] != "fine":
            pathlib.Path(os.environ["TMPDIR"], "lost_at").write_text(str(time.time()))
            for process in LOST.get(point["does"], ()):
                os.kill(process, signal.SIGKILL)
            if point["does"] == "hangs":
                os.kill(os.getpid(), signal.SIGSTOP)
        if not group.is_alone:
            numbers.fill_(1.0)
            dist.all_reduce(numbers)

    return Arm(step=step, error=lambda: abs(float(numbers[0]) - group.ranks))
"""


@dataclass(frozen=True)
class Host:
    """One that has processes of its own network, or this machine."""

    name: str = ""

    @property
    def entering(self) -> list[str]:
        """In front of a command there."""
        return ["ip", "netns", "exec", self.name] if self.name else []


@dataclass(frozen=True)
class Ended:
    """A rank's process."""

    code: int
    said: str


@dataclass
class Ranks:
    """Ranks of one technique, each on a host, and where rank 0 writes."""

    folder: Path
    hosts: Sequence[Host]
    address: str
    port: int = field(default_factory=lambda: free_port())

    def start(
        self,
        rank: int,
        *options: str,
        wrapper: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """The process of a rank, as a launcher starts it."""
        names = {"RANK": rank, "WORLD_SIZE": len(self.hosts), "LOCAL_RANK": 0}
        place = {name: str(number) for name, number in names.items()}
        place |= {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)}
        command = [sys.executable, "-m", "gpulift", "run", *options, "--ranks", "given"]
        command += ["--techniques", str(self.folder / "works"), "--arm-time", "0.1"]
        command += ["--launches", "1", "--out", str(self.folder / "out")]
        return subprocess.Popen(
            [*self.hosts[rank].entering, *wrapper, *command],
            env=environment(self.folder) | place | dict(variables or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *options: str, variables: Mapping[str, str] | None = None) -> list[Ended]:
        """All ranks to their ends."""
        started = [self.start(rank, *options, variables=variables) for rank in range(2)]
        return [ended(rank) for rank in started]


def ended(process: subprocess.Popen[str]) -> Ended:
    """How it ended, and what it said."""
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
    return Ended(process.returncode, said)


def environment(folder: Path) -> dict[str, str]:
    """Of a call of gpulift past its launcher."""
    paths = [str(checkout_root() / "scripts"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "GPULIFT_BUILD": str(BUILD),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "GPULIFT_RANKS_KEY": KEY.decode(),
    }


def free_port() -> int:
    """That nobody listens at. It stays bound here, so that the system gives it to no other program
    before a rank listens there, which SO_REUSEADDR lets bind it all the same."""
    held = socket.socket()
    atexit.register(held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return int(held.getsockname()[1])


def ip(*words: str) -> None:
    """Throws pytest's skip where it may not."""
    try:
        done = finished(["ip", *words], 10)
    except OSError:
        pytest.skip("there is no program `ip` to make network namespaces with")
    if done.returncode != 0:
        pytest.skip(f"no network namespaces can be made here: {done.stderr.decode().strip()}")


@pytest.fixture
def works(tmp_path: Path) -> Path:
    """A folder with the technique `works/works`."""
    folder = tmp_path / "works"
    folder.mkdir()
    (folder / "works.py").write_text(WORKS)
    return tmp_path


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """Two with a link between them."""
    pair = (Host(f"gpulift-{os.getpid()}-0"), Host(f"gpulift-{os.getpid()}-1"))
    try:
        for host in pair:
            ip("netns", "add", host.name)
            ip("-n", host.name, "link", "set", "lo", "up")
        ends = ["link", "add", "ends", "netns", pair[0].name, "type", "veth"]
        ip(*ends, "peer", "name", "ends", "netns", pair[1].name)
        for host, address in zip(pair, ADDRESSES, strict=True):
            ip("-n", host.name, "addr", "add", f"{address}/24", "dev", "ends")
            ip("-n", host.name, "link", "set", "ends", "up")
        yield pair
    finally:
        if shutil.which("ip"):
            for host in pair:
                finished(["ip", "netns", "delete", host.name], 10)


@pytest.fixture
def two_hosts(works: Path, hosts: tuple[Host, Host]) -> Ranks:
    """A rank on each."""
    return Ranks(works, hosts, ADDRESSES[0])


@pytest.fixture
def one_host(works: Path) -> Ranks:
    """Two ranks here."""
    return Ranks(works, (Host(), Host()), "127.0.0.1")
