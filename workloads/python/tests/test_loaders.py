"""Loaders of Python arms: order, what is ready when a window begins, and workers that die."""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import IterableDataset, get_worker_info  # noqa: E402

WAIT_S = 30.0


@pytest.fixture(name="loaders")
def loaders_module() -> Any:
    """The module that arms import."""
    return importlib.import_module("gpulift_work.loaders")


def number(key: tuple[int, int]) -> Any:
    """A sample that says which it is."""
    return torch.tensor(key)


def make(loaders: Any, kind: str, load: Any = number) -> Any:
    """A loader of eight samples in batches of two."""
    order = loaders.Order(8, 2, 7)
    if kind == "in_process":
        return loaders.ProcessLoader(loaders.Samples(load), order, 0)
    if kind == "processes":
        return loaders.ProcessLoader(loaders.Samples(load), order, 2)
    return loaders.ThreadLoader(loaders.Samples(load), order, 2)


def take(loader: Any, batches: int) -> None:
    """So many."""
    for _ in range(batches):
        loader.take()


KINDS = ("in_process", "processes", "threads")


@pytest.mark.parametrize("kind", KINDS)
def test_batches_come_in_order_with_the_samples_of_their_keys(loaders: Any, kind: str) -> None:
    loader = make(loaders, kind)
    for wanted in itertools.islice(loaders.Order(8, 2, 7), 10):
        keys, data = loader.take()
        assert keys == wanted
        assert data.tolist() == [list(key) for key in wanted]


def test_each_epoch_has_all_samples_in_another_order(loaders: Any) -> None:
    batches = list(itertools.islice(loaders.Order(8, 2, 7), 8))
    first, second = (list(itertools.chain(*some)) for some in (batches[:4], batches[4:]))
    assert sorted(first) == [(0, one) for one in range(8)]
    assert sorted(second) == [(1, one) for one in range(8)]
    assert [one for _, one in first] != [one for _, one in second]
    assert list(itertools.islice(loaders.Order(8, 2, 2**64 - 1), 4)) != batches[:4]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_four_batches_are_ready_before_the_first_is_taken_and_again_after_each(
    loaders: Any, kind: str, tmp_path: Path
) -> None:
    def load(key: tuple[int, int]) -> Any:
        (tmp_path / f"{key[0]}-{key[1]}").touch()
        return number(key)

    loader = make(loaders, kind, load)
    for taken in range(4):
        loader.wait() if kind == "processes" else loader.pause()
        assert len(list(tmp_path.iterdir())) == 2 * (4 + taken)
        loader.take()


def test_without_workers_nothing_is_loaded_ahead(loaders: Any) -> None:
    loaded: list[tuple[int, int]] = []

    def load(key: tuple[int, int]) -> Any:
        loaded.append(key)
        return number(key)

    loader = make(loaders, "in_process", load)
    assert loader.pause() == 0
    assert loaded == []
    loader.take()
    assert len(loaded) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_that_cannot_be_loaded_is_named_in_one_line(loaders: Any, kind: str) -> None:
    def load(key: tuple[int, int]) -> Any:
        if key[1] == 5:
            raise OSError("truncated")
        return number(key)

    loader = make(loaders, kind, load)
    loader.pause() if kind == "threads" else loader.wait()  # for what will never be ready, too
    with pytest.raises((RuntimeError, ValueError), match=r"^(ValueError: )?sample 5: truncated$"):
        take(loader, 4)


@pytest.mark.parametrize("waiting", [True, False])
def test_a_killed_worker_is_an_error_in_one_line(loaders: Any, waiting: bool) -> None:
    stuck = threading.Event()
    loader = make(loaders, "processes", lambda key: stuck.wait() or number(key))
    pid = loader.processes[0]
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(RuntimeError, match=r"^a worker process of the loader was killed"):
        loader.wait() if waiting else loader.take()


def test_stopped_workers_go_on_where_they_were_when_a_batch_is_taken(loaders: Any) -> None:
    def slow(key: tuple[int, int]) -> Any:
        time.sleep(0.05)
        return number(key)

    loader = make(loaders, "processes", slow)
    for wanted in itertools.islice(loaders.Order(8, 2, 7), 6):
        assert loader.pause() == 0
        assert [state_of(worker) for worker in loader.processes] == ["T", "T"]
        assert loader.take()[0] == wanted


@pytest.mark.parametrize("ends", ["loader", "process"])
def test_stopped_workers_end_with_their_loader_or_process(ends: str) -> None:
    code = f"""
import sys
sys.path[:] = {sys.path!r}
import torch
from gpulift_work.loaders import Order, ProcessLoader, Samples
loader = ProcessLoader(Samples(lambda key: torch.tensor(key)), Order(8, 2, 7), 2)
loader.take()
loader.pause()
print(*loader.processes, flush=True)
if {ends == "loader"}:
    del loader
    print("went on")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not any(map(lives, map(int, ended.stdout.splitlines()[0].split())))


def test_workers_end_with_a_process_that_is_killed() -> None:
    code = f"""
