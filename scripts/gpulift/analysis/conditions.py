"""Where and with what a record was measured, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpulift.ground import text
from gpulift.records.model import Build, Context, Record


def machine(context: Context) -> str:
    """The GPU model, or the processor where there is no GPU."""
    return context.gpu.name if context.gpu else context.host.name


def card(context: Context) -> str:
    """The card with what was set on it."""
    gpu = context.gpu
    if gpu is None:
        return f"no GPU: {context.gpu_missing}" if context.gpu_missing else "no GPU"
    parts = [gpu.name, f"card {gpu.card}" if gpu.card else ""]
    parts.append(text.size(gpu.memory_bytes) if gpu.memory_bytes else "")
    parts.append(f"power limit {gpu.power_limit_w:.0f} W" if gpu.power_limit_w else "")
    parts += [f"{name} {_on(gpu.facts[name])}" for name in ("ecc", "mig") if name in gpu.facts]
    return _joined(parts)


def software(context: Context) -> str:
    """Driver and CUDA; empty where neither is known."""
    known = {
        "driver": context.driver,
        "CUDA driver": context.cuda_driver,
        "CUDA runtime": context.cuda_runtime,
    }
    return pairs({name: version for name, version in known.items() if version})


def commit(build: Build) -> str:
    """The commit, and whatever of the build makes its figures doubtful."""
    name = build.commit or "unknown"
    parts = [name, "with uncommitted changes" if build.dirty else ""]
    parts.append(f"{build.type} build" if build.type not in ("", "Release") else "")
    parts.append(f"sanitizers {build.sanitizers}" if build.sanitizers else "")
    parts.append(f"foreign flags ({build.foreign_flags})" if build.foreign_flags else "")
    return _joined(parts)


def compilers(build: Build) -> str:
    """How it was built."""
    parts = [build.type, build.compiler]
    parts.append(f"CUDA {build.cuda_compiler}" if build.cuda_compiler else "")
    parts.append(f"architectures {build.architectures}" if build.architectures else "")
    parts.append(f"linker {build.linker}" if build.linker else "")
    return _joined(parts)


def host(context: Context) -> str:
    """The machine around the card."""
    facts = context.host.facts
    known = (key for key in ("vector_instructions", "os", "kernel") if key in facts)
    parts = [context.host.name, *(str(facts[key]) for key in known)]
    virtual = "virtual" if facts.get("virtual") is True else ""
    return _joined([*parts, virtual, context.host.known_as])


def disk(context: Context) -> str:
    """The disk of the folder for files; empty where no arm asked for one."""
    scratch = context.scratch
    if scratch is None:
        return ""
    kind = {True: "rotational", False: "not rotational", None: ""}[scratch.rotational]
    name = scratch.filesystem or "unknown file system"
    return _joined([name, kind, "in memory" if scratch.in_memory else ""])


def launch(record: Record) -> str:
    """`launch 1 of 3`, counted from one."""
    return f"launch {record.launch + 1} of {record.launches}"


def planted(record: Record) -> str:
    """What was slowed down on purpose; empty in all records but those of tests."""
    plant = record.context.options.get("plant")
    return f"slowed down on purpose by {plant}" if plant else ""


def pairs(facts: Mapping[str, Any]) -> str:
    """`driver 580.1, CUDA driver 13.0`."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _on(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _joined(parts: list[str]) -> str:
    return ", ".join(part for part in parts if part)
