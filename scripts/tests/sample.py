"""Makes records that obey the schema from simulated clocks with known truth, at fixed seeds."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]
BUILD: Json = {
    "compiler": "GNU 12.2.0",
    "cuda_compiler": "NVIDIA 13.0.88",
    "cuda_host_compiler": "GNU 12.2.0",
    "linker": "GNU 2.40",
    "type": "Release",
    "flags": "-O3 -DNDEBUG",
    "cuda_flags": "-O3 -DNDEBUG",
    "link_flags": "",
    "architectures": "90a",
    "commit": "abc1234",
    "dirty": False,
}
OPTIONS: Json = {"quick": False, "launches": 3, "arm_time_s": 0.3, "precision": 0.0025}
GPU_CONTEXT: Json = {
    "gpu": {
        "name": "NVIDIA H200",
        "card": "1a2b3c4d",
        "architecture": 90,
        "multiprocessors": 132,
        "memory_bytes": 150_000_000_000,
        "power_limit_w": 700.0,
        "ecc": True,
    },
    "driver": "580.159.04",
    "cuda_driver": "13.0",
    "cuda_runtime": "13.0",
    "versions": {"cublaslt": "13.1.0"},
    "host": {
        "cpu": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
        "cores": 16,
        "os": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0",
        "virtual": True,
    },
    "build": BUILD,
    "environment": {"CUDA_MODULE_LOADING": "LAZY"},
    "options": OPTIONS,
}
CPU_CONTEXT: Json = {
    "gpu_missing": "no NVIDIA driver on this machine",
    "gpu_remedy": "install the NVIDIA driver, version 580 or later",
    "host": {"cpu": "AMD EPYC 7B13", "cores": 2, "os": "Debian GNU/Linux 12", "virtual": True},
    "build": BUILD,
    "options": OPTIONS,
}
MAYBE = ("metrics", "ranks", "environment", "checked", "precondition")  # as records have them
WHOLE_ARM: Json = {"seconds": 1e-3, "noise": 0.002, "launch_noise": 0.001}


def gpu_context(**changes: Any) -> Json:
    """The context of a GPU with other facts; what is said of a part, as of `build`, joins it."""
    made = copy.deepcopy(GPU_CONTEXT)
    for key, value in changes.items():
        made[key] = made.get(key, {}) | value if isinstance(value, dict) else value
    return made


def palindromes(arms: int, blocks: int) -> list[list[int]]:
    """A B B A and B A A B in turn; for more arms, rotated rows followed by their reverse."""
    rows = [[(start + i) % arms for i in range(arms)] for start in range(arms)]
    return [rows[b % arms] + rows[b % arms][::-1] for b in range(blocks)]


def arm(name: str, seconds: float, **other: Any) -> Json:
    """What `record` needs to know of an arm: true step time, noise, cost."""
    return {**WHOLE_ARM, "name": name, "seconds": seconds, **other}


def skipped_arm(name: str, reason: str, remedy: str = "") -> Json:
    """An arm that could not run."""
    return {"name": name, "outcome": "skipped", "reason": reason, "remedy": remedy}


def record(
    technique: str,
    case: Json,
    arms: Sequence[Json],
    launch: int = 0,
    context: Json = GPU_CONTEXT,
    blocks: int = 8,
    drift: Callable[[int], float] = lambda _: 0.0,
    seed: int = 1,
    **top: Any,
) -> Json:
    """One ok record. `drift(i)` is the log drift of the clock at the i-th window of the case."""
    salt = [seed, launch, *technique.encode(), *json.dumps(case).encode()]
    random = np.random.default_rng(salt)
    measured = [index for index, one in enumerate(arms) if "seconds" in one]
    turns = [[measured[i] for i in row] for row in palindromes(len(measured), blocks)]
    windows = _windows(arms, turns, drift, random)
    case_id = "/".join(f"{axis}:{value}" for axis, value in case.items())
    made: Json = {
        **_header(technique, case, case_id, launch, context),
        "outcome": "ok",
        "check": {"meaning": "exact bytes", "tolerance": 0.0},
        "arms": [_arm(a, i, windows.get(i, []), "gpu" in context) for i, a in enumerate(arms)],
        "order": {
            "seed": seed,
            "blocks": turns,
            "allocation": measured[:: 1 if launch % 2 else -1],
        },
        "stop": {"reason": "precise", "blocks": blocks, "asked_half_width": 0.0025}
        | ({"rest_s": 0.05} if any(map(_multiplies, arms)) else {}),
        "discarded_blocks": 0,
        "restarts": 0,
        "host_load": {"own_cores": 1.25, "other_cores": 0.1, "stolen_cores": 0.0},
        "notes": {},
        "time_s": {"total": 1.0, "windows": 0.8, "lead_in": 0.1, "checks": 0.1},
        "context": copy.deepcopy(context),
    }
    made.update(_telemetry("gpu" in context))
    made.update(top)
    return made


def _multiplies(one: Json) -> bool:
    """Whether it has a product's cost, before whose windows the engine rests."""
    return str(one.get("cost", {}).get("roof", "")).startswith("gemm/")


def unmeasured(
    technique: str,
    case: Json,
    outcome: str,
    reason: str,
    context: Json = GPU_CONTEXT,
    launch: int = 0,
    **top: Any,
) -> Json:
    """A skipped, failed or error record, without arms."""
    case_id = "/".join(f"{axis}:{value}" for axis, value in case.items())
    return {
        **_header(technique, case, case_id, launch, context),
        "outcome": outcome,
        "reason": reason,
        "context": copy.deepcopy(context),
        **top,
    }


