"""compile/warm_start: what a process that compiles finds of what another one compiled."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

import torch
from gpulift_work.compiled import compile_each_layer, compile_model
from gpulift_work.resting import Resting
from gpulift_work.torch_arms import compilation
from gpulift_work.training import (
    Training,
    arm_on,
    device_of,
    folder_of_run,
    keep_the_compiler_quiet,
    memory_of_step,
    require_compiler,
    require_gpu_for,
    set_up,
    use_cache_of_run,
    work_of_step,
)
from gpulift_work.watchers import interruptible
from gpulift_worker import FOLDERS, Arm, Failed, spent

TECHNIQUE = {
    "question": "How long does a new process take to its tenth step, and when has compiling paid: "
    "with no cache, a warm folder, a shipped mega-cache, or layers alone?",
    "expectation": """
        All this is the host's work, so an H100 and an H200 take as long. Each launch starts a
        process for each arm. Its time begins once torch is loaded, which takes 4 s more in all of
        them: CUDA and its first products take 1.5 s, weights 0.3, then come ten steps. Eager, an
        eighth of Llama 8B is there after 2.5 s, GPT-2 after 2. The compiler's own modules load for
        2.5 s. compile/regions had 10.2 s for a layer of llama_1b with the loss, and 33.4 for 16
        layers: 1.5 s for each more, whatever its width. So no_cache takes the slice's 4 layers 10.2
        + 4.6 + 5 = 20 s, layers 15; GPT-2's 12 smaller ones 8 + 11 x 1.2 + 4.5 = 26 s, layers 13. A
        warm folder leaves loading, tracing, 0.15 s a layer, and reading kernels: 6.5 s and 8. A
        mega-cache, 1 to 5 MB, is read in 0.2 s and brings graphs with Triton's kernels: as fast;
        but not what gcc builds, Triton's way to the driver, 1 s. On a processor that is every
        kernel: all graphs are hits, and no_cache's time passes. Steps are the same however their
        kernels came: of the slice 60.8 ms on an H100, compiled 1.12. So it has paid after 18 s /
        6.6 ms = 2700 steps with no cache, layers after 1900, from a warm folder after 600; GPT-2,
        of 27 ms, compiled 1.4, pays after 3100, 1400 and 800. The toy's steps on a processor are
        1.2 times as fast.
    """,
    "found": (
        "On an H200 the slice's tenth step comes after 2.3 to 2.6 s eager, 17 to 19 with no cache, "
        "12 by layers, 5.7 to 6.5 from a warm folder and 5.6 to 7.6 from a mega-cache; steps of 57 "
        "ms are 50 compiled, and it has paid after 2400 to 2700, 1100 to 2500, 450 to 760 and 510 "
        "to 1200. Another host compiles sooner: 12.9 to 13.6 s with no cache, 9.2 to 10.5 by "
        "layers, 4.6 to 6.7 from either cache. On 2 cores of an AMD EPYC the toy's tenth step "
        "comes after 2 to 7 s eager, 40 to 50 with no cache, 32 to 37 by layers, 9.5 to 10.6 from "
        "a warm folder, 26 to 38 from a mega-cache: 0.56, 0.67 and 0.95 of no_cache's time in "
        "three launches, since g++ builds all 23 kernels anew, but what the compiler makes of "
        "graphs comes from the cache. It has paid after 450 to 1900 steps from a warm folder, "
        "after 2900 to 8800 with no cache: steps of 16 ms, compiled 11, 1.5 times as fast where "
        "1.2 were expected."
    ),
    "predict": [
        "model:llama_8b_slice @h100: eager 58-64 ms, no_cache 1.07-1.18, warm_folder 1.07-1.18,"
        " mega_cache 1.07-1.18, layers 1.06-1.17",
        "model:llama_8b_slice @h200: eager 52-62 ms, no_cache 1.06-1.18, warm_folder 1.06-1.18,"
        " mega_cache 1.06-1.18, layers 1.05-1.17",
        "model:gpt2 @h100: eager 24-30 ms, no_cache 1.25-1.6, warm_folder 1.25-1.6,"
        " mega_cache 1.25-1.6, layers 1.15-1.55",
        "model:gpt2 @h200: eager 22-30 ms, no_cache 1.15-1.6, warm_folder 1.15-1.6,"
        " mega_cache 1.15-1.6, layers 1.0-1.5",
    ],
    "whole_steps": True,
    "arms": ["eager", "no_cache", "warm_folder", "mega_cache", "layers"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"model": ["llama_8b_slice", "gpt2", "llama_toy"]},
    "check": {
        "meaning": "mean loss of the first five steps, relative to eager's; what starts warm finds "
        "all graphs in the caches, what starts cold does not",
        "tolerance": 0.01,  # BF16 is 0.0016 of a Llama's first loss off TF32 in these, eager or not
    },
}
FP32_TOLERANCE = 1e-4
STEPS, CHECKED_STEPS = 10, 5  # in later ones a Llama learns its batch by heart, and wanders
TIMED_STEPS = 5
WARM = ("warm_folder", "mega_cache")
CACHE = "TORCHINDUCTOR_CACHE_DIR"
SHIPPED = "shipped"  # beside the cache that it is of
LIMIT_S = 600  # of another process
# Loaded as a worker loads it: keys of torch's caches have in them which module was first to import
# torch, since torch pickles memory formats, and pickle looks for one that has a `torch`.
AHEAD = """
import sys
from pathlib import Path
from gpulift_worker import load
_, script, *job = sys.argv
load(Path(script)).start_ahead(*job)
"""
SELF = [sys.executable, "-c", AHEAD, str(Path(__file__).resolve())]
IMPORTS = """
from time import monotonic
begun_s = monotonic()
import torch
torch_s = monotonic()
import torch._inductor.compile_fx
print(torch_s - begun_s, monotonic() - torch_s)
"""


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training, ten steps after it started as the arm says; metrics tell how it came so far."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    if arm != "eager":
        require_compiler(torch.device("cpu" if gpu is None else "cuda"))
    read_files(name, seed, gpu)
    shipped = None if arm == "eager" else open_cache(arm, name, seed, gpu)
    with contextlib.nullcontext() if arm == "eager" else spent("compile"):
        job = Started(arm, name, seed, gpu, shipped)
    if arm == "no_cache":
        leave()

    def metrics() -> dict[str, float]:
        job.wake()
        step_s = job.training.step_time_s(TIMED_STEPS)
        cost = cost_of(arm, name, job.took_s - STEPS * step_s, step_s)
        took = {f"time_to_step_{STEPS}_s": job.took_s}
        return {**took, **cost, **job.found, **memory_of_step(job.training)}

    return arm_on(
        job.device,
        job.threads,
        step=job.training.step,
        value=lambda: job.mean_loss,
        rest=job.rest,
        wake=job.wake,
        metrics=metrics,
        tolerance=None if job.training.bf16 else FP32_TOLERANCE,
        roof="gemm/bf16" if job.training.bf16 else "",
        **work_of_step(name),
    )


class Started(Resting):
    """A training whose tenth step has ended, of a process that had loaded torch and no more."""

    def __init__(
        self, arm: str, name: str, seed: int, gpu: int | None, shipped: Path | None = None
    ) -> None:
        """`shipped`: the file of a mega-cache. Failed where it compiled what it was to find, or
        found all that it was to compile."""
        built = 0 if arm == "eager" else len(libraries())
        begun_s = monotonic()
        device = device_of(gpu)
        self.threads = set_up(device)
        if arm != "eager":
            keep_the_compiler_quiet()
        if (
            shipped is not None
            and torch.compiler.load_cache_artifacts(shipped.read_bytes()) is None
        ):
            raise Failed("torch does not read the mega-cache that it saved")
        super().__init__(name, device, seed)
        REGIONS[arm](self.training)
        losses: list[torch.Tensor] = []
        for _ in range(STEPS):
            self.training.step()
            assert self.training.loss is not None
            losses.append(self.training.loss)
        self.training.synchronize()
        self.took_s = monotonic() - begun_s
        self.mean_loss = float(torch.stack(losses[:CHECKED_STEPS]).mean())
        self.found: dict[str, float] = {}
        if arm != "eager":
            self.found = {
                "libraries_built_count": float(len(libraries()) - built),
                **counted(),
                **carried(arm, shipped),
            }
            require_state(arm, self.found)


REGIONS: Mapping[str, Callable[[Training], None]] = {
    "eager": lambda training: None,
    "no_cache": compile_model,
    "warm_folder": compile_model,
    "mega_cache": compile_model,
    "layers": compile_each_layer,
}


# --- Other processes ---


def read_files(name: str, seed: int, gpu: int | None) -> None:
    """What eager starts load from the disk is in memory before the first that is timed: on an
    H200's host it took that one 6 s more."""
    folder = folder_of_run()
    if folder is None or (done := folder / f"warm_start-{name}.read").exists():
        return
    done.touch()
    with contextlib.suppress(RuntimeError):  # the arm says by itself what does not work
        output_of([sys.executable, "-c", IMPORTS])
        output_of([*SELF, "eager", name, str(seed), number_of(gpu)])


