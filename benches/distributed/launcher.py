"""distributed/launcher: who starts the ranks of a training, and what they find around them."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import gpulift_worker
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "Does it matter who starts the ranks of a training, once all have the same "
    "environment?",
    "expectation": "Not to a step. torchrun sets OMP_NUM_THREADS to 1 where nobody has; processes "
    "that torch.multiprocessing or Ray start take a thread for every core each, mpirun and srun as "
    "many as they bind a rank to. Two ranks on n cores are then 2 n threads on n cores: 1.0 to 0.6 "
    "of torchrun's pace where a rank needs all its cores, and faster than torchrun where one "
    "thread a rank leaves cores idle: with 16 cores, 4 to 8 times. With OMP_NUM_THREADS=1 for all, "
    "1.00. The first step comes after an import of torch, 3 to 6 s, which all ranks do at once; "
    "torchrun imports it once more ahead of them, and Ray starts its own processes, 5 to 10 s.",
    "predict": [
        "threads:as_launched @h100: spawn 4-8, ray 4-8",
        "threads:one: spawn 0.95-1.05, mpirun 0.95-1.05, srun 0.95-1.05, ray 0.95-1.05",
    ],
    "arms": ["torchrun", "spawn", "mpirun", "srun", "ray"],
    "l2": "none",
    "page_cache": "none",
    "sweep": {"threads": ["as_launched", "one"]},
    "check": {
        "meaning": "the loss of a step of the first rank, against that of torchrun's",
        "tolerance": 1e-4,
    },
}

MODEL = "resnet18"
ROWS = 8
RANKS = 2
START_S = 120
ANSWER_S = 120
THREADS = "OMP_NUM_THREADS"
SELF = [sys.executable, str(Path(__file__).resolve())]
# What a rank is called by who starts it.
RANK_BY = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")

Json = dict[str, Any]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Ranks that train beside this process, which only asks them to."""
    variables = environment_of(str(point["threads"]))
    launched = Launched(arm, LAUNCHERS[arm](), variables, [MODEL, str(seed)])
    return Arm(
        step=launched.step,
        value=launched.loss,
        metrics=lambda: {"time_to_first_step_s": launched.first_step_s},
        notes={
            "model": f"{MODEL}, {ROWS} rows a rank",
            f"ranks_of_{arm}": launched.surroundings(),
        },
        versions=launched.versions(),
        items=RANKS * ROWS,
        item="image",
    )


def environment_of(threads: str) -> dict[str, str]:
    """That of the launcher."""
    if threads == "as_launched" and THREADS in os.environ:
        raise Skip(f"{THREADS} is set", f"unset {THREADS}")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return variables if threads == "as_launched" else {**variables, THREADS: "1"}


class Launched:
    """Ranks that somebody else starts, asked by lines over a socket of this machine."""

    def __init__(
        self, name: str, command: list[str], variables: Mapping[str, str], job: list[str]
    ) -> None:
        self._begun_s = monotonic()
        self.first_step_s = 0.0
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
            address = str(Path(folder) / "ranks")
            listening.bind(address)
            listening.listen(RANKS)
            with open(Path(folder) / "errors", "w+", encoding="utf-8") as errors:
                launcher = subprocess.Popen(
                    [*command, address, free_port(), *job],
                    env=dict(variables),
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                )
                try:
                    ends = joining(listening, launcher)
                    self._lines = [end.makefile("rw", encoding="utf-8") for end in ends]
                    answers = [self._answer(line) for line in self._lines]
                except (OSError, RuntimeError) as failure:
                    launcher.kill()
                    launcher.wait()
                    errors.seek(0)
                    raise Skip(
                        f"{name} cannot start ranks: {last_line(errors.read()) or failure}",
                        f"see whether {name} starts any program here",
                    ) from failure
        self._said = sorted(answers, key=lambda answer: int(answer["rank"]))

    def step(self) -> None:
        """Of all ranks."""
        self._ask("step")
        self.first_step_s = self.first_step_s or monotonic() - self._begun_s

    def loss(self) -> float:
        """Of the first rank's last step."""
        answers = self._ask("loss")
        return next(float(answer["loss"]) for answer in answers if answer["rank"] == 0)

    def surroundings(self) -> str:
        """What the ranks found around them; torch's threads and cores of each."""
        first = self._said[0]
        each = ", ".join(
            f"{answer['threads']} threads on {answer['cores']} cores" for answer in self._said
        )
        return f"{THREADS} {first['omp'] or 'not set'}; {each}"

    def versions(self) -> dict[str, str]:
        """Of what they train with."""
        return {"torch": self._said[0]["torch"]}

    def _ask(self, what: str) -> list[Json]:
        try:
            for line in self._lines:
                line.write(what + "\n")
                line.flush()
            return [self._answer(line) for line in self._lines]
        except OSError as error:
            raise RuntimeError("a rank has ended, or does not answer") from error

    @staticmethod
    def _answer(line: Any) -> Json:
        said = line.readline()
        if not said:
            raise RuntimeError("a rank has ended")
        answer: Json = json.loads(said)
        return answer


