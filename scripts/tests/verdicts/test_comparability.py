"""What may be compared: every fact that differs is named, and one may be declared."""

from __future__ import annotations

import copy
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from gpulift.ground.errors import NOT_COMPARABLE, USAGE, GpuliftError
from gpulift.records.model import Context
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.verdicts.comparability import (
    FACTORS,
    Common,
    require_comparable,
    require_factor,
    require_same_but_commit,
)
from tests import sample

ARMS = [sample.arm("a", 1e-3)]


def made(name: str, launch: int = 0, top: sample.Json | None = None, **changes: Any) -> Run:
    """A run of one record; `changes` are of the context, `gpu__card` for gpu.card; None removes."""
    raw = sample.record("a/b", {"n": 1}, ARMS, launch)
    for path, value in changes.items():
        *parents, last = path.split("__")
        inner = raw["context"]
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    raw.update(copy.deepcopy(top or {}))
    return Run(Path(name), (read_record(raw, Path(f"{name}.jsonl"), 1),))


def fact_of(path: str) -> str:
    """`gpu__card` is gpu.card; versions are facts of libraries."""
    return path.replace("__", ".").replace("versions.", "libraries.")


def both(*records: Run) -> Run:
    return Run(records[0].folder, tuple(one for run in records for one in run.records))


def compared(base: Run, head: Run, across: str | None = None) -> Common:
    return require_comparable([base], [head], require_factor(across))


def refusal(base: Run, head: Run, across: str | None = None) -> str:
    with pytest.raises(GpuliftError) as caught:
        compared(base, head, across)
    assert caught.value.exit_code == NOT_COMPARABLE
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("gpu__name", "NVIDIA H100"),
        ("gpu__card", "99999999"),
        ("gpu__vbios", "96.1"),
        ("gpu__power_limit_w", 500.0),
        ("gpu__ecc", False),
        ("gpu__mig", True),
        ("driver", "570.1"),
        ("cuda_driver", "12.8"),
        ("cuda_runtime", "12.8"),
        ("versions__cublaslt", "13.2.0"),
        ("build__commit", "fedcba9"),
        ("build__dirty", True),
        ("build__type", "Debug"),
        ("build__compiler", "Clang 19"),
        ("build__cuda_compiler", "NVIDIA 13.1"),
        ("build__architectures", "80"),
        ("build__sanitizers", "address"),
        ("build__cuda_host_compiler", "Clang 19"),
        ("build__linker", "LLD 19"),
        ("build__flags", "-fno-inline -O3 -DNDEBUG"),
        ("build__cuda_flags", "-G"),
        ("build__link_flags", "-Wl,-z,lazy"),
        ("build__environment__NVCC_APPEND_FLAGS", "-O0"),
        ("build__environment__CPATH", "#"),
        ("environment__LD_PRELOAD", "libjemalloc.so.2"),
        ("environment__LD_LIBRARY_PATH", "set"),
        ("environment__KMP_BLOCKTIME", "0"),
        ("host__cpu", "AMD EPYC"),
        ("host__cpu_id", "25-17-1"),
        ("host__cores", 8),
        ("host__os", "Ubuntu 24.04"),
        ("host__kernel", "6.8"),
        ("environment__CUDA_MODULE_LOADING", "EAGER"),
        ("environment__OMP_NUM_THREADS", "4"),
    ],
)
def test_every_fact_must_be_equal_and_is_named_with_both_values(path: str, value: Any) -> None:
    base = made("base")
    text = refusal(base, made("head", **{path: value}))
    name = fact_of(path)
    assert f"{name} (" in text
    assert f"{value} in head)" in text
    text = refusal(made("base", **{path: value}), base)
    assert f"{name} ({value} in base" in text


OLD: sample.Json = {"schema": "1.7"}
UNTOLD: dict[str, Any] = {
    f"build__{key}": None
    for key in ("flags", "cuda_flags", "link_flags", "linker", "cuda_host_compiler")
}