def launches(
    count: int, technique: str, case: Json, arms: Sequence[Json], **kwargs: Any
) -> list[Json]:
    """The same case in several launches."""
    return [record(technique, case, arms, launch, **kwargs) for launch in range(count)]


def write(folder: Path, records: Iterable[Json]) -> Path:
    """Writes records to the files of a run folder as gpulift-bench does."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in records:
        file = folder / f"{one['technique'].replace('/', '.')}.jsonl"
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(one) + "\n")
    return folder


def mark_crowded(folder: Path, together: object = 2) -> None:
    """Makes a run one in which so many GPUs were busy at once."""
    state = {"options": {"together": together}, "state": "complete"}
    (folder / "run.json").write_text(json.dumps(state), encoding="utf-8")


def _header(technique: str, case: Json, case_id: str, launch: int, context: Json) -> Json:
    return {
        "schema": "1.10",
        "method": "1",
        "kind": "technique",
        "technique": technique,
        "case": case,
        "case_id": case_id,
        "quick": False,
        "ceiling": technique.startswith("ceiling/"),
        **({"integrity": True} if technique.startswith("integrity/") else {}),
        "regime": case.get("regime", "burst"),
        "launch": launch,
        "launches": context["options"]["launches"],
        "started_at": f"2026-11-21T04:00:{launch:02d}Z",
        "question": f"What is {technique} worth?",
        "expectation": "From the bytes moved and the link's peak: about 2.",
        "claims": [],
    }


def _windows(
    arms: Sequence[Json],
    turns: Sequence[Sequence[int]],
    drift: Callable[[int], float],
    random: np.random.Generator,
) -> dict[int, list[float]]:
    offsets = {i: random.normal(0, a["launch_noise"]) for i, a in enumerate(arms) if "seconds" in a}
    windows: dict[int, list[float]] = {}
    for position, index in enumerate(i for block in turns for i in block):
        one = arms[index]
        log = offsets[index] + random.normal(0, one["noise"]) + drift(position)
        # Processors differ in the last digits of exp, and ids of records are hashes of these.
        windows.setdefault(index, []).append(float(f"{one['seconds'] * np.exp(log):.12g}"))
    return windows


def _arm(one: Json, index: int, step_s: Sequence[float], on_gpu: bool) -> Json:
    role = one.get("role", "technique" if index else "baseline")
    if "seconds" not in one:
        kept = {key: one[key] for key in ("name", "outcome", "reason", "remedy") if one[key]}
        return {**kept, "role": role}
    steps = 10
    totals = [steps * value for value in step_s]
    windows: Json = {"host_s": [1.01 * v for v in totals], "enqueue_s": [1e-5 for _ in totals]}
    if on_gpu:
        windows |= {"device_s": totals, "sm_clock_hz": [1.98e9 for _ in totals]}
    for used, rate in (("energy_j", "power_w"), ("cpu_s", "cpu_cores")):
        if rate in one:
            windows[used] = [one[rate] * v for v in windows["host_s"]]
    return {
        "name": one["name"],
        "role": role,
        "outcome": "ok",
        "clock": one.get("clock", "device" if on_gpu else "host"),
        "cost": {"bytes": 0.0, "flops": 0.0, "items": 1.0, **one.get("cost", {})},
        "check_error": 0.0,
        "check_tolerance": 0.0,
        "steps_per_window": steps,
        "lead_in_steps": 2,
        "held": one.get("held", on_gpu),
        "peak_device_bytes": one.get("memory", 1 << 20) if on_gpu else 0,
        "peak_pinned_bytes": 0,
        "peak_host_bytes": one.get("memory", 1 << 20),
        "windows": windows,
        **{key: one[key] for key in MAYBE if key in one},
    }


def _telemetry(on_gpu: bool) -> Json:
    if not on_gpu:
        return {"telemetry_missing": "no GPU"}
    return {
        "telemetry": {
            "samples": 40,
            "interval_s": 0.02,
            "sm_clock_hz": {"min": 1.9e9, "median": 1.98e9, "max": 1.98e9},
            "power_w": {"min": 300.0, "median": 650.0, "max": 699.0},
            "temperature_slope_c_per_s": 0.5,
            "throttle": ["sw_power_cap"],
        }
    }


def visited(case: Json, true_s: Sequence[float], drift: float, blocks: int = 4) -> Json:
    """A record of arms that were visited twice, in whose order each window is slower than the one
    before by this fraction."""
    named = [arm(f"arm_{index}", one, clock="host") for index, one in enumerate(true_s)]
    order = [*range(len(true_s)), *reversed(range(len(true_s)))]
    made = record("own/step", case, named, blocks=blocks)
    made["order"] |= {"blocks": [order] * blocks, "visits": order}
    for index, (one, seconds) in enumerate(zip(made["arms"], true_s, strict=True)):
        first, second = (place for place, visit in enumerate(order) if visit == index)
        turns = [
            turn
            for block in range(blocks)
            for turn in (first * blocks + block, (second + 1) * blocks - 1 - block)
        ]
        steps = one["steps_per_window"]
        one["windows"] = {
            "start_s": [float(turn) for turn in turns],
            "host_s": [steps * seconds * (1 + drift) ** turn for turn in turns],
            "enqueue_s": [1e-6] * len(turns),
        }
    return made
