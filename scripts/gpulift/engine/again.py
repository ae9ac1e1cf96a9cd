"""The command that measures a record's case again, as exactly as the record knows it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpulift.engine.machine import axis_flags
from gpulift.records.model import Record
from gpulift.records.together import options_of

# Not re.escape: gpulift-bench reads extended POSIX, in which only these may have a backslash.
SPECIAL = re.compile(r"([.\[\\()*+?{|^$])")
OPTIONS = (
    ("launches", "--launches"),
    ("arm_time_s", "--arm-time"),
    ("precision", "--precision"),
    ("seed", "--seed"),
)
OF_BENCH = ("--launches", "--arm-time")


def filter_of(record: Record) -> str:
    """The regular expression that selects the record's arms of this case, and no other."""
    case = "/".join(part for part in (record.technique, record.case_id) if part)
    names = [record.duet_arm] if record.duet_arm else [arm.name for arm in record.arms]
    return f"^{pattern_of(case, names)}$"


def pattern_of(case: str, arms: Sequence[str]) -> str:
    """What matches the names of these arms of technique/case; without arms the case's own name."""
    names = [_escaped(name) for name in arms]
    which = f"({'|'.join(names)})" if len(names) > 1 else "".join(names)
    return f"{_escaped(case)}/{which}" if which else _escaped(case)


def axes_of(record: Record) -> tuple[str, ...]:
    """What makes a case of the record's that its technique does not have."""
    return tuple(f"{axis}={value}" for axis, value in record.case.items() if record.off_sweep)


def command_again(record: Record) -> str:
    """One line for a shell in the checkout; HEAD and BASE stand for a duet's folders of modules,
    DIR for a folder that no record names."""
    options = record.context.options
    duet = record.kind == "duet"
    of_run = options_of(record.file.parent)
    script = _script(record, of_run)
    flags = ["--quick"] if options.get("quick") is True else []
    for key, flag in OPTIONS:
        if key in options and (flag in OF_BENCH or not script):
            flags += [flag, str(options[key])]
    flags += axis_flags(axes_of(record))
    flags += _gpu_flags(of_run)
    flags += ["--scratch", "DIR"] if record.context.scratch else []
    if script:
        return shlex.join(["./gpulift", "bench", script, *flags])
    if duet or "plant" in options:
        bench = ["build/gpulift-bench", f"--benchmark_filter={filter_of(record)}"]
        bench += ["--head", "HEAD", "--base", "BASE"] if duet else []
        bench += ["--plant", str(options["plant"])] if "plant" in options else []
        return shlex.join([*bench, *flags, "--records", "FOLDER"])
    flags += ["--techniques", "DIR"] if of_run.get("more_modules") else []
    return shlex.join(["./gpulift", "run", filter_of(record), *flags])


def repeated_by(record: Record) -> str:
    """The same without its options."""
    script = _script(record, options_of(record.file.parent))
    return shlex.join(["./gpulift", *(["bench", script] if script else ["run", filter_of(record)])])


def _script(record: Record, of_run: Mapping[str, Any]) -> str:
    """Of a file that `bench` measured its name, in place of which SCRIPT stands where the record
    has none; else empty."""
    if not of_run.get("modules"):
        return ""
    own = (name for name in record.source if name.endswith(".py") and "/" not in name)
    return next(own, "SCRIPT")


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text)


def _gpu_flags(options: Mapping[str, Any]) -> list[str]:
    """Which GPUs of its machine the run was told to take."""
    one, several = options.get("gpu"), options.get("gpus")
    if isinstance(several, list) and several and all(type(index) is int for index in several):
        return ["--gpus", ",".join(map(str, several))]
    return ["--gpu", str(one)] if type(one) is int else []