@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        (None, {"KMP_BLOCKTIME": "0"}, True),
        (None, {"LD_LIBRARY_PATH": "#1a2b3c4d"}, True),
        (None, {"OMP_NUM_THREADS": "4"}, False),
        (None, {"LD_PRELOAD": "libjemalloc.so.2"}, False),
        ({"LD_PRELOAD": "set"}, {"LD_PRELOAD": "libjemalloc.so.2"}, True),
        ({"LD_PRELOAD": "set"}, {}, False),
        ({"OMP_NUM_THREADS": "4"}, {}, False),
    ],
)
def test_of_the_environment_an_older_record_told_some(
    old: sample.Json | None, new: sample.Json, alike: bool
) -> None:
    base = made("base", top=OLD, environment=old or {}, **UNTOLD)
    head = made("head", environment=new)
    if alike:
        compared(base, head)
        compared(head, base)
    else:
        (name,) = {**(old or {}), **new}
        assert f"environment.{name} (" in refusal(base, head)
        assert f"environment.{name} (" in refusal(head, base)


def test_a_gate_allows_a_base_that_tells_less_of_its_build_and_holds_others_to_it() -> None:
    def context(**changes: Any) -> Context:
        return made("x", **changes).records[0].context

    slow = context(build__flags="-O1", environment__KMP_BLOCKTIME="0")
    require_same_but_commit(context(**UNTOLD), slow)
    with pytest.raises(GpuliftError, match=r"build\.flags \(-O3 -DNDEBUG in base, -O1 in head\)"):
        require_same_but_commit(context(environment__KMP_BLOCKTIME="0"), slow)
    with pytest.raises(GpuliftError, match=r"build\.environment\.CPATH"):
        require_same_but_commit(context(), context(build__environment__CPATH="#1a2b3c4d"))


def test_a_gate_allows_a_base_that_asks_less_of_the_host() -> None:
    knowing = made("x", host__cpu_id="25-17-1").records[0].context
    require_same_but_commit(made("x").records[0].context, knowing)
    other = made("x", host__cpu_id="25-1-1").records[0].context
    with pytest.raises(GpuliftError, match=r"host\.cpu_id"):
        require_same_but_commit(knowing, other)


def test_a_gate_allows_its_builds_only_another_commit() -> None:
    def context(**changes: Any) -> Context:
        return made("x", **changes).records[0].context

    require_same_but_commit(context(), context(build__commit="fedcba9", build__dirty=True))
    with pytest.raises(GpuliftError) as caught:
        require_same_but_commit(
            context(), context(build__type="Debug", versions__cudnn="9.1", gpu__card="99999999")
        )
    assert caught.value.exit_code == NOT_COMPARABLE
    assert str(caught.value) == (
        "not comparable: build.type (Release in base, Debug in head), gpu.card (1a2b3c4d in base,"
        " 99999999 in head), libraries.cudnn (not recorded in base, 9.1 in head); build both sides"
        " alike: only the commit may differ"
    )
    with pytest.raises(GpuliftError, match=r"gpu.name \(NVIDIA H200 in base, none in head\)"):
        require_same_but_commit(context(), context(gpu=None, gpu_missing="no driver"))
    none = context(gpu=None, gpu_missing="no driver")
    require_same_but_commit(none, none)


def test_another_host_of_the_same_kind_is_no_difference() -> None:
    base, head = (
        made(name, host__id=name, host__id_of=of)
        for name, of in (("base", "machine_id"), ("head", "boot_id"))
    )
    found = compared(base, head)
    assert not any(fact.startswith("host.id") for fact in (*found.equal, *found.one_sided))
    contexts = [run.records[0].context for run in (base, head)]
    require_same_but_commit(*contexts)
    assert [one.host.id for one in contexts] == ["base", "head"]