import os, signal, sys
sys.path[:] = {sys.path!r}
import torch
from gpulift_work.loaders import Order, ProcessLoader, Samples
loader = ProcessLoader(Samples(lambda key: torch.tensor(key)), Order(8, 2, 7), 2)
loader.wait()
print(*loader.processes, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    # A pipe would stay open as long as a worker lives.
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    workers = list(map(int, ended.stdout.split()))
    assert len(workers) == 2
    until_s = time.monotonic() + WAIT_S
    while any(map(lives, workers)):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def lives(process: int) -> bool:
    """Whether it has neither ended nor is about to."""
    return state_of(process) not in "ZX"


def state_of(process: int) -> str:
    """As ps says it; X where there is none."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except OSError:
        return "X"
    return status.rpartition(")")[2].split()[0]


def test_a_round_trains_on_each_batch_and_its_rest_knows_the_order(loaders: Any) -> None:
    trained: list[Any] = []
    rounds = loaders.Rounds(make(loaders, "processes"), loaders.Order(8, 2, 7), trained.append, 3)
    rounds.step()
    rounds.rest()
    assert len(trained) == 3
    assert rounds.last[1] is trained[-1]


def test_batches_that_are_not_those_of_their_turn_fail_the_window(loaders: Any) -> None:
    rounds = loaders.Rounds(make(loaders, "threads"), loaders.Order(8, 2, 8), id, 1)
    rounds.step()
    with pytest.raises(RuntimeError, match="the loader gave samples"):
        rounds.rest()


def test_a_library_may_shuffle_but_neither_repeat_nor_leave_out(loaders: Any) -> None:
    check = loaders.AnyOrder(4, 2).checker()
    for batch in ([(0, 3), (0, 1)], [(1, 1), (0, 0)], [(0, 2), (1, 3)], [(1, 0), (1, 2)]):
        check(batch)
    with pytest.raises(RuntimeError, match="sample 0 twice"):
        check([(1, 0)])
    check([(2, 0), (3, 1)])
    with pytest.raises(RuntimeError, match="left out 3 samples"):
        check([(4, 1)])


class Stream(IterableDataset[Any]):  # type: ignore[misc]
    """Each worker's half of eight samples, without end; where it is told to, it breaks."""

    def __init__(self, breaks: bool = False) -> None:
        self._breaks = breaks

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info().id
        for epoch in itertools.count():
            for number_ in range(worker, 8, 2):
                if self._breaks:
                    raise ValueError("the shard is truncated")
                yield (epoch, number_), number((epoch, number_))


def test_a_stream_is_ready_when_a_window_begins_and_tells_its_own_keys(loaders: Any) -> None:
    any_order = loaders.AnyOrder(8, 2)
    loader = loaders.ProcessLoader(Stream(), any_order, 2)
    trained: list[Any] = []
    rounds = loaders.Rounds(loader, any_order, trained.append, 2)
    for _ in range(4):
        rounds.settle()
        rounds.step()
        rounds.rest()
    assert rounds.last[1].tolist() == [list(key) for key in rounds.last[0]]


def test_a_stream_that_breaks_is_an_error_in_one_line(loaders: Any) -> None:
    for call in ("wait", "take"):
        loader = loaders.ProcessLoader(Stream(breaks=True), loaders.AnyOrder(8, 2), 2)
        with pytest.raises(RuntimeError, match="the shard is truncated") as raised:
            getattr(loader, call)()
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("kind", "thrown_away"), [("processes", 0), ("threads", 4)])
def test_settling_throws_away_what_was_made_at_rest(
    loaders: Any, kind: str, thrown_away: int
) -> None:
    trained: list[Any] = []
    order = loaders.Order(8, 2, 7)
    rounds = loaders.Rounds(make(loaders, kind), order, trained.append, 1)
    for _ in range(2):
        rounds.settle()
        rounds.step()
        rounds.rest()
    assert len(trained) == 4
    assert rounds.last[0] == next(itertools.islice(order, 3 + thrown_away, None))


def test_what_a_thread_makes_ahead_keeps_the_order_and_tells_what_failed(loaders: Any) -> None:
    def doubled(numbers: Any) -> Any:
        if numbers[0][0] == 1:
            raise ValueError("of the second epoch")
        return 2 * numbers

    order = loaders.Order(8, 2, 7)
    ahead = loaders.Ahead(make(loaders, "processes"), doubled)
    for keys in itertools.islice(order, 4):
        found, made = ahead.take()
        assert found == keys
        assert made.tolist() == [[2 * one for one in key] for key in keys]
    assert ahead.pause() == loaders.PREFETCH
    with pytest.raises(ValueError, match="of the second epoch"):
        ahead.take()


def test_a_look_says_how_long_it_waited_for_data_and_counts_the_processors(loaders: Any) -> None:
    def busy(key: tuple[int, int]) -> Any:
        until_s = time.thread_time() + 0.01
        while time.thread_time() < until_s:
            pass
        return number(key)

    trained: list[Any] = []
    waited: list[int] = []
    rounds = loaders.Rounds(
        make(loaders, "in_process", busy), loaders.Order(8, 2, 7), trained.append, 2
    )
    found = rounds.look(3, lambda _: time.sleep(0.02), lambda: waited.append(1))
    assert waited == [1, 1]
    assert trained == []
    assert found.wait_s >= 0.12  # 12 samples in 6 batches, each with a step
    assert found.seconds >= found.wait_s + 0.12
    assert found.cpu_s >= 0.08  # 12 samples, of which a clock tick or two may not be counted
    rounds.step()
    rounds.rest()


def test_shared_memory_that_is_too_small_is_a_skip_with_a_remedy(
    loaders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaders.require_shared_memory(0)
    with pytest.raises(loaders.Skip, match="MB are needed") as skipped:
        loaders.require_shared_memory(1e18)
    assert "--shm-size" in skipped.value.remedy
    monkeypatch.setattr(loaders, "SHARED_MEMORY", "/nowhere")
    with pytest.raises(loaders.Skip, match="No such file"):
        loaders.require_shared_memory(0)
