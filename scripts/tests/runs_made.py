"""Whole runs for tests: a full GPU run, a machine without a GPU, one with troubles, a duet."""

from __future__ import annotations

from typing import Any

from tests.sample import (
    CPU_CONTEXT,
    GPU_CONTEXT,
    Json,
    arm,
    gpu_context,
    launches,
    record,
    skipped_arm,
    unmeasured,
)

MIB = 1 << 20


def full_gpu() -> list[Json]:
    """Ceilings and techniques on a GPU, three launches."""
    return [*_gpu_ceilings(), *_matmul(), *_pinned_copy(), *_graph()]


def open_roof(count: int) -> list[Json]:
    """A host link that varies around a rate well above the limit, by too much for three launches;
    the memory beside it is steady."""
    size = 1024.0 * MIB
    facts = {"pcie_max_generation": 5, "pcie_max_width": 16}
    context = {**GPU_CONTEXT, "gpu": {**GPU_CONTEXT["gpu"], **facts}}
    made = []
    for launch in range(count):
        seconds = size / 52.5e9 * (1.05 if launch % 2 else 0.95)
        link = [arm("h2d", seconds, cost={"bytes": size, "roof": "host_link/h2d"})]
        memory = [arm("read", size / 4.3e12, cost={"bytes": size, "roof": "device_memory"})]
        for technique, arms in (("ceiling/host_link", link), ("ceiling/device_memory", memory)):
            made.append(record(technique, {"bytes": int(size)}, arms, launch, context))
    return made


def without_gpu() -> list[Json]:
    """What needs no GPU is measured; the rest is skipped."""
    memory = {"bytes": 256.0 * MIB, "roof": "host_memory"}
    copies = [arm("read", 0.018, cost=memory), arm("copy", 0.02, cost=memory)]
    allocators = [
        arm("glibc", 2e-4, memory=80 * MIB),
        arm("jemalloc", 1.4e-4, memory=90 * MIB),
        skipped_arm(
            "mimalloc", "libmimalloc.so.2 is not installed", "apt-get install libmimalloc2.0"
        ),
    ]
    case = {"threads": 2, "sizes": "collate"}
    reason = "no NVIDIA driver on this machine"
    remedy: dict[str, Any] = {"remedy": "install the NVIDIA driver, version 580 or later"}
    cpu: dict[str, Any] = {"context": CPU_CONTEXT}
    return [
        *launches(3, "ceiling/host_memory", {"bytes": 256 * MIB}, copies, **cpu),
        *launches(3, "allocator/host_malloc", case, allocators, **cpu),
        unmeasured("transfer/pinned_copy", {"bytes": 4096}, "skipped", reason, **cpu, **remedy),
        unmeasured("precision/matmul", {"n": 512}, "skipped", reason, **cpu, **remedy),
    ]


def with_troubles() -> list[Json]:
    """Failed, error and skipped cases, an arm without FP8, and one launch only."""
    dirty = gpu_context(build={"dirty": True, "type": "Debug"}, options={"launches": 1})
    ctx: dict[str, Any] = {"context": dirty}
    fp8 = skipped_arm("fp8", "compute capability 8.0 has no FP8", "a GPU with 8.9 or later")
    return [
        record("precision/matmul", {"n": 512}, [arm("fp32", 1e-3), arm("bf16", 3e-4), fp8], **ctx),
        unmeasured("precision/matmul", {"n": 1024}, "failed", "arm bf16: error 0.3 > 0.01", **ctx),
        unmeasured("transfer/pinned_copy", {"bytes": 4096}, "error", "signal SIGSEGV", **ctx),
        unmeasured("transfer/pinned_copy", {"bytes": 1 << 40}, "skipped", "out of memory", **ctx),
    ]


def duet(true_ratio: float = 1.005, count: int = 5) -> list[Json]:
    """Two builds of a technique, arm by arm; the head takes `true_ratio` times as long."""
    made: list[Json] = []
    for name in ("copy", "triad"):
        arms = [
            arm(f"base:{name}", 1e-3, role="baseline", launch_noise=2e-4),
            arm(f"head:{name}", 1e-3 * true_ratio, role="technique", launch_noise=2e-4),
        ]
        more: dict[str, Any] = {"kind": "duet", "arm": name, "seed": len(made) + 1}
        made += launches(count, "ceiling/device_memory", {"bytes": 256 * MIB}, arms, **more)
    return made