def start_ahead(arm: str, name: str, seed: str, gpu: str) -> None:
    """What such a process does."""
    Started(arm, name, int(seed), int(gpu) if gpu else None)
    if arm == "no_cache":
        leave()


def number_of(gpu: int | None) -> str:
    """For another process."""
    return "" if gpu is None else str(gpu)


# --- Caches ---


def open_cache(arm: str, name: str, seed: int, gpu: int | None) -> Path | None:
    """From now on the compiler's caches are the arm's. The file of a mega-cache where it loads one.

    What starts warm finds what no_cache left in this run, or another process that does the same."""
    left = f"warm_start-{name}"
    if arm not in WARM:
        use_cache_of_run(left if arm == "no_cache" else f"{left}-{arm}", cold=True)
        return None
    use_cache_of_run(left, cold=folder_of_run() is None)
    shipped = cache() / SHIPPED
    if not shipped.is_file():
        with spent("compile"):
            said = output_of([*SELF, "no_cache", name, str(seed), number_of(gpu)])
        if not shipped.is_file():
            raise RuntimeError(f"the process that compiles ahead left nothing: {said}")
    if arm == "warm_folder":
        return None
    use_cache_of_run(f"{left}-{arm}", cold=True)
    return shipped


def leave() -> None:
    """What this process compiled as one file, beside the folder's own."""
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        raise RuntimeError("torch kept nothing of what it compiled")
    part = cache() / f"{SHIPPED}.part"
    part.write_bytes(saved[0])
    part.replace(cache() / SHIPPED)