@pytest.mark.parametrize(
    ("across", "changes"),
    [
        ("driver", {"driver": "590.1", "cuda_driver": "13.1"}),
        ("torch", {"versions__torch": "2.9", "versions__cublaslt": "13.2"}),
        ("card", {"gpu__card": "99999999", "gpu__vbios": "96.1"}),
        ("gpu-model", {"gpu__name": "NVIDIA L4", "gpu__card": "9", "gpu__power_limit_w": 72.0}),
        ("commit", {"build__commit": "fedcba9"}),
        ("commit", {"build__dirty": True}),
    ],
)
def test_a_declared_factor_allows_what_goes_with_it(across: str, changes: sample.Json) -> None:
    base = made("base", versions__torch="2.8")
    changes = {"versions__torch": "2.8", **changes}
    assert f"add --across {across}" in refusal(base, made("head", **changes))
    found = compared(base, made("head", **changes), across)
    differ = {fact_of(key) for key, value in changes.items() if value != "2.8"}
    assert {one.fact for one in found.declared} == differ
    text = refusal(base, made("head", **changes, host__kernel="7"), across)
    assert "host.kernel" in text
    allowed = next(iter(differ))
    assert f"{allowed} (" not in text, "what is allowed is not complained of"


def noting(name: str, schema: str = "1.5", **notes: str) -> Run:
    """A run whose second record has an arm that notes these versions; the first one's have none."""
    top = {"schema": schema}
    return both(made(name, top=top), made(name, launch=1, top={**top, "notes": notes}))


@pytest.mark.parametrize(
    ("name", "first", "then", "shown"),
    [
        ("torch", "2.10.0", "2.11.0", "libraries.libtorch (2.10.0, then 2.11.0)"),
        ("libtorch", "2.10.0", "2.11.0", "libraries.libtorch (2.10.0, then 2.11.0)"),
        ("torch", "2+cu128", "2+cu130", "libraries.torch (2+cu128, then 2+cu130)"),
        ("jax", "0.11.2", "0.11.3", "libraries.jax (0.11.2, then 0.11.3)"),
        ("python", "3.13.0", "3.13.0rc1", "libraries.python (3.13.0, then 3.13.0rc1)"),
    ],
)
@pytest.mark.parametrize("across", [None, "torch"])
def test_a_side_of_two_versions_is_refused(
    name: str, first: str, then: str, shown: str, across: str | None
) -> None:
    mixed = both(noting("one", **{name: first}), noting("two", **{name: then}))
    with pytest.raises(GpuliftError) as caught:
        compared(noting("base", **{name: first}), mixed, across)
    assert caught.value.exit_code == NOT_COMPARABLE
    assert str(caught.value) == (
        f"the head records are of more than one set: {shown}, from one.jsonl:1 to two.jsonl:1; name"
        " runs or record files that agree in it"
    )


@pytest.mark.parametrize("then", ["2.10.0", "2.11.0"])
def test_libtorch_is_known_by_its_old_name_too(then: str) -> None:
    base = noting("base", torch="2.10.0")
    head = noting("head", schema="1.6", libtorch=then)
    if then == "2.10.0":
        assert compared(base, head).equal["libraries.libtorch"] == then
    else:
        assert "libraries.libtorch (2.10.0 in base, 2.11.0 in head)" in refusal(base, head)


@pytest.mark.parametrize(
    ("across", "changes"),
    [
        ("card", {"gpu__card": "9", "host__cpu": "AMD EPYC"}),
        ("card", {"gpu__card": "9", "gpu__ecc": False}),
        ("gpu-model", {"gpu__name": "NVIDIA L4", "driver": "590"}),
        ("gpu-model", {"gpu__name": "NVIDIA L4", "gpu__mig": True}),
        ("driver", {"driver": "590", "cuda_runtime": "13.1"}),
        ("torch", {"versions__cublaslt": "13.2", "driver": "590"}),
        ("commit", {"build__commit": "fedcba9", "build__compiler": "Clang"}),
    ],
)
def test_a_factor_allows_nothing_else(across: str, changes: sample.Json) -> None:
    refused = list(changes)[1].replace("__", ".")
    text = refusal(made("base"), made("head", **changes), across)
    assert f"not comparable: {refused} (" in text


