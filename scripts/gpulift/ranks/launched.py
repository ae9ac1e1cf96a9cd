"""What a launcher says of a rank in its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpulift.ground.errors import GpuliftError

LOOPBACK = "127.0.0.1"
FIRST_PORT = 20_000  # of jobs of Slurm, which names none
PORTS = 10_000
STEPS = 100  # of a job, which may run side by side
FIRST_HOST = re.compile(r"([^,\[]+)(?:\[(\d+)[^\]]*\])?([^,\[]*)")  # of gpu[07-09,12]-ib,login1


@dataclass(frozen=True)
class Launched:
    """A rank's place, and where all meet."""

    launcher: str
    rank: int
    ranks: int
    local_rank: int
    address: str
    port: int
    store_is_there: bool = False  # the launcher's own listens at the port
    attempt: str = "0"  # of a launcher that starts ranks anew


NAMES = {  # rank, ranks, local rank; those of Slurm last: in a job mpirun's processes have both
    "environment": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


def launched(environment: Mapping[str, str]) -> Launched:
    """The rank that this process is. Throws GpuliftError where no launcher says it, or one says no
    place to meet."""
    launcher = _launcher(environment)
    rank, ranks, local_rank = (_number(environment, name) for name in NAMES[launcher])
    if not 0 <= rank < ranks:
        raise GpuliftError(f"--ranks given: rank {rank} is none of {ranks}")
    if ranks == 1:
        raise GpuliftError("--ranks given: one rank alone has none to exchange with; leave it out")
    address, port = _meeting_place(environment, launcher)
    by_torchrun = "TORCHELASTIC_RUN_ID" in environment
    return Launched(
        launcher="torchrun" if by_torchrun else launcher,
        rank=rank,
        ranks=ranks,
        local_rank=local_rank,
        address=address,
        port=port,
        store_is_there=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )


def _launcher(environment: Mapping[str, str]) -> str:
    for launcher, (rank, ranks, _) in NAMES.items():
        if rank in environment and ranks in environment:
            return launcher
    raise GpuliftError(
        "--ranks given: no launcher started this process: RANK and WORLD_SIZE are not both set, nor"
        " what srun or mpirun set; start it by srun, torchrun -m gpulift.ranks or mpirun"
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise GpuliftError(f"--ranks given: {name} is {text or 'not set'}, and has to be a number")
    return int(text)


def _meeting_place(environment: Mapping[str, str], launcher: str) -> tuple[str, int]:
    """That which is named, else what follows from a job of Slurm or from a single host."""
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if launcher == "slurm":
        hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
        address = address or first_host(hosts)
        port = port or str(_port_of_job(environment))
    elif launcher == "mpirun":
        local, ranks = (environment.get(f"OMPI_COMM_WORLD_{of}SIZE") for of in ("LOCAL_", ""))
        if local == ranks:
            address, port = address or LOOPBACK, port or str(FIRST_PORT)
    if not address or not port.isdecimal():
        raise GpuliftError(
            "--ranks given: MASTER_ADDR and MASTER_PORT do not say where ranks meet: name the host"
            " of rank 0 and a port that is free there"
            + (" (mpirun -x MASTER_ADDR=... -x MASTER_PORT=...)" if launcher == "mpirun" else "")
        )
    return address, int(port)


def first_host(hosts: str) -> str:
    """Of a list as Slurm writes it: node[01-04,7],login1."""
    found = FIRST_HOST.match(hosts)
    return "".join(part or "" for part in found.groups()) if found else ""


def _port_of_job(environment: Mapping[str, str]) -> int:
    """The same on all hosts, and another for jobs and steps that share one."""
    job, step = (environment.get(f"SLURM_{of}_ID", "0") for of in ("JOB", "STEP"))
    numbers = [int(text) if text.isdecimal() else 0 for text in (job, step)]
    return FIRST_PORT + (STEPS * numbers[0] + numbers[1] % STEPS) % PORTS
