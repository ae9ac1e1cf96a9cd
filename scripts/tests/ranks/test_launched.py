"""Where launchers say that a rank is, and where all meet."""

from __future__ import annotations

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.ranks.launched import Launched, first_host, launched

PLAIN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
MEETING = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
SLURM = {
    "SLURM_PROCID": "9",
    "SLURM_NTASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def test_what_is_set_is_taken() -> None:
    assert launched(PLAIN | MEETING) == Launched("environment", 1, 4, 1, "node1", 29500)


def test_torchrun_has_a_store_of_its_own() -> None:
    more = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    found = launched(PLAIN | MEETING | more | {"TORCHELASTIC_RESTART_COUNT": "2"})
    assert (found.launcher, found.store_is_there, found.attempt) == ("torchrun", True, "2")


def test_slurm_names_hosts_and_a_job() -> None:
    found = launched(SLURM)
    assert (found.launcher, found.rank, found.ranks, found.local_rank) == ("slurm", 9, 16, 1)
    assert found.address == "gpu07"
    assert 20_000 <= found.port < 30_000
    assert found.port != launched(SLURM | {"SLURM_STEP_ID": "3"}).port, "steps may share a host"
    assert launched(SLURM | MEETING).address == "node1"


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("a1", "a1"), ("login,a1", "login"), ("a[3,5]", "a3"), ("a[01-04]-ib,b", "a01-ib"), ("", "")],
)
def test_the_first_host_of_a_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


def test_mpirun_names_no_place_but_on_one_host() -> None:
    assert launched(MPIRUN).address == "127.0.0.1"
    with pytest.raises(GpuliftError, match="mpirun -x MASTER_ADDR"):
        launched(MPIRUN | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    assert launched(MPIRUN | MEETING).port == 29500
    assert launched(SLURM | MPIRUN | MEETING).rank == 1, "in a job all have Slurm's variables"


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "no launcher started this process"),
        ({"RANK": "0", **MEETING}, "RANK and WORLD_SIZE are not both set"),
        ({**PLAIN, **MEETING, "RANK": "x"}, "RANK is x"),
        ({"RANK": "0", "WORLD_SIZE": "2", **MEETING}, "LOCAL_RANK is not set"),
        ({**PLAIN, **MEETING, "RANK": "4"}, "rank 4 is none of 4"),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, "one rank alone"),
        (PLAIN, "do not say where ranks meet"),
        ({**PLAIN, "MASTER_ADDR": "a", "MASTER_PORT": "-1"}, "do not say where ranks meet"),
    ],
)
def test_what_says_no_place_is_refused(variables: dict[str, str], told: str) -> None:
    with pytest.raises(GpuliftError, match=told):
        launched(variables)
