"""Where launchers say that a rank is, and where all meet."""

from __future__ import annotations

import re

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
    [
        ("a1", "a1"),
        ("login,a1", "login"),
        ("a[3,5]", "a3"),
        ("a[01-04]-ib,b", "a01-ib"),
        ("tux[1-2][3-4]", "tux13"),
        ("rack[2,4]node[07-09,12]-ib[0],b", "rack2node07-ib0"),
        ("", ""),
        ("a[", "a"),
    ],
)
def test_the_first_host_of_a_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


@pytest.mark.parametrize(
    ("rank", "local", "more"),
    [
        ("OMPI_COMM_WORLD", "OMPI_COMM_WORLD_LOCAL_{}", "mpirun -x MASTER_ADDR"),
        ("MV2_COMM_WORLD", "MV2_COMM_WORLD_LOCAL_{}", "mpirun_rsh ... MASTER_ADDR"),
        ("PMI", "PMI_LOCAL_{}", "mpiexec --env MASTER_ADDR"),
        ("PMI", "MPI_LOCAL{}", "mpirun -genv MASTER_ADDR"),
    ],
    ids=["Open MPI", "MVAPICH", "PALS", "MPICH, Intel MPI"],
)
def test_mpirun_names_no_place_but_on_one_host(rank: str, local: str, more: str) -> None:
    names = ("RANKID", "NRANKS") if local == "MPI_LOCAL{}" else ("RANK", "SIZE")
    local_rank, local_ranks = map(local.format, names)
    mpirun = {f"{rank}_RANK": "3", f"{rank}_SIZE": "4", local_rank: "1", local_ranks: "4"}
    assert launched(mpirun) == Launched("mpirun", 3, 4, 1, "127.0.0.1", 20_000)
    with pytest.raises(GpuliftError, match=re.escape(more)):
        launched(mpirun | {local_ranks: "2"})
    assert launched(mpirun | {local_ranks: "2"} | MEETING).port == 29500
    assert launched(SLURM | mpirun | MEETING).rank == 3, "in a job all have Slurm's variables"
    del mpirun[local_rank]
    assert launched(SLURM | mpirun).rank == 9, "srun --mpi=pmi2 sets a part of PMI's"


def test_a_pod_of_kubeflow_is_a_rank() -> None:
    pod = {"RANK": "1", "WORLD_SIZE": "2", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto"}
    assert launched(pod | MEETING) == Launched("environment", 1, 2, 0, "node1", 29500)
    by_torchrun = pod | {"WORLD_SIZE": "16", "RANK": "9", "LOCAL_RANK": "1"}
    assert launched(by_torchrun | MEETING).local_rank == 1


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "no launcher started this process"),
        ({"RANK": "0", **MEETING}, "RANK and WORLD_SIZE are not both set"),
        ({**PLAIN, **MEETING, "RANK": "x"}, "RANK is x"),
        ({"RANK": "0", "WORLD_SIZE": "2", **MEETING}, "LOCAL_RANK is not set"),
        ({**PLAIN, **MEETING, "RANK": "4"}, "rank 4 is none of 4"),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, "one rank alone .WORLD_SIZE is 1"),
        (
            {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", **SLURM},
            "WORLD_SIZE is 1, but SLURM_NTASKS is 16: unset RANK and WORLD_SIZE",
        ),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "0"}, "start it by torchrun, which reads PET_NNODES"),
        (
            {"RANK": "0", "WORLD_SIZE": "16", "PET_NNODES": "2", **MEETING},
            "WORLD_SIZE is 16 of 2 pods .PET_NNODES., and LOCAL_RANK is not set",
        ),
        (PLAIN, "do not say where ranks meet"),
        ({**PLAIN, "MASTER_ADDR": "a", "MASTER_PORT": "-1"}, "do not say where ranks meet"),
    ],
)
def test_what_says_no_place_is_refused(variables: dict[str, str], told: str) -> None:
    with pytest.raises(GpuliftError, match=told):
        launched(variables)