def cache() -> Path:
    """The compiler's folder."""
    return Path(os.environ[CACHE])


def libraries() -> list[Path]:
    """That a compiler of C or C++ built there: all kernels of a processor."""
    return list(cache().rglob("*.so"))


def carried(arm: str, shipped: Path | None) -> dict[str, float]:
    """What has to be brought along so that it starts warm."""
    if arm not in WARM:
        return {}
    files = [one for one in cache().rglob("*") if one.is_file() and one.name != SHIPPED]
    files = files if shipped is None else [shipped]
    return {"carried_bytes": float(sum(one.stat().st_size for one in files))}


def counted() -> dict[str, float]:
    """Of graphs that were looked up in the compiler's caches, by what it counts itself; one that it
    did not look up is missed. And files of Triton's kernels that came with graphs."""
    from torch._dynamo.utils import counters

    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    return {
        "graph_hits_count": float(inductor["fxgraph_cache_hit"]),
        "graph_misses_count": float(
            inductor["fxgraph_cache_miss"] + inductor["fxgraph_cache_bypass"]
        ),
        "autograd_hits_count": float(autograd["autograd_cache_hit"]),
        "autograd_misses_count": float(
            autograd["autograd_cache_miss"] + autograd["autograd_cache_bypass"]
        ),
        "triton_files_count": float(inductor["triton_bundler_read_and_emit_kernel"]),
    }


def require_state(arm: str, found: Mapping[str, float]) -> None:
    """Failed where a warm start was none, or a cold one."""
    hits = found["graph_hits_count"] + found["autograd_hits_count"]
    misses = found["graph_misses_count"] + found["autograd_misses_count"]
    looked = f"the compiler's caches had {hits:g} graphs that it asked for, and lacked {misses:g}"
    if arm not in WARM:
        if not misses:
            raise Failed(f"it did not start cold: {looked}")
    elif misses or not hits:
        raise Failed(f"it did not start warm: {looked}")
    elif arm == "warm_folder" and (built := found["libraries_built_count"]):
        raise Failed(f"it did not start warm: compilers built {built:g} libraries")


# --- Costs ---


def cost_of(arm: str, name: str, beside_s: float, step_s: float) -> dict[str, float]:
    """What compiling costs beside steps, over eager's start in this run, and in steps; of eager,
    which leaves its own for the others, what the modules take to load."""
    folder = folder_of_run()
    eager = None if folder is None else folder / f"warm_start-{name}-eager.json"
    if arm == "eager":
        if eager is not None:
            eager.write_text(json.dumps([beside_s, step_s]), encoding="ascii")
        loads_s = map(float, output_of([sys.executable, "-c", IMPORTS]).split())
        return dict(zip(("import_torch_s", "import_compiler_s"), loads_s, strict=True))
    if eager is None or not eager.is_file():
        return {}
    eager_beside_s, eager_step_s = json.loads(eager.read_bytes())
    cost = compilation(max(0.0, beside_s - eager_beside_s), eager_step_s, step_s)
    return {"compiling_s": cost.pop("cold_start_s"), **cost}


def output_of(command: list[str]) -> str:
    """The last line that a process says, which ends with this one. RuntimeError where it fails."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
        tempfile.TemporaryDirectory() as unused,  # torch makes its cache's folder as it loads
    ):
        try:
            ended = subprocess.run(
                command,
                env={
                    CACHE: unused,
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=LIMIT_S,
                check=False,
                preexec_fn=interruptible(os.getpid()),
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"another process did not end within {LIMIT_S} s") from None
        said.seek(0)
        last = next(filter(None, map(str.strip, reversed(said.readlines()))), "nothing")
    last = FOLDERS.sub("", last)
    if ended.returncode:
        raise RuntimeError(f"another process ended with exit code {ended.returncode}: {last}")
    return last