def of_ranks_and_disks() -> list[Json]:
    """What schema 1.7 added: arms of several processes and GPUs, files on a disk, CPU seconds."""
    second = {**GPU_CONTEXT["gpu"], "card": "5e6f7a8b"}
    several: dict[str, Any] = {
        "context": {**GPU_CONTEXT, "gpus": [GPU_CONTEXT["gpu"], second]},
        "source": {"all_reduce.cpp": 64 * "a"},
        "telemetry_others": [
            {
                "samples": 40,
                "power_w": {"min": 90.0, "median": 100.0, "max": 110.0},
                "throttle": ["sw_thermal_slowdown"],
            }
        ],
    }
    ring = {"ranks": 2, "environment": {"NCCL_ALGO": "Ring"}}
    reduced = [arm("ring", 1e-3, **ring), arm("tree", 9e-4, **ring, checked=False)]
    scratch = {"filesystem": "ext4", "rotational": False, "in_memory": False}
    on_disk: dict[str, Any] = {
        "context": {**CPU_CONTEXT, "versions": {"pillow": "12.0.0"}, "scratch": scratch},
        "source": {"jpeg_decode.py": 64 * "b"},
        "stop": {"reason": "planned", "blocks": 4, "planned_blocks": 4},
    }
    cold = {"name": "resident_share", "most": 0.01, "worst": 0.002}
    read = [
        arm("pillow", 0.1, cpu_cores=1.0, precondition=cold),
        arm("turbo", 0.05, cpu_cores=1.0, precondition=cold),
    ]
    return [
        *launches(3, "distributed/all_reduce", {"bytes": MIB}, reduced, **several),
        *launches(3, "input/jpeg_decode", {"images": 32}, read, blocks=4, **on_disk),
    ]


def _gpu_ceilings() -> list[Json]:
    size = 1024.0 * MIB
    link = [
        arm("h2d", size / 55.4e9, cost={"bytes": size, "roof": "host_link/h2d"}),
        arm("d2h", size / 55.1e9, cost={"bytes": size, "roof": "host_link/d2h"}),
    ]
    memory = [
        arm("read", size / 4.3e12, cost={"bytes": size, "roof": "device_memory"}),
        arm("copy", size / 4.15e12, cost={"bytes": size, "roof": "device_memory"}),
    ]
    made = [
        *launches(3, "ceiling/host_link", {"bytes": int(size)}, link),
        *launches(3, "ceiling/device_memory", {"bytes": int(size)}, memory),
        *launches(
            3, "ceiling/launch", {"kernels": 100}, [arm("stream", 2e-4, cost={"items": 100.0})]
        ),
    ]
    flops = 2.0 * 8192**3
    for regime, scale in (("burst", 1.0), ("sustained", 0.87)):
        for dtype, peak in (("fp32", 51e12), ("tf32", 430e12), ("bf16", 848e12), ("fp8", 1490e12)):
            power = {"power_w": 690.0} if regime == "sustained" else {}
            cost = {"flops": flops, "roof": f"gemm/{dtype}"}
            one = arm("best", flops / peak / scale, cost=cost, **power)
            made += launches(3, "ceiling/gemm", {"dtype": dtype, "regime": regime}, [one])
    return made


def _matmul() -> list[Json]:
    made = []
    for n, gains in ((512, (1.3, 1.2, 0.98)), (2048, (4.2, 8.0, 9.1)), (8192, (8.3, 15.9, 27.0))):
        flops = 2.0 * n**3
        slow = flops / 50e12 + 4e-6
        arms = [arm("fp32", slow, cost={"flops": flops, "roof": "gemm/fp32"})]
        for dtype, gain in zip(("tf32", "bf16", "fp8"), gains, strict=True):
            cost = {"flops": flops, "roof": f"gemm/{dtype}"}
            arms.append(arm(dtype, slow / gain, cost=cost, memory=3 * n * n * 2))
        made += launches(3, "precision/matmul", {"n": n}, arms)
    return made


def _pinned_copy() -> list[Json]:
    made = []
    for direction in ("h2d", "d2h"):
        for size in (4096, 65536, MIB, 64 * MIB, 1024 * MIB):
            cost = {"bytes": float(size), "roof": f"host_link/{direction}"}
            pinned = size / 55e9 + 4e-6
            arms = [
                arm("pageable", size / 11e9 + 9e-6, cost=cost, clock="host"),
                arm("pinned", pinned, cost=cost),
                arm("registered_once", pinned * 1.001, cost=cost),
                arm("pinned_afresh", size / 2.4e9 + 90e-6, cost=cost, clock="host", noise=0.02),
            ]
            case = {"direction": direction, "bytes": size}
            made += launches(3, "transfer/pinned_copy", case, arms)
    return made


def _graph() -> list[Json]:
    made = []
    for kernels, kernel_us, gain in ((10, 2, 1.4), (1000, 2, 1.9), (100, 50, 1.004)):
        arms = [arm("stream", 1e-3), arm("graph", 1e-3 / gain)]
        case = {"kernels": kernels, "kernel_us": kernel_us}
        made += launches(3, "launch/cuda_graph", case, arms)
    return made