@pytest.mark.parametrize("across", sorted(FACTORS))
def test_a_declared_factor_must_differ(across: str) -> None:
    with pytest.raises(GpuliftError, match=f"do not differ in {across}") as caught:
        compared(made("base"), made("head"), across)
    assert caught.value.exit_code == USAGE


def test_an_unknown_factor_is_a_usage_error() -> None:
    with pytest.raises(GpuliftError, match="--across knows driver, torch, card") as caught:
        require_factor("weather")
    assert caught.value.exit_code == USAGE


@pytest.mark.parametrize("across", [None, "card", "gpu-model"])
def test_a_card_that_changes_in_the_middle_of_a_run_is_refused(across: str | None) -> None:
    mixed = both(made("head"), made("head", launch=1, gpu__card="99999999"))
    text = refusal(made("base"), mixed, across)
    assert "the head records are of more than one set: gpu.card (1a2b3c4d, then 99999999)" in text
    assert "head.jsonl:1" in text


@pytest.mark.parametrize(
    "change", [{"driver": "590"}, {"build__commit": "f"}, {"host__kernel": "7"}]
)
def test_two_runs_of_one_side_must_be_of_one_set(change: sample.Json) -> None:
    with pytest.raises(GpuliftError, match="the base records are of more than one set"):
        require_comparable([made("one"), made("two", **change)], [made("head")], None)


def test_a_gpu_model_may_be_several_cards_of_it() -> None:
    base = [made("one"), made("two", gpu__card="2")]
    head = [made(str(n), gpu__card=str(n), gpu__name="NVIDIA L4") for n in (3, 4)]
    assert require_comparable(base, head, require_factor("gpu-model")).declared
    with pytest.raises(GpuliftError, match=r"not comparable: gpu.name \(NVIDIA H200 in base"):
        require_comparable(base, head, require_factor("card"))


def sides(*cards: str, **changes: Any) -> list[Run]:
    """Runs of these cards."""
    return [made(card, gpu__card=card, **changes) for card in cards]


def test_across_card_a_side_may_be_several_cards_which_are_all_named() -> None:
    base, head = sides("1", "2"), [*sides("3"), *sides("4", gpu__vbios="96.2")]
    found = require_comparable(base, head, require_factor("card"))
    assert [str(one) for one in found.declared] == [
        "gpu.card (1 and 2 in base, 3 and 4 in head)"
    ], "only one of the four cards tells its VBIOS"
    assert "gpu.vbios" in found.one_sided
    more = [*sides("1", gpu__vbios="96.1"), *sides("2", gpu__vbios="96.2")]
    (_, vbios) = require_comparable(more, head, require_factor("card")).declared
    assert str(vbios) == "gpu.vbios (96.1 and 96.2 in base, 96.2 in head)"


@pytest.mark.parametrize("across", ["card", "gpu-model"])
def test_in_a_sample_of_cards_each_must_be_known(across: str) -> None:
    unknown = made("unknown", gpu__card="")
    with pytest.raises(GpuliftError, match="unknown of head does not tell its card") as caught:
        require_comparable(sides("1", "2"), [*sides("3"), unknown], require_factor(across))
    assert caught.value.exit_code == NOT_COMPARABLE


@pytest.mark.parametrize("across", [None, "driver", "commit", "torch"])
def test_only_card_and_gpu_model_take_several_cards_a_side(across: str | None) -> None:
    with pytest.raises(GpuliftError, match=r"more than one set: gpu\.card") as caught:
        require_comparable(sides("1", "2"), sides("3", "4"), require_factor(across))
    assert caught.value.exit_code == NOT_COMPARABLE
    assert ("are compared with --across card" in str(caught.value)) == (across is None)


