"""Several ranks: what they do at once, and what is made of all that they say."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

torch = pytest.importorskip("torch")

from gpulift_probe import ranks  # noqa: E402
from torch import distributed  # noqa: E402

from gpulift.advise import launches, plan, process, ranked  # noqa: E402
from gpulift.advise.evidence import Ddp, Live, Memory, Rank, Window  # noqa: E402
from gpulift.advise.judge import advise  # noqa: E402
from gpulift.advise.records import records_of  # noqa: E402
from gpulift.advise.settings import AS_IT_IS  # noqa: E402
from gpulift.ground.errors import GpuliftError  # noqa: E402
from tests.advise import made, scripts  # noqa: E402

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(not distributed.is_available(), reason="this torch has no ranks"),
]

BEGIN = """\
import itertools, os, sys, time, torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

rank = int(sys.argv[1])
store = "file://" + os.path.join(os.path.dirname(os.path.abspath(__file__)), "store")
distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
torch.manual_seed(rank)
torch.set_num_threads(1)
rows = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
def collated(items):
    if rank: time.sleep(0.01)
    return default_collate(items)
loader = DataLoader(rows, batch_size=8, collate_fn=collated)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
"""
DDP = """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
exchanges = 0
def count(state, bucket):
    global exchanges
    exchanges += 1
    return allreduce_hook(state, bucket)
model = nn.parallel.DistributedDataParallel(model)
model.register_comm_hook(None, count)
"""
DISPATCHED = """
def dispatched(batches):
    ahead = next(batches)
    while True:
        batch = ahead
        for part in batch: distributed.broadcast(part, 0)
        ahead = next(batches)
        yield batch
nothing = torch.zeros(8, 8), torch.zeros(8, 1)
epochs = itertools.chain.from_iterable(itertools.repeat(loader, 99))
loader = dispatched(itertools.repeat(nothing) if rank else epochs)
model, exchanges = nn.parallel.DistributedDataParallel(model), ""
"""
ROUNDED = """
class Unrounded:
    def __str__(self):
        every = (weight.grad for weight in model.parameters())
        return str(sum(int((one.bfloat16() != one).sum()) for one in every))
exchanges = Unrounded()
model = nn.parallel.DistributedDataParallel(model)
"""
FSDP = """
from torch.distributed.fsdp import fully_shard
for layer in model:
    fully_shard(layer, reshard_after_forward=True)
fully_shard(model)
exchanges = ""
"""
TRAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(99):
    for number, (inputs, targets) in enumerate(loader):
        nn.functional.mse_loss(model(inputs), targets).backward()
        if number % 2:
            if rank: time.sleep(0.02)
            optimizer.step()
            print("exchanges", exchanges, flush=True)
            optimizer.zero_grad()
            exchanges = type(exchanges)()
"""
SLEPT_S = 0.02  # by rank 1 in a step, and as long in the input of its two batches
SLOW = ["rank 1, which is slow,", "input of rank 1"]
OF_THE_WRAPPER = ["bucket", "bucket_view", "static_graph", "find_unused", "bf16_gradients"]
# Of torchrun: what a rank wrote, then its own lines.
AHEAD = """Traceback (most recent call last):
ImportError: no module \x1b[31m'a'
W1130 02:08:11.691000 1 elastic/api.py:1012] Sending process 2 closing signal SIGTERM
E1130 02:08:11.707000 1 elastic/api.py:986] failed (exitcode: -9) local_rank: 1 (pid: 3)
Traceback (most recent call last):
elastic.multiprocessing.errors.ChildFailedError:
"""
ROOT = """\
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 32075)
----
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_21:26:35
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 32076)
  traceback : Signal 9 (SIGKILL) received by PID 32076
=====
"""