def joining(listening: socket.socket, launcher: subprocess.Popen[bytes]) -> list[socket.socket]:
    """The ranks' ends of the socket. Throws OSError where the launcher ends before they are there,
    or it takes too long."""
    listening.settimeout(0.1)
    joined: list[socket.socket] = []
    until_s = monotonic() + START_S
    while len(joined) < RANKS:
        try:
            joined.append(listening.accept()[0])
            joined[-1].settimeout(ANSWER_S)
        except TimeoutError:
            if launcher.poll() is not None:
                raise OSError(f"it ended with exit code {launcher.returncode}") from None
            if monotonic() > until_s:
                raise OSError(f"there are {len(joined)} of {RANKS} in {START_S} s") from None
    return joined


def last_line(text: str) -> str:
    """That says anything; a record holds no path."""
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]
    return gpulift_worker.FOLDERS.sub("", lines[-1]) if lines else ""


def free_port() -> str:
    """A port that nobody uses now, which launchers that name none leave to us."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


def by_torchrun() -> list[str]:
    """PyTorch's own, which is a module of it. Its stores would listen on all addresses: it gets a
    file for one, and leaves the other to the ranks."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [
        "env",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        f"TMPDIR={folder}",  # where it leaves its own
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--rdzv-backend=c10d",
        "--rdzv-conf=store_type=file",
        f"--rdzv-endpoint={folder}/store",
        "--local-addr=127.0.0.1",  # not this machine's name, which may not resolve
        f"--nproc-per-node={RANKS}",
        SELF[1],
        "rank",
    ]


def by_mpirun() -> list[str]:
    """Open MPI's, with its own binding."""
    program = installed("mpirun", "install the package openmpi-bin")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" not in version.stdout:
        raise Skip("this mpirun is not Open MPI's", "install the package openmpi-bin")
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [program, *as_root, "--oversubscribe", "-n", str(RANKS), *SELF, "rank"]


def by_srun() -> list[str]:
    """Slurm's, on this machine."""
    program = installed("srun", "install the packages slurmd and slurmctld, and start them")
    return [program, "--nodes=1", f"--ntasks={RANKS}", *SELF, "rank"]


def by_ray() -> list[str]:
    """Ray's tasks. Its processes listen on all addresses, whatever they are told."""
    if importlib.util.find_spec("ray") is None:
        raise Skip("the Python package ray is not installed", "install ray")
    return [*SELF, "ray"]


def installed(name: str, remedy: str) -> str:
    """Where the program is."""
    program = shutil.which(name)
    if program is None:
        raise Skip(f"{name} is not installed", remedy)
    return program


LAUNCHERS: Mapping[str, Callable[[], list[str]]] = {
    "torchrun": by_torchrun,
    "spawn": lambda: [*SELF, "spawn"],
    "mpirun": by_mpirun,
    "srun": by_srun,
    "ray": by_ray,
}


# What follows runs in the processes that a launcher starts.


def train(rank: int, address: str, port: str, model: str, seed: str) -> None:
    """A rank, until nobody asks any more."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", port)
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(address)
        import torch
        from gpulift_work.distributed import Replica, join

        threads = torch.get_num_threads()
        group = join("gloo", None)
        torch.set_num_threads(threads)  # as the launcher left them
        replica = Replica(model, group, int(seed), batch=ROWS)
        replica.wrap()
        lines = asking.makefile("rw", encoding="utf-8")
        say(
            lines,
            rank=rank,
            omp=os.environ.get(THREADS, ""),
            threads=threads,
            cores=len(os.sched_getaffinity(0)),
            torch=str(torch.__version__),
        )
        for line in lines:
            if line.strip() == "step":
                replica.step()
            say(lines, rank=rank, loss=None if replica.loss is None else float(replica.loss))


def say(lines: Any, **said: Any) -> None:
    """One answer."""
    lines.write(json.dumps(said) + "\n")
    lines.flush()


def spawn(address: str, port: str, model: str, seed: str) -> None:
    """Ranks by torch.multiprocessing, as scripts without a launcher do."""
    import torch.multiprocessing

    torch.multiprocessing.spawn(train, args=(address, port, model, seed), nprocs=RANKS)


def by_tasks(address: str, port: str, model: str, seed: str) -> None:
    """Ranks as tasks of Ray's."""
    ray: Any = importlib.import_module("ray")

    ray.init(num_cpus=RANKS, include_dashboard=False, log_to_driver=False)
    task = ray.remote(num_cpus=1)(train)
    ray.get([task.remote(rank, address, port, model, seed) for rank in range(RANKS)])


def own_rank() -> int:
    """This process's, by the variable of who started it."""
    return int(next(os.environ[name] for name in RANK_BY if name in os.environ))


if __name__ == "__main__":
    how, *job = sys.argv[1:]
    if how == "rank":
        train(own_rank(), *job)
    else:
        {"spawn": spawn, "ray": by_tasks}[how](*job)
