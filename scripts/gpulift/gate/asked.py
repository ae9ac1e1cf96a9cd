"""What a user asks of a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpulift.gate.evidence import Origin
from gpulift.gate.metrics import Metric
from gpulift.gate.same import Outputs
from gpulift.ground.arguments import require_above_0
from gpulift.ground.errors import GpuliftError, write_error
from gpulift.verdicts.decision import ARM_TIME_S

THRESHOLD = 0.01  # processes vary more than the windows of one
TIMEOUT_S = 3600.0
COMMAND = "command"
PYTHONS = ("--base-python", "--head-python")
TOOLS = (COMMAND, "gbench", "nvbench", "pytest")


@dataclass(frozen=True)
class Asked:
    """Two commits, or two Pythons (`pythons`), of gpulift's own techniques, or where there is a
    `command` or a `script` of that; `with_tool` says how its numbers are read. `thresholds` has
    least changes by pattern; `started_s` is when, by the clock of budgets."""

    started_s: float
    base: str | None = None
    head: str | None = None
    pythons: tuple[str, str] | None = None
    budget_s: float | None = None
    seed: int = 1
    gpu: int | None = None
    out: Path | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)
    certified: bool = False
    # Of techniques.
    filter: str | None = None
    all_cases: bool = False
    arm_time_s: float = ARM_TIME_S
    # Of a command.
    command: tuple[str, ...] = ()
    script: str = ""
    with_tool: str = COMMAND
    metrics: tuple[Metric, ...] = ()
    setup: str = ""
    plant: str = ""
    threshold: float = THRESHOLD
    timeout_s: float = TIMEOUT_S
    same: Outputs = field(default_factory=lambda: Outputs(()))

    def __post_init__(self) -> None:
        require_above_0("--timeout", self.timeout_s)
        require_above_0("--arm-time", self.arm_time_s)
        if not 0 < self.threshold < 1:
            raise GpuliftError(f"--threshold {self.threshold:g}: a fraction, as 0.02 for 2 %")
        if self.with_tool not in TOOLS:
            raise GpuliftError(f"--with knows {', '.join(TOOLS)}, not {self.with_tool!r}")
        if self.out is not None:
            require_new(self.out)

    @property
    def of_command(self) -> bool:
        """Whether it is not of gpulift's own techniques."""
        return bool(self.command or self.script)

    @property
    def until_s(self) -> float | None:
        """When the budget ends, by the same clock."""
        return None if self.budget_s is None else self.started_s + self.budget_s


def require_new(out: Path) -> None:
    """Refuses a folder that holds anything."""
    try:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise GpuliftError(f"--out {out}: is there already; name a new folder")
    except OSError as error:
        raise write_error(out, error) from None


def pythons_of(
    base: str | None, head: str | None, base_python: str | None, head_python: str | None
) -> tuple[str, str] | None:
    """The Pythons of base and head where they were asked for; refuses what does not fit."""
    if base_python is None and head_python is None:
        return None
    if base_python is None or head_python is None:
        raise GpuliftError("name both environments: --base-python ENV and --head-python ENV")
    if base is not None or head is not None:
        raise GpuliftError("two Python environments are compared on one build: no --base or --head")
    return base_python, head_python
