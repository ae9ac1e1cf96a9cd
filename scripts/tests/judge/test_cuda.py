"""A judge on a card: what its walls let pass, what it refuses, and that no cheat is believed."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import median

import pytest

from gpulift.gate.evidence import BASE, HEAD
from gpulift.judge import cuda, side
from gpulift.judge.memory import Layout
from gpulift.judge.side import Limits, RefusedError
from gpulift.judge.task import Source
from gpulift.judge.trials import ROW, Trials
from proof.judged import CARD_HONEST, PRODUCT, Cheat, cheats, honest, trials_of

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no card"),
]

# Each spares no work, and needs something else of the card's driver behind the walls.
PASSES = {
    "as it is": "return honest(x, y)",
    "page-locked memory": "torch.empty(1 << 24).pin_memory().cuda(); return honest(x, y)",
    "copies to the host": "x.cpu().cuda(); return honest(x, y)",
    "a compiler at run time": (
        "torch.cuda.jiterator._create_jit_fn('template <typename T> T f(T x) { return x; }')(x)\n"
        " return honest(x, y)"
    ),
    "solvers and convolutions": (
        "torch.linalg.qr(x[:64, :64]); torch.nn.functional.conv2d(x[None, None], y[None, None,"
        " :3, :3]); return honest(x, y)"
    ),
    "events": (
        "a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2)); a.record()\n"
        " made = honest(x, y); b.record(); b.synchronize(); a.elapsed_time(b); return made"
    ),
    "a thread of its own": (
        "import threading; made = []\n"
        " one = threading.Thread(target=lambda: made.append(honest(x, y)))\n"
        " one.start(); one.join(); return made[0]"
    ),
    "memory in pieces and back": (
        "held = [torch.empty(1 << 28, device='cuda') for _ in range(4)]; del held\n"
        " torch.cuda.empty_cache(); return honest(x, y)"
    ),
}
BREAKS = {
    "is wrong": ("return x", "output 0 is wrong"),
    "hangs": ("while True: pass", "hangs"),
    "hangs on the card": (
        "torch.cuda._sleep(100_000_000_000); return honest(x, y)",
        "hangs",
    ),
    "returns another type": ("return honest(x, y).double()", "returns other outputs"),
    "changes its inputs": ("made = honest(x, y); x.zero_(); return made", "changes its inputs"),
    "breaks its context": ("return x[:, torch.full((len(x),), 1 << 30, device='cuda')]", "assert"),
    "takes the card's memory": (
        "KEPT.append(torch.empty(10 * torch.cuda.mem_get_info()[0] // 16, dtype=torch.uint8,"
        " device='cuda')); return honest(x, y)",
        "takes more than half of the card's memory",
    ),
    "leaves a kernel": (
        "made = honest(x, y); torch.cuda.synchronize()\n"
        " torch.cuda.synchronize = lambda *_: torch.cuda.default_stream().synchronize()\n"
        " with torch.cuda.stream(SIDE): torch.cuda._sleep(50_000_000_000)\n"
        " return made",
        "keeps the card at work",
    ),
}


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the candidate's libraries say is shown where a test fails."""
    monkeypatch.setattr(side, "STDERR", None)


def trials(body: str) -> Trials:
    text = f"\nKEPT, SIDE = [], torch.cuda.Stream()\ndef run(x, y):\n {body}\n"
    base = trials_of(PRODUCT, Source(HEAD, "head", b"")).sources[BASE]
    found = trials_of(PRODUCT, Source(HEAD, "head", base.text + text.encode()))
    return replace(found, limits=Limits(call_s=5.0), calls=2)


def refused_in(found: Trials, launches: int) -> RefusedError | None:
    try:
        for _ in range(launches):
            found.launch()
    except RefusedError as refused:
        return refused
    return None


@pytest.mark.parametrize("name", PASSES)
def test_what_honest_ones_need_stands_behind_the_walls(name: str) -> None:
    found = trials(PASSES[name])
    assert found.launch().pairs
    assert found.through == "device memory that both have mapped"
    assert "a filter of system calls" in found.walls.partition("; not isolated")[0]


@pytest.mark.parametrize("name", BREAKS)
def test_a_head_that_breaks_is_named_and_the_base_stands(name: str) -> None:
    body, reason = BREAKS[name]
    found = trials(body)
    refused = refused_in(found, 2)
    assert refused is not None
    assert refused.side == HEAD
    assert re.search(reason, refused.reason), refused.reason
    assert 0 < found.alone(BASE) < 1


def test_outputs_are_as_they_were_when_the_card_is_quiet() -> None:
    content = bytes(range(1, 65))
    arena = cuda.Arena([Layout.of([("uint8", (64,))])] * 2)
    arena.stage(bytes(64), content)
    arena.collect(64)
    assert arena.quiet()
    assert arena.collected(64) == content


def test_a_base_is_no_faster_than_itself() -> None:
    found = trials("return honest(x, y)")
    found.blocks = 9
    assert abs(found.launch().log_ratio(ROW)) < 0.5
    print({name: median(seconds) for name, seconds in found.times.items()})


@pytest.mark.parametrize("name", CARD_HONEST)
def test_no_honest_speed_up_is_refused(name: str) -> None:
    assert trials_of(*honest(name)).launch().log_ratio(ROW) < 0.5


@pytest.mark.parametrize("cheat", cheats(card=True), ids=lambda cheat: cheat.name)
def test_cheats_are_refused_for_what_they_do(cheat: Cheat) -> None:
    found = trials_of(cheat.task, cheat.source)
    found.calls = 2
    refused = refused_in(found, 4)
    assert (refused is not None) == cheat.refused, refused
    if refused:
        assert refused.side == HEAD
        assert not re.match(r"(Module|Name|Type|Attribute|Import)\w*Error", refused.reason)
