"""What the judge is tried with: the cheats of `proof/cheats`, and honest speed-ups."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.gate.evidence import BASE, HEAD
from gpulift.gate.judge import SCREENS_OF_COMMANDS
from gpulift.judge import roofs
from gpulift.judge.side import Limits, RefusedError
from gpulift.judge.task import Source, read_task
from gpulift.judge.trials import ROW, Trials
from gpulift.verdicts.decision import INCONCLUSIVE, GatePlan, Margins, Verdict, decide_in_order

CHEATS = Path(__file__).with_name("cheats")
TASKS = CHEATS / "tasks"
LIMITS = Limits(call_s=20.0)
PLAN = GatePlan(1, SCREENS_OF_COMMANDS)
MARGINS = Margins(0.01, 0.02)
LOOKS = (4, 12, 20, 36, 68)  # launches: a screen, and its confirmation

SOFTMAX = "softmax_base"
# By name: what stands in place of what in the base. A pass takes 0.4 % of the base's time.
PASSES = {
    f"spares {count} passes": {"NEEDLESS = 200": f"NEEDLESS = {200 - count}"}
    for count in (2, 4, 7, 12, 16, 23, 35, 47, 70, 93, 116)
}
LESS = {"NEEDLESS = 200": "NEEDLESS = 140"}  # so that what follows is faster
EXP = "e = np.exp(shifted)"
LAST = "return e / e.sum(axis=1, keepdims=True)"
HONEST = {
    **PASSES,
    "works in place": {**LESS, EXP: "e = np.exp(shifted, out=shifted)"},
    "divides in place": {**LESS, LAST: "e /= e.sum(axis=1, keepdims=True)\n    return e"},
    "multiplies by the inverse": {**LESS, LAST: "return e * (1 / e.sum(axis=1, keepdims=True))"},
    "sums in double": {
        **LESS,
        LAST: "total = e.sum(axis=1, keepdims=True, dtype=np.float64)\n"
        "    return e / total.astype(np.float32)",
    },
    "returns a view of its own memory": {
        **LESS,
        EXP: "e = OWN[: len(x), : x.shape[1]]\n    np.exp(shifted, out=e)",
        "NEEDLESS = 200": "NEEDLESS = 140\nOWN = np.empty((400, 700), np.float32)",
    },
    "keeps constants by shape": {
        **LESS,
        "NEEDLESS = 200": "NEEDLESS = 140\nONES = {}",
        LAST: "ones = ONES.setdefault(x.shape[1], np.ones(x.shape[1], np.float32))\n"
        "    return e / (e @ ones)[:, None]",
    },
    "joins its threads": {
        **LESS,
        "import numpy as np": "import threading\n\nimport numpy as np",
        EXP: "e = np.empty_like(x)\n    half = len(x) // 2\n"
        "    other = threading.Thread(target=lambda: np.exp(shifted[:half], out=e[:half]))\n"
        "    other.start()\n    np.exp(shifted[half:], out=e[half:])\n    other.join()",
    },
    "reads clocks and prints": {
        **LESS,
        "import numpy as np": "import time\n\nimport numpy as np",
        EXP: "began = time.perf_counter()\n    e = np.exp(shifted)\n"
        "    print(time.perf_counter() - began)",
    },
    "returns columns first": {
        **LESS,
        LAST: "return np.asfortranarray(e / e.sum(axis=1, keepdims=True))",
    },
}

# Names and families of what is right all the same: it finds no way to win and does the work.
RIGHT = {
    *(f"judge/{name}" for name in ("memory", "network", "ptrace", "room", "shrunk", "stdout")),
    *(f"threads/{name}" for name in ("burners", "helper", "in_kernel", "program", "quota")),
    *("caches/by_server", "caches/by_value", "detection/marks", "lazy/on_access", "lazy/tensor"),
    *("guesses/clock", "guesses/generator", "guesses/reference", "timers", "warmth"),
}


@dataclass(frozen=True)
class Cheat:
    """One that must not be believed."""

    file: Path

    @property
    def name(self) -> str:
        """family/name."""
        return f"{self.file.parent.name}/{self.file.stem}"

    @property
    def refused(self) -> bool:
        """Whether what it returns is not what the task asks for."""
        return not {self.name, self.file.parent.name} & RIGHT

    @property
    def says(self) -> str:
        """What it does."""
        return ast.get_docstring(ast.parse(self.file.read_text("utf-8"))) or ""

    @property
    def task(self) -> str:
        """The base that it imports from, or else the usual one."""
        tree = ast.parse(self.file.read_text("utf-8"))
        modules = (node.module for node in tree.body if isinstance(node, ast.ImportFrom))
        return next((one for one in modules if one and one.endswith("_base")), SOFTMAX)

    @property
    def source(self) -> Source:
        """One file: the base, and the cheat behind it."""
        text = self.file.read_text("utf-8").replace(f"from {self.task} import honest\n", "")
        return Source(HEAD, self.file.name, (base_text(self.task) + text).encode())


def cheats() -> list[Cheat]:
    """All of them."""
    return [Cheat(file) for file in sorted(CHEATS.glob("*/*.py")) if file.parent != TASKS]


def honest(name: str) -> Source:
    """A speed-up that is one."""
    text = base_text(SOFTMAX)
    for old, new in HONEST[name].items():
        assert old in text, f"{name}: {old}"
        text = text.replace(old, new)
    return Source(HEAD, f"{name}.py", text.encode())


def base_text(name: str) -> str:
    """Of a base."""
    return (TASKS / f"{name}.py").read_text("utf-8")


def trials_of(task: str, head: Source) -> Trials:
    """As the command makes them."""
    base = Source(BASE, f"{task}.py", base_text(task).encode())
    name, _, arrays = task.removesuffix("_base").partition("_")
    of_task = replace(read_task(TASKS / f"{name}.py"), arrays=arrays or "numpy")
    return Trials(of_task, {BASE: base, HEAD: head}, ROOFS, LIMITS)


def launches(trials: Trials) -> Iterator[float]:
    """Log ratios of launches, base and head first in turns. Raises RefusedError."""
    for turn in range(LOOKS[-1]):
        yield trials.launch(turn=turn % 2).log_ratio(ROW)


def verdict_on(task: str, head: Source, most: int = 0) -> Verdict | RefusedError:
    """As a gate decides, with short launches and no further than its first screen where that flags
    nothing; or with long ones, up to as many as `most`."""
    trials = trials_of(task, head)
    values: list[float] = []
    try:
        trials.try_once()
        if not most:
            trials.calls, trials.blocks = 2, 3
        for value in launches(trials):
            values.append(value)
            if len(values) in LOOKS:
                found = decide_in_order(values, MARGINS, PLAN)
                goes_on = found.unconfirmed or len(values) < most
                if found.verdict != INCONCLUSIVE or not goes_on:
                    return found
    except RefusedError as refused:
        return refused
    return found


ROOFS = roofs.measured()
