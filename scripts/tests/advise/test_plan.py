"""Which settings a script is tried with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gpulift.advise import plan
from gpulift.advise.evidence import Ddp, Facts, Loader, Process
from gpulift.advise.plan import Seen, require_known, settings
from gpulift.advise.settings import Setting
from gpulift.ground.errors import GpuliftError
from tests.advise.made import FACTS, replay, turn

SEEN = Seen(FACTS, cores=16, on_gpu=True, input_share=0.3, environment={})


def named(seen: Seen, name: str) -> Setting:
    (setting,) = (one for one in settings(seen, plan.NAMES, ()) if one.name.startswith(name))
    return setting


def with_loader(seen: Seen = SEEN, **changes: object) -> Seen:
    assert seen.loader is not None
    loader = msgspec.structs.replace(seen.loader, **changes)
    return replace(seen, facts=msgspec.structs.replace(seen.facts, loader=loader))


def with_facts(**changes: object) -> Seen:
    return replace(SEEN, facts=msgspec.structs.replace(FACTS, **changes))


@pytest.mark.parametrize(
    ("workers", "cores", "name"),
    [(4, 16, "workers_8"), (4, 6, "workers_6"), (0, 16, "workers_4"), (0, 2, "workers_2")],
)
def test_twice_the_workers_and_no_more_than_cores(workers: int, cores: int, name: str) -> None:
    setting = named(replace(with_loader(workers=workers), cores=cores), "workers")
    assert (setting.name, setting.why_not) == (name, "")
    assert setting.told == {"loader": {"num_workers": int(name.rpartition("_")[2])}}
    assert setting.label.startswith(f"num_workers {workers} -> ")


def test_a_worker_for_each_core_is_enough() -> None:
    setting = named(replace(SEEN, cores=4), "workers")
    assert setting.why_not == "it has 4 workers for 4 cores"


def test_prefetch() -> None:
    assert named(SEEN, "prefetch").told == {"loader": {"prefetch_factor": 4}}
    assert named(with_loader(workers=0), "prefetch").why_not == "the loader has no workers"
    already = "as many batches are prefetched already"
    assert named(with_loader(prefetch=8), "prefetch").why_not == already


@pytest.mark.parametrize(
    ("name", "told", "why"),
    [
        ("workers", {"dealt": False}, plan.NOT_DEALT),
        ("batch_2x", {"sampled": True}, plan.SAMPLED),
        ("batch_2x", {"batch": None}, "the loader tells no size of batches"),
    ],
)
def test_what_would_not_take_is_not_tried(name: str, told: dict[str, Any], why: str) -> None:
    assert named(SEEN, name).why_not == ""
    assert named(with_loader(**told), name).why_not == why


def test_pinned_memory() -> None:
    assert named(SEEN, "pinned").told == {"loader": {"pin_memory": True}}
    assert named(with_loader(pin_memory=True), "pinned").why_not == "it is pinned already"
    assert "processor" in named(replace(SEEN, on_gpu=False), "pinned").why_not


@pytest.mark.parametrize("name", ["workers", "prefetch", "pinned", "malloc"])
def test_input_that_is_ready_is_left_as_it_is(name: str) -> None:
    seen = replace(SEEN, input_share=0.013)
    assert named(seen, name).why_not == "input takes 1.3 % of the step"
    assert named(replace(SEEN, input_share=-0.01), name).why_not == "input takes 0.0 % of the step"


def test_a_script_without_a_loader() -> None:
    seen = replace(SEEN, facts=Facts(anchor="optimizer"), input_share=None)
    whys = {one.name: one.why_not for one in settings(seen, (), ())}
    away = "no DataLoader in the training loop"
    assert {name for name, why in whys.items() if why == away} == {
        *("workers_4", "prefetch_4", "pinned", "malloc", "batch_2x")
    }
    assert whys["expandable_segments"] == whys["compile_all"] == ""


def test_memory_of_the_device() -> None:
    setting = named(SEEN, "expandable")
    assert setting.environment == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    own = replace(SEEN, environment={"PYTORCH_ALLOC_CONF": "x"})
    assert named(own, "expandable").why_not == "PYTORCH_ALLOC_CONF is set"
    assert named(replace(SEEN, on_gpu=False), "expandable").why_not


def test_memory_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "find_library", {"tcmalloc": "libtcmalloc.so.4"}.get)
    setting = named(SEEN, "malloc")
    assert setting.environment == {"LD_PRELOAD": "libtcmalloc.so.4"}
    assert setting.label == "LD_PRELOAD=libtcmalloc.so.4"
    monkeypatch.setattr(plan, "find_library", lambda _: None)
    assert set(named(SEEN, "malloc").environment) == {
        *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    }
    own = replace(SEEN, environment={"LD_PRELOAD": "theirs.so"})
    assert named(own, "malloc").why_not == "LD_PRELOAD is set"
    on_processor = replace(SEEN, on_gpu=False, input_share=0.0)
    assert named(on_processor, "malloc").why_not == ""


def test_models() -> None:
    for name in ("channels_last", "cudnn_search"):
        assert named(SEEN, name).why_not == "no convolution ran"
    searches = named(with_facts(convolutions=True, cudnn_search=True), "cudnn_search")
    assert searches.why_not == "the script sets it"
    searches = named(with_facts(convolutions=True), "cudnn_search")
    assert (searches.why_not, searches.told) == ("", {"cudnn_search": True})
    assert named(with_facts(convolutions=True), "channels_last").told == {"channels_last": True}
    assert named(SEEN, "compile_all").told == {"compile": True}
    assert named(with_facts(compiled=True), "compile_all").why_not == "the script compiles already"


def test_batches() -> None:
    twice, half = named(SEEN, "batch_2x"), named(SEEN, "batch_half")
    assert (twice.label, half.label) == ("batch 32 -> 64", "batch 32 -> 16")
    assert twice.told == {"batch_factor": 2.0, "batch": 64}
    assert half.told == {"batch_factor": 0.5, "batch": 16}
    assert twice.keeps == half.keeps == "work"
    assert named(with_loader(batch=1), "batch_half").why_not == "a batch has one item"
    assert named(with_loader(batch=None), "batch_2x").why_not == (
        "the loader tells no size of batches"
    )


def test_what_is_appended_to_the_command() -> None:
    first, second, *_ = settings(SEEN, (), (("--bf16",), ("--lr", "3")))
    assert (first.name, first.label, first.arguments) == ("vary_1", "--bf16", ("--bf16",))
    assert (second.name, second.label, second.arguments) == ("vary_2", "--lr 3", ("--lr", "3"))


def test_only_some() -> None:
    chosen = settings(SEEN, ("workers", "batch_2x", "fused"), (("--bf16",),))
    assert [one.name for one in chosen] == ["vary_1", "workers_8", "batch_2x"]
    require_known(["workers", "workers_8", "batch_2x", "fused", "threads"])
    with pytest.raises(GpuliftError, match=r"--only fuse: .*near: fused"):
        require_known(["fuse"])
    with pytest.raises(GpuliftError, match="expandable_segments"):
        require_known(["0"])


@pytest.mark.parametrize(
    ("input_share", "exchange_share", "names"),
    [
        (0.3, 0.2, ["workers", "prefetch", "bucket", "compile", "batch", "malloc"]),
        (0.03, 0.04, ["compile", "batch", "bucket", "workers", "prefetch", "malloc"]),
        (None, 0.5, ["bucket", "compile"]),
    ],
)
def test_what_may_bring_most_comes_first(
    input_share: float | None, exchange_share: float, names: list[str]
) -> None:
    facts = msgspec.structs.replace(
        FACTS, ddp=Ddp(25, 400), loader=FACTS.loader if input_share else None
    )
    seen = Seen(facts, 16, True, input_share, {}, exchange_share)
    only = ("malloc", "workers", "prefetch", "compile_all", "batch_2x", "bucket")
    tried = [one.name for one in settings(seen, only, ()) if not one.why_not]
    assert [name.partition("_")[0] for name in tried] == names


WAITING = replay({}, wait_share=0.25)


@pytest.mark.parametrize(
    ("process", "share"),
    [
        (WAITING, 0.25),
        (replace(turn("as it is", 0, 0.1), live=WAITING.live), None),
        (replay({}, wait_share=0.25, facts=Facts(anchor="optimizer")), None),
    ],
)
def test_what_of_a_step_is_input(process: Process, share: float | None) -> None:
    seen = Seen.of(process, {})
    assert seen.input_share == (None if share is None else pytest.approx(share, abs=1e-2))
    assert (seen.cores, seen.on_gpu) == (16, True)
    assert seen.exchange_share == 0
    alone = Seen.of(replay({"exchange": 1.25}), {})
    assert alone.exchange_share == pytest.approx(0.2)


def test_waits_tell_where_nothing_is_replayed() -> None:
    (span,) = WAITING.live
    waits = tuple(step_s / 5 for step_s in span.steps_s)
    live = (msgspec.structs.replace(span, waits_s=waits),)
    process = replace(WAITING, windows=(), live=live)
    assert Seen.of(process, {}).input_share == pytest.approx(0.2)
    assert Seen.of(replace(process, live=()), {}).input_share is None


def test_a_loader_of_one_core() -> None:
    loader = Loader(workers=0, batch=8)
    seen = Seen(Facts(anchor="loader", loader=loader), 1, False, 0.5, {})
    assert named(seen, "workers").name == "workers_1"