@pytest.mark.parametrize("changes", [{"driver": "590"}, {"gpu__power_limit_w": 500.0}])
def test_cards_of_one_side_must_agree_in_all_else(changes: sample.Json) -> None:
    base = [*sides("1"), *sides("2", **changes)]
    with pytest.raises(GpuliftError, match="the base records are of more than one set") as caught:
        require_comparable(base, sides("3", "4"), require_factor("card"))
    assert "gpu.card" not in str(caught.value), "what is allowed is not complained of"


@pytest.mark.parametrize("head", [("2", "3"), ("1", "2"), ("2",)])
def test_a_card_in_both_samples_is_refused(head: tuple[str, ...]) -> None:
    with pytest.raises(GpuliftError, match=r"gpu\.card (1, )?2 is in base and in head") as caught:
        require_comparable(sides("1", "2"), sides(*head), require_factor("card"))
    assert caught.value.exit_code == NOT_COMPARABLE


def aged(name: str, minor: int, **changes: Any) -> Run:
    """A run of a schema below or above that in which processors got an id."""
    return made(name, top={"schema": f"1.{minor}"}, **changes)


# --- What records tell of their own techniques ---


@pytest.mark.parametrize(
    ("path", "value"),
    [("versions__nccl", "2.27"), ("scratch__filesystem", "ext4"), ("scratch__rotational", True)],
)
def test_what_some_techniques_alone_tell_parts_no_run_and_is_compared_where_both_know(
    path: str, value: Any
) -> None:
    fact = fact_of(path)
    told: dict[str, Any] = {path: value}
    run = both(made("head"), made("head", launch=1, **told))
    assert fact in compared(made("base"), run).one_sided
    assert compared(both(made("base", **told), made("base", launch=1)), run).equal[fact] == value
    other = False if value is True else "other"
    differs: dict[str, Any] = {path: other}
    text = refusal(made("base", **differs), run)
    assert f"{fact} ({other} in base, {value} in head)" in text
    mixed = both(made("head", **told), made("head", launch=1, **differs))
    assert f"head records are of more than one set: {fact} ({value}, then {other})" in refusal(
        made("base"), mixed
    )


def pair(run: str, first: str, second: str, model: sample.Json | None = None, **more: Any) -> Run:
    """A run of one technique on a GPU, and of one on two; `more` is of the second GPU alone."""
    gpu = {**sample.GPU_CONTEXT["gpu"], "card": first, **(model or {})}
    gpus = [gpu, {**gpu, "card": second, **more}]
    return both(made(run, gpu=gpu), made(run, launch=1, gpu=gpu, gpus=gpus))


@pytest.mark.parametrize("across", ["card", "gpu-model"])
def test_further_gpus_go_with_the_factors_of_the_first(across: str) -> None:
    model = {"name": "NVIDIA L4"} if across == "gpu-model" else {}
    base = [pair("base", "1", "2"), pair("two", "3", "4")]
    head = [pair("head", "5", "6", model), pair("four", "7", "8", model)]
    found = require_comparable(base, head, require_factor(across))
    shown = {one.fact: (one.base, one.head) for one in found.declared}
    assert shown["gpus.1.card"] == ("2 and 4", "6 and 8")
    assert ("gpus.1.name" in shown) == (across == "gpu-model")


def test_a_further_card_that_is_in_both_samples_is_refused() -> None:
    with pytest.raises(GpuliftError, match=r"gpu\.card 2 is in base and in head"):
        require_comparable([pair("b", "1", "2")], [pair("h", "3", "2")], require_factor("card"))


def test_a_further_card_that_changes_in_the_midst_of_a_run_is_refused() -> None:
    mixed = both(pair("head", "1", "2"), pair("head", "1", "3"))
    with pytest.raises(
        GpuliftError, match=r"head records are of more .* gpus\.1\.card \(2, then 3"
    ):
        require_comparable([pair("base", "4", "5")], [mixed], require_factor("card"))


