"""What the judge is tried with: the cheats of `proof/cheats`, and honest speed-ups."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
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

SOFTMAX, WIDE, PRODUCT = "softmax_base", "wide_cuda_base", "product_cuda_base"
CARD = "card"  # the family of cheats that only a card makes possible
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

FEWER = {"NEEDLESS = 40": "NEEDLESS = 24"}
MADE = "made = torch.mm(x, y)"
GRAPHS = """
def captured(edge):
    own = [torch.zeros(edge, edge, device="cuda") for _ in range(2)]
    honest(*own)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = honest(*own)
    return graph, own, made


def run(x, y):
    graph, own, made = GRAPHS[len(x)]
    for one, given in zip(own, (x, y)):
        one.copy_(given)
    graph.replay()
    return made


GRAPHS = {edge: captured(edge) for edge in range(896, 1153, 32)}
"""
HALVES = """half = len(x) // 2
        SIDE.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(SIDE):
            lower = torch.mm(x[half:], y)
        upper = torch.mm(x[:half], y)
        torch.cuda.current_stream().wait_stream(SIDE)
        made = torch.cat((upper, lower))"""
SHORT = {"NEEDLESS = 300": "NEEDLESS = 180"}
QUOTIENT = "return e / e.sum(dim=1, keepdim=True)"
CARD_HONEST = {  # on a card: the base, and what stands in place of what
    "spares 8 products": (PRODUCT, {"NEEDLESS = 40": "NEEDLESS = 32"}),
    "keeps memory for its product": (
        PRODUCT,
        {
            "NEEDLESS = 40": 'NEEDLESS = 24\nOWN = torch.empty(1152**2, device="cuda")',
            MADE: "made = torch.mm(x, y, out=OWN[: x.numel()].view(x.shape))",
        },
    ),
    "replays a graph of its own": (PRODUCT, {**FEWER, "\nrun = honest\n": GRAPHS}),
    "joins its stream": (
        PRODUCT,
        {"NEEDLESS = 40": "NEEDLESS = 12\nSIDE = torch.cuda.Stream()", MADE: HALVES},
    ),
    "spares 60 passes": (WIDE, {"NEEDLESS = 300": "NEEDLESS = 240"}),
    "divides in its own memory": (
        WIDE,
        {**SHORT, QUOTIENT: "return e.div_(e.sum(dim=1, keepdim=True))"},
    ),
    "ends with torch's softmax": (WIDE, {**SHORT, QUOTIENT: "return torch.softmax(x, dim=1)"}),
}

# Names and families of what is right all the same: it finds no way to win and does the work.
RIGHT = {
    *(f"judge/{name}" for name in ("memory", "network", "ptrace", "room", "shrunk", "stdout")),
    *(f"threads/{name}" for name in ("burners", "helper", "in_kernel", "program", "quota")),
    *("caches/by_server", "caches/by_value", "detection/marks", "lazy/on_access", "lazy/tensor"),
    *(f"card/{name}" for name in ("clocks", "events", "left_over", "mapped", "warm")),
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
        own = re.compile(f"^from {self.task} import .*\n", re.MULTILINE)
        text = own.sub("", self.file.read_text("utf-8"))
        return Source(HEAD, self.file.name, (base_text(self.task) + text).encode())


def cheats(card: bool = False) -> list[Cheat]:
    """All that run on the processor, or on a card."""
    files = sorted(CHEATS.glob("*/*.py"))
    found = [Cheat(file) for file in files if file.parent != TASKS]
    return [one for one in found if (one.file.parent.name == CARD) == card]


def honest(name: str) -> tuple[str, Source]:
    """A base, and a speed-up of it that is one."""
    base, changes = CARD_HONEST[name] if name in CARD_HONEST else (SOFTMAX, HONEST[name])
    text = base_text(base)
    for old, new in changes.items():
        assert old in text, f"{name}: {old}"
        text = text.replace(old, new)
    return base, Source(HEAD, f"{name}.py", text.encode())


def base_text(name: str) -> str:
    """Of a base."""
    return (TASKS / f"{name}.py").read_text("utf-8")


def trials_of(task: str, head: Source) -> Trials:
    """As the command makes them."""
    base = Source(BASE, f"{task}.py", base_text(task).encode())
    name, _, arrays = task.removesuffix("_base").partition("_")
    of_task = replace(read_task(TASKS / f"{name}.py"), arrays=arrays or "numpy")
    roofs_of_it = CARD_ROOFS if of_task.arrays == "cuda" else processor_roofs()
    return Trials(of_task, {BASE: base, HEAD: head}, roofs_of_it, LIMITS)


def launches(trials: Trials) -> Iterator[float]:
    """Log ratios of launches, base and head first in turns. Raises RefusedError."""
    for turn in range(LOOKS[-1]):
        yield trials.launch(turn=turn % 2).log_ratio(ROW)


def verdict_on(task: str, head: Source, most: int = 0, blocks: int = 3) -> Verdict | RefusedError:
    """As a gate decides, with short launches and no further than its first screen where that flags
    nothing; or with long ones, up to as many as `most`. On a card the first screen is all."""
    trials = trials_of(task, head)
    values: list[float] = []
    try:
        if most:
            trials.try_once()
        else:
            trials.calls, trials.blocks = 2, blocks
        for value in launches(trials):
            values.append(value)
            if len(values) in LOOKS:
                found = decide_in_order(values, MARGINS, PLAN)
                goes_on = trials.task.arrays != "cuda" and (found.unconfirmed or len(values) < most)
                if found.verdict != INCONCLUSIVE or not goes_on:
                    return found
    except RefusedError as refused:
        return refused
    return found


processor_roofs = cache(roofs.measured)
CARD_ROOFS = roofs.Roofs(1e13, 1e15)  # of any card: its cache, and its lowest precision