def trained(folder: Path, wrapping: str, **told: Any) -> tuple[Any, set[str]]:
    """What two ranks said, as one process, and what they printed."""
    own = scripts.prepared(folder, BEGIN + wrapping + TRAIN, "replay", **told)
    environment = {**os.environ, "PYTHONPATH": str(scripts.INJECT), **own}
    started = [
        subprocess.Popen(
            [sys.executable, str(folder / scripts.SCRIPT), str(rank)],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    printed, errors = zip(*(one.communicate() for one in started), strict=True)
    assert [one.returncode for one in started] == [75, 75], errors
    return ranked.read_ranks("as it is", 0, folder / scripts.SAID), set(
        "".join(printed).split("\n")
    )


def test_ranks_of_ddp_replay_at_once(tmp_path: Path) -> None:
    said, printed = trained(tmp_path, DDP, only=["exchange", "no_sync"])
    assert {name: arm.state for name, arm in said.arms.items()} == {
        "exchange": "tried",
        "no_sync": "tried",
    }
    assert {"exchanges 2", "exchanges 1", "exchanges 0"} < printed
    assert said.checks["as it is"].bits
    assert said.checks["no_sync"].gradient <= said.checks["no_sync"].band
    assert said.checks["exchange"].gradient > said.checks["exchange"].band
    assert {window.arm for window in said.windows} == {"as it is", "exchange", "no_sync"}
    assert said.ranks[1].alone_s > SLEPT_S
    assert min(window.seconds / window.steps for window in said.windows) > SLEPT_S
    assert said.facts.ddp.bucket_cap_mb == 25
    rows = {row.name: row for row in ranked.slow_ranks([said, said])}
    assert [row.label.partition(" as")[0] for row in rows.values()] == SLOW
    slow, fed = (1 - 1 / row.gain.mid for row in rows.values() if row.gain)
    assert fed * (launches.live_s(said) or 0.0) > SLEPT_S
    assert slow * (launches.replayed_s(said, "as it is") or 0.0) > SLEPT_S / 2


def test_ranks_of_fsdp_replay_at_once(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.fsdp", reason="this torch has no fully_shard")
    said, _ = trained(tmp_path, FSDP, only=["exchange", "reshard"])
    states = {name: arm.state for name, arm in said.arms.items()}
    assert states == {"exchange": "not applicable", "reshard": "tried"}
    assert said.checks["reshard"].bits
    assert {window.arm for window in said.windows} == {"as it is", "reshard"}
    assert said.facts.ddp is None


def test_a_rank_hands_batches_to_the_others(tmp_path: Path) -> None:
    """As accelerate's dispatcher: ahead of asking its loader for the next."""
    said, _ = trained(tmp_path, DISPATCHED, only=["no_sync"])
    facts = said.facts
    assert (facts.anchor, facts.loader.batch, facts.batches_per_step) == ("loader", 8, 2)
    assert said.checks["as it is"].bits
    assert {window.arm for window in said.windows} == {"as it is", "no_sync"}


def test_ranks_exchange_gradients_in_bf16(tmp_path: Path) -> None:
    said, printed = trained(tmp_path, ROUNDED, only=["set_to_none"], bf16_gradients=True)
    assert (said.facts.ddp.hooked, said.facts.unset) == (True, "")
    assert printed - {""} == {"exchanges 0"}, "gradients that BF16 does not have"


def test_what_ranks_tell_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    store = distributed.HashStore()
    both = [ranks.Ranks(rank, 2, store) for rank in range(2)]
    with ThreadPoolExecutor() as pool:
        for meeting in range(3):
            told = list(pool.map(lambda one, at=meeting: one.gather([one.rank, at]), both))
            assert told == [[[0, meeting], [1, meeting]]] * 2
        assert list(pool.map(lambda one: one.first(one.rank), both)) == [0, 0]
    monkeypatch.setattr(ranks, "WAIT_S", 0.01)
    with pytest.raises(RuntimeError, match="rank 1 did not come along"):
        both[0].gather("alone")


@pytest.mark.parametrize(
    ("local", "hosts", "lengths", "why"),
    [
        *[("1", "aa", [], "several hosts"), ("2", "ab", [], "several hosts")],
        *[("2", "aa", [12, 12, None], ""), ("2", "aa", [13, 12], "have 13 and 12 batches")],
    ],
)
def test_ranks_that_cannot_be_followed(
    monkeypatch: pytest.MonkeyPatch, local: str, hosts: str, lengths: list[int], why: str
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    monkeypatch.setattr(ranks.Ranks, "gather", lambda *_: [*hosts])
    told = ranks.refusal(ranks.Ranks(0, 2), lengths)
    assert why in told if why else not told


@pytest.mark.parametrize("given", ["--nnodes 2", "--nnodes=1:4", "--num_machines=2"])
def test_launchers_of_several_hosts(given: str) -> None:
    for text, refused in ((given, True), ("--nnodes 1", False), ("--nnodes=1:1", False)):
        command = process.Command(("torchrun", *text.split(), "train.py"), {}, 1.0)
        if refused:
            with pytest.raises(GpuliftError, match="several hosts"):
                process.require_open(command)
        else:
            process.require_open(command)


def test_a_rank_that_died_is_named(tmp_path: Path) -> None:
    (tmp_path / "said").write_text(ROOT)
    command = process.Command(("sh", "-c", f"cat {tmp_path}/said >&2; exit 1"), {**os.environ}, 60)
    ran = process.run(command, AS_IT_IS, 0, {"mode": "turn"}, lambda _: None)
    assert ran.why == "it ended with code 1: rank 1 ended first, with signal 9"
    (tmp_path / "said").write_text(AHEAD + ROOT)
    ran = process.run(command, AS_IT_IS, 0, {"mode": "turn"}, lambda _: None)
    assert ran.why.endswith("first, with signal 9: ImportError: no module \\x1b[31m'a'")
    own = f"[rank1]: its own\n{AHEAD}{ROOT}"
    assert ranked.died(own).endswith(": [rank1]: its own"), "and no other rank's"
    assert ranked.died(ROOT.replace("rank ", "tank ")) == ""


def of_rank(alone: float, waits: float, **changes: Any) -> Any:
    """A process of a rank that takes steps by itself so many times as fast."""
    own = made.replay({ranked.EXCHANGE: 1 / alone})
    live = (Live(steps_s=(0.1,) * 5, waits_s=(waits,) * 5),)
    return replace(own, live=live, **changes)


def test_a_step_is_that_of_the_slowest_rank() -> None:
    first, second = of_rank(0.5, 0.01), of_rank(0.9, 0.03)
    late = changed(second.windows[0], seconds=9.0, peak_bytes=7)
    second = replace(second, windows=(late, *second.windows[1:]), memory=Memory(3, 4))
    first = replace(first, windows=(changed(late, seconds=8.0, peak_bytes=9), *first.windows[1:]))
    first = replace(first, memory=Memory(5, 6), facts=changed(made.FACTS, host={"a.py:1": 0.3}))
    lines = changed(made.FACTS, host={"a.py:1": 0.2, "b.py:2": 0.4})
    merged = ranked.merged([first, replace(second, ended=None, facts=lines)])
    assert merged.facts == changed(made.FACTS, host={"a.py:1": 0.3, "b.py:2": 0.4})
    assert merged.windows[0] == Window(**{**made_of(late), "peak_bytes": 9})
    assert len(merged.windows) == len(first.windows)
    assert merged.live == second.live
    assert merged.memory == Memory(5, 10)
    assert merged.ended is None
    assert [rank.wait_s for rank in merged.ranks] == pytest.approx([0.01, 0.03])
    (record,) = records_of([merged], [], ["train"], "2026-11-29T00:00:00Z")
    assert record["case"]["ranks"] == 2


def made_of(window: Window) -> dict[str, Any]:
    """Its fields."""
    return {name: getattr(window, name) for name in window.__struct_fields__}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("slow_rank", "rank 1, which is slow, as fast as the next: by itself it takes 9"),
        ("slow_input", "input of rank 1 as fast as the next: a step waits 9"),
    ],
)
@pytest.mark.parametrize(
    ("shares", "named"),
    [
        ([(0.5, 0.9), (0.5, 0.9)], True),
        ([(0.5, 0.9), (0.9, 0.5)], False),  # another rank each time
        ([(0.9, 0.905), (0.9, 0.905)], False),
        ([(0.9, 0.9), (0.2, 0.9)], False),  # once
        ([(0.5, 0.9)], False),
        ([], False),
    ],
)
def test_a_slow_rank_is_named(
    shares: list[tuple[float, float]], named: bool, name: str, label: str
) -> None:
    """Of a step of 0.1 s it takes that share by itself, or its input."""
    by_itself = name == "slow_rank"
    replays = [
        ranked.merged([of_rank(*((own, 0) if by_itself else (1, own / 10))) for own in launch])
        for launch in shares
    ]
    advice = advise(replays, [], [], [])
    rows = [row for row in advice.rows if row.name.startswith("slow_")]
    assert [row.name for row in rows] == ([name] if named else [])
    if named:
        assert rows[0].gain is not None
        assert rows[0].gain.mid == pytest.approx(1 / (1 - 0.4), rel=1e-3)
        (note,) = (note for note in advice.notes if note.startswith(label))
        assert ", the next 5" in note
    assert not list(ranked.slow_ranks([replace(one, ranks=(Rank(None, 0.0),)) for one in replays]))


@pytest.mark.parametrize(
    ("ddp", "tried"),
    [
        (Ddp(25, 400), ["bucket_100", "bucket_view", "static_graph", "bf16_gradients"]),
        (Ddp(25, 3, hooked=True), ["bucket_view", "static_graph"]),
        (Ddp(200, 400, True, True, True, short=True), ["find_unused"]),
        (None, []),
    ],
)
def test_options_of_the_wrapper(ddp: Ddp | None, tried: list[str]) -> None:
    facts = changed(made.FACTS, ddp=ddp)
    seen = plan.Seen.of(replace(made.turn("as it is", 0, 0.1), facts=facts), {})
    chosen = plan.settings(seen, OF_THE_WRAPPER, [])
    assert [one.name for one in chosen if not one.why_not] == tried