def test_what_an_old_record_lacks_does_not_hide_what_parts_others() -> None:
    old = [aged("o1", 4), aged("o2", 4)]
    one, two = aged("nA", 6, host__cpu_id="25-17-1"), aged("nB", 6, host__cpu_id="25-1-1")
    for base in ([old[0], one], [one, old[0]]):
        for head in ([old[1], two], [two, old[1]]):
            with pytest.raises(GpuliftError, match=r"host\.cpu_id \(25-17-1 in base, 25-1-1 in"):
                require_comparable(base, head, None)
    for runs in permutations([old[0], one, two]):
        with pytest.raises(GpuliftError, match=r"base records are of more .* host\.cpu_id"):
            require_comparable(runs, [old[1]], None)


def test_what_one_side_knows_does_not_depend_on_the_order_of_its_runs() -> None:
    base = [aged("o1", 4), aged("n1", 6, host__cpu_id="25-17-1")]
    head = [aged("o2", 4), aged("n2", 6, host__cpu_id="25-17-1")]
    for runs in permutations(base):
        found = require_comparable(runs, head, None)
        assert (found.equal["host.cpu_id"], found.one_sided) == ("25-17-1", ())
        assert require_comparable(runs, head[:1], None).one_sided == ("host.cpu_id",)


# --- One row a rule: what is refused, or else what both share, declare, or one side alone knows ---

V28: dict[str, Any] = {"versions__torch": "2.10.0+cpu", "versions__libtorch": "2.10.0"}
NEW, NEWER = {"schema": "1.11"}, {"schema": "1.9"}
NO_GPU: dict[str, Any] = {"gpu": None, "gpu_missing": "no NVIDIA driver"}
WINDOWS = {"quick": True, "launches": 9, "arm_time_s": 1.0, "precision": 0.1, "seed": 5}
BEFORE_FLAGS = made("base", top=OLD, **UNTOLD)
UNKNOWN = made("head", build__commit="unknown", build__dirty=None)


