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
FIRST_HOST = re.compile(r"(?:[^,\[]|\[[^\]]*\])*")  # of tux[1-2][07-09,12]-ib,login1
FIRST_NUMBER = re.compile(r"\[(\d+)[^\]]*\]")


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


@dataclass(frozen=True)
class Names:
    """The variables of a launcher, and how it is told to set more."""

    launcher: str
    rank: str
    ranks: str
    local_rank: str
    local_ranks: str = ""
    more: str = ""

    def are_in(self, environment: Mapping[str, str]) -> bool:
        """Of mpirun all: srun sets what looks like a part of them."""
        wanted = (self.rank, self.ranks, *([self.local_rank] if self.local_ranks else []))
        return all(name in environment for name in wanted)


PLAIN = Names("environment", "RANK", "WORLD_SIZE", "LOCAL_RANK")
NAMES = (  # those of Slurm last: in a job mpirun's processes have both
    PLAIN,
    *(
        Names("mpirun", f"{of}_RANK", f"{of}_SIZE", f"{of}_LOCAL_RANK", f"{of}_LOCAL_SIZE", more)
        for of, more in (
            ("OMPI_COMM_WORLD", "mpirun -x MASTER_ADDR=... -x MASTER_PORT=..."),
            ("MV2_COMM_WORLD", "mpirun_rsh ... MASTER_ADDR=... MASTER_PORT=... PROGRAM"),
            ("PMI", "mpiexec --env MASTER_ADDR=... --env MASTER_PORT=..."),
        )
    ),
    Names(
        *("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        "mpirun -genv MASTER_ADDR ... -genv MASTER_PORT ...",
    ),
    Names("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def launched(environment: Mapping[str, str]) -> Launched:
    """The rank that this process is. Throws GpuliftError where no launcher says it, or one says no
    place to meet."""
    names = next((one for one in NAMES if one.are_in(environment)), None)
    if names is None:
        by = "torchrun, which reads PET_NNODES" if "PET_NNODES" in environment else "srun, torchrun"
        raise GpuliftError(
            "--ranks given: no launcher started this process: RANK and WORLD_SIZE are not both set,"
            f" nor what srun or mpirun set; start it by {by} (-m gpulift.ranks) or mpirun"
        )
    rank, ranks = (_number(environment, name) for name in (names.rank, names.ranks))
    if not 0 <= rank < ranks:
        raise GpuliftError(f"--ranks given: rank {rank} is none of {ranks}")
    if ranks == 1:
        raise GpuliftError(f"--ranks given: {_alone(environment, names)}")
    address, port = _meeting_place(environment, names)
    by_torchrun = "TORCHELASTIC_RUN_ID" in environment
    return Launched(
        launcher="torchrun" if by_torchrun else names.launcher,
        rank=rank,
        ranks=ranks,
        local_rank=0 if _has_pod(environment, names) else _number(environment, names.local_rank),
        address=address,
        port=port,
        store_is_there=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )


def _alone(environment: Mapping[str, str], names: Names) -> str:
    """What to do with one rank: an image or a shell may have left it there."""
    for other in NAMES:
        if other.are_in(environment) and environment[other.ranks] != "1":
            return (
                f"{names.ranks} is 1, but {other.ranks} is {environment[other.ranks]}: unset"
                f" {names.rank} and {names.ranks} where the latter is meant"
            )
    return f"one rank alone ({names.ranks} is 1) has none to exchange with; leave it out"


def _has_pod(environment: Mapping[str, str], names: Names) -> bool:
    """Whether the rank is a pod of Kubeflow's, which says no local rank: all of its ranks would be
    started by torchrun."""
    if names is not PLAIN or PLAIN.local_rank in environment or "PET_NNODES" not in environment:
        return False
    if (ranks := environment[PLAIN.ranks]) != (pods := environment["PET_NNODES"]):
        raise GpuliftError(
            f"--ranks given: {PLAIN.ranks} is {ranks} of {pods} pods (PET_NNODES), and"
            f" {PLAIN.local_rank} is not set: start it in each by torchrun (-m gpulift.ranks)"
        )
    return True


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise GpuliftError(f"--ranks given: {name} is {text or 'not set'}, and has to be a number")
    return int(text)


def _meeting_place(environment: Mapping[str, str], names: Names) -> tuple[str, int]:
    """That which is named, else what follows from a job of Slurm or from a single host."""
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if names.launcher == "slurm":
        hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
        address = address or first_host(hosts)
        port = port or str(_port_of_job(environment))
    elif environment.get(names.local_ranks) == environment[names.ranks]:
        address, port = address or LOOPBACK, port or str(FIRST_PORT)
    if not address or not port.isdecimal():
        raise GpuliftError(
            "--ranks given: MASTER_ADDR and MASTER_PORT do not say where ranks meet: name the host"
            " of rank 0 and a port that is free there" + (f" ({names.more})" if names.more else "")
        )
    return address, int(port)


def first_host(hosts: str) -> str:
    """Of a list as Slurm writes it: node[01-04,7],login1."""
    found = FIRST_HOST.match(hosts)
    return FIRST_NUMBER.sub(r"\1", found[0] if found else "")


def _port_of_job(environment: Mapping[str, str]) -> int:
    """The same on all hosts, and another for jobs and steps that share one."""
    job, step = (environment.get(f"SLURM_{of}_ID", "0") for of in ("JOB", "STEP"))
    numbers = [int(text) if text.isdecimal() else 0 for text in (job, step)]
    return FIRST_PORT + (STEPS * numbers[0] + numbers[1] % STEPS) % PORTS