@pytest.mark.parametrize(
    ("base", "head", "across", "expected"),
    [
        (made("base", host__memory_bytes=25276518400),
         made("head", host__memory_bytes=25276514304), None, {}),
        *(
            (made("base", host__memory_bytes=25276518400),
             made("head", host__memory_bytes=other), None,
             f"host.memory_bytes (25276518400 in base, {other} in head)")
            for other in (24 << 30, 10**400, "much")
        ),
        (made("base"), made("head", driver="1", host__kernel="2"), None,
         "driver (580.159.04 in base, 1 in head), host.kernel (6.1.0 in base, 2 in head)"),
        (made("base"), made("head", top={"method": "2"}), None, "method (1 in base, 2 in head)"),
        (made("base"), made("head", options=WINDOWS), None, {"gpu.card": "1a2b3c4d"}),
        (made("base"), made("head", options__clock="locked"), None, "options.clock ("),
        (made("base"), made("head", **NO_GPU), None, "gpu.name (NVIDIA H200 in base, none in"),
        (made("base", **NO_GPU), made("head", gpu=None, gpu_missing="no device"), None,
         {"gpu.name": "none"}),
        (BEFORE_FLAGS,
         made("head", build__flags="-O1", build__environment__CPATH="#1a2b3c4d"), None,
         ["build.flags", "build.environment.CPATH"]),
        (made("base", top=OLD, build__commit="unknown", **UNTOLD), UNKNOWN, None, {}),
        (BEFORE_FLAGS, UNKNOWN, None, "build.commit ("),
        (made("base"), made("head", gpu__vbios="96.2"), "card", "do not differ in card"),
        # Versions that arms note.
        (noting("base", torch="2.10.0+cpu", python="3.11.2", batch="1"),
         noting("head", torch="2.11.0+cpu", python="3.12.3", batch="2"), None,
         "not comparable: libraries.python (3.11.2 in base, 3.12.3 in head), libraries.torch"
         " (2.10.0+cpu in base, 2.11.0+cpu in head); if that is the question, add --across torch"),
        (noting("base", torch="2.10.0+cpu", python="3.11.2"),
         noting("head", torch="2.11.0+cpu", python="3.12.3"), "torch",
         ("libraries.python", "libraries.torch")),
        (*[both(noting("one", torch="2.11.0"), noting("two", torch="2.10.0+cu130"))] * 2, None,
         {"libraries.libtorch": "2.11.0", "libraries.torch": "2.10.0+cu130"}),
        (*[noting("head", schema="1.6", torch="2.11.0")] * 2, None, {"libraries.torch": "2.11.0"}),
        (noting("base", torch="2.11.0+cu128"), noting("head", torch="2.11.0+cu130"), None,
         "libraries.torch (2.11.0+cu128 in base, 2.11.0+cu130 in head); if that is the question,"
         " add --across torch"),
        (noting("base", torch="2.11.0+cu128"), noting("head", torch="2.11.0+cu130"), "torch",
         ("libraries.torch",)),
        (noting("base", torch="2.11.0", jax="0.11.2"), noting("head", torch="2.11.0"), None,
         {"libraries.libtorch": "2.11.0"}),
        (noting("base", torch="2.11.0", jax="0.11.2"), noting("head", torch="2.11.0"), None,
         ["libraries.jax"]),
        (noting("base", schema="1.6", torch="2.11.0+cpu", libtorch="2.10.0"), made("head", **V28),
         None, "libraries.torch (2.11.0+cpu in base, 2.10.0+cpu in head)"),
        (noting("base", schema="1.6", torch="2.11.0+cpu", libtorch="2.10.0"), made("head", **V28),
         "torch", {"libraries.libtorch": "2.10.0"}),
        # What one side's schema has alone.
        (made("base"), made("head", top=NEW, host__numa_nodes=2), None, ["host.numa_nodes"]),
        (made("base"), made("head", host__numa_nodes=2), None, "host.numa_nodes"),
        (made("base"), made("head", top=NEW, host__kernel=None), None,
         "host.kernel (6.1.0 in base, not recorded in head)"),
        (made("base"), made("head", top=NEWER, environment__CUDA_LAUNCH_BLOCKING="1"), None,
         "environment.CUDA_LAUNCH_BLOCKING"),
        # Further GPUs.
        (pair("base", "1", "2"), pair("head", "1", "2"), None, {"gpus.1.card": "2"}),
        (pair("base", "1", "2"), pair("head", "1", "3"), None,
         "not comparable: gpus.1.card (2 in base, 3 in head)"),
        (pair("base", "1", "2"), pair("head", "1", "2", power_limit_w=500.0), None,
         "gpus.1.power_limit_w (700.0 in base, 500.0 in head)"),
        (pair("base", "1", "2"), made("head", gpu__card="1"), None, ["gpus.1.name"]),
    ],
)  # fmt: skip
def test_what_two_records_may_differ_in(
    base: Run,
    head: Run,
    across: str | None,
    expected: str | dict[str, str] | tuple[str] | list[str],
) -> None:
    if isinstance(expected, str):
        with pytest.raises(GpuliftError) as caught:
            compared(base, head, across)
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    found = compared(base, head, across)
    if isinstance(expected, dict):
        assert found.equal.items() >= expected.items()
        assert across or found.declared == ()
    elif isinstance(expected, tuple):
        assert tuple(one.fact for one in found.declared) == expected
    else:
        assert {*expected} <= {*found.one_sided}


def test_a_note_of_a_newer_record_is_no_version() -> None:
    head = noting("head", schema="1.7", torch="2.11.0")
    assert "libraries.torch" not in compared(head, head).equal
