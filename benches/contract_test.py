"""What every technique in Python keeps to in its smallest case, where there is no GPU.

Its arms are forks of a process that has loaded torch, spoken to as the engine does, since an
interpreter for each would load it for seconds. `core/host/contract_test.cpp` has the rest of the
contract, and in the engine's own processes what is left out here.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import rank_group
from gpulift_manifest import manifest_of

BENCHES = Path(__file__).parent
TESTING = BENCHES.parent / "core" / "host" / "testing"
ROOFS = json.loads((BENCHES.parent / "core/registers/roofs.json").read_bytes())["roofs"]
LIMIT_S = 900  # of an arm, on a machine that is busy
SAME_VALUE = 0.01  # of values, where the script does not say, as in core/host/measure/trial.cpp
OTHER_SEED = 8
# Lines that make a smallest case smaller where a processor would repeat the same many times. What a
# card measures is not altered: core/host/contract_test.cpp.
FEW_IMAGES = """
from dataclasses import replace
from functools import partial
from gpulift_work.training import TWINS
TWINS["resnet18"] = replace(TWINS["resnet18"], batch=4)
technique.stored = partial(technique.stored, scale=0.25)
technique.FILES = 64
"""
ONE_LAYER = """
from dataclasses import replace
from gpulift_work.training import GPT_SIZES, LLAMA_SIZES, TEXT_SIZES
for sizes in (GPT_SIZES, LLAMA_SIZES, TEXT_SIZES):
    sizes |= {name: replace(one, layers=1) for name, one in sizes.items() if name.endswith("_toy")}
"""
ONE_RATE = """
technique.courses.FACTORS, technique.courses.LOOKS, technique.SEEDS = (1.0,), 1, 2
"""
SMALLER = {
    "batch/large_batch_optimizer": f"{ONE_RATE}technique.SAMPLES = {{'conv_toy': 2048}}",
    "compile/warm_start": f"{ONE_LAYER}technique.IMPORTS = 'print(1, 1)'",
    "distributed/launcher": "technique.MODEL = 'gpt_toy'",
    "host/omp_threads": FEW_IMAGES,
    "input/columnar": "technique.PART_ROWS = 5000",
    "input/packed_files": "technique.MEBIBYTE >>= 4",
    "input/prefetch": f"{FEW_IMAGES}technique.BATCHES = {{'resnet18': 3}}",
    "input/simd_images": "technique.IMAGES = 2",
    "input/workers": FEW_IMAGES,
    "optimizer/muon": f"{ONE_LAYER}{ONE_RATE}technique.UPDATES = {{'gpt_bytes_toy': 200}}",
    "state/format": "technique.SMALL = (1000, (32, 32))",
}
READ_LATE = ("NCCL_", "TORCH_SYMM_MEM_")  # when ranks meet; most are read while libraries load
# An arm that is neither stepped nor checked, which is what takes long.
MADE_ALONE = """
from gpulift_worker import Arm

def make(*given):
    made = technique.make(*given)
    work = {"bytes": made.bytes, "flops": made.flops, "items": made.items}
    return Arm(step=lambda: [made], error=lambda: 0.0, **work)
"""
SCRIPTS = {
    f"{one.parent.name}/{one.stem}": one
    for one in sorted(BENCHES.glob("*/*.py"))
    if not one.stem.endswith("_test")
    and not any(one.with_suffix(ending).exists() for ending in (".cpp", ".cu"))
}

Json = dict[str, Any]


def left_to_the_engine(manifest: Mapping[str, Any]) -> str:
    """Why a fork will not do; empty where it does. contract_test.cpp says the same."""
    if manifest["gpus"] > 0:
        return "it needs a GPU"
    names = [name for variables in manifest["environment"].values() for name in variables]
    if manifest["preload"] or not all(name.startswith(READ_LATE) for name in names):
        return "its arms have environments of their own from their start on"
    return ""


def smallest_point(manifest: Mapping[str, Any]) -> Json:
    """The case whose numbers are smallest, of a toy model if there is one, as contract_test.cpp
    takes it."""

    def size(case: Mapping[str, Any]) -> float:
        found = 1e18 if case["regime"] == "sustained" else 1.0
        for value in case["point"].values():
            if isinstance(value, int):
                found *= max(1, value)
            elif not value.endswith("_toy"):
                found *= 1e6
        return found

    return dict(min(manifest["cases"], key=size)["point"])


def answers_of(
    script: Path, manifest: Mapping[str, Any], point: Json, scratch: Path
) -> dict[str, list[Json]]:
    """What the ranks of each arm say of their check, or why they skip it. Each other arm has taken
    a window."""
    found = {}
    for arm in manifest["arms"]:
        ranks = manifest["ranks"].get(arm, 1)
        count = point[ranks] if isinstance(ranks, str) else ranks
        variables = {"GPULIFT_SCRATCH": str(scratch), **manifest["environment"].get(arm, {})}
        with rank_group.RankGroup(script, ranks=count, variables=variables) as group, ended(group):
            found[arm] = group.hello(arm, point)
            if not reason_of(found[arm]):
                require_window(arm, found[arm], group)
    return found


@contextlib.contextmanager
def ended(group: rank_group.RankGroup) -> Iterator[None]:
    """Ends ranks that do not answer, whose answers then are empty."""

    def end() -> None:
        for one in group.ranks:
            one.process.kill()

    watch = threading.Timer(LIMIT_S, end)
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def reason_of(answers: Iterable[Json]) -> str:
    """Why the arm is skipped; empty where it is not."""
    return next((one["skipped"] for one in answers if "skipped" in one), "")


def require_window(arm: str, answers: Iterable[Json], group: rank_group.RankGroup) -> None:
    """Of an arm that was checked and has a cost."""
    for one in answers:
        assert {"check_error", "value"} & one.keys(), f"{arm} was compared with nothing: {one}"
        assert one.get("check_error") != "not a number", f"{arm} is not a number"
        cost = one.get("cost", {})
        assert any(cost.get(kind, 0) > 0 for kind in ("bytes", "flops", "items")), f"{arm}: {one}"
        assert cost["roof"] in {"", *ROOFS}, f"{arm}: {cost['roof']}"
    for window in group.window(1):
        assert window.get("host_s", 0) > 0, f"{arm}: {window}"


def require_same_work(
    script: Path,
    manifest: Mapping[str, Any],
    point: Json,
    found: Mapping[str, list[Json]],
    folder: Path,
) -> None:
    """A launch with another seed has other values, and as much to do. Of the first arm that starts:
    what a seed draws, all arms share."""
    arm = next((arm for arm, answers in found.items() if not reason_of(answers)), None)
    if arm is None:
        return
    scratch = {"GPULIFT_SCRATCH": str(folder / "other_case")}
    with (
        rank_group.RankGroup(
            rank_group.altered(folder, script, MADE_ALONE),
            ranks=len(found[arm]),
            variables=scratch | manifest["environment"].get(arm, {}),
            seed=OTHER_SEED,
        ) as group,
        ended(group),
    ):
        others = group.hello(arm, point)
    for one, other in zip(found[arm], others, strict=True):
        work = {kind: one["cost"][kind] for kind in ("bytes", "flops", "items")}
        assert work.items() <= other.get("cost", {}).items(), (
            f"{arm}: a seed changes its work: {other}"
        )


def require_same(manifest: Mapping[str, Any], found: Mapping[str, list[Json]]) -> None:
    """Every arm that was not skipped is within its tolerance of something. Skips the test where no
    other is left to compare it with."""
    checked = {arm: answers for arm, answers in found.items() if not reason_of(answers)}
    values = {arm: answers[0]["value"] for arm, answers in checked.items() if "value" in answers[0]}
    first = next(iter(values.values()), 0.0)
    alone = ""
    for arm, answers in checked.items():
        errors = [one["check_error"] for one in answers if "check_error" in one]
        if len(values) > 1 and arm in values:
            errors.append(abs(values[arm] - first) / max(abs(first), sys.float_info.min))
        if not errors and len(checked) < len(found):
            alone = arm
            continue
        assert errors, f"{arm} was compared with nothing"
        tolerance = answers[0].get("tolerance", manifest["check"].get("tolerance", SAME_VALUE))
        for error in errors:
            assert error <= tolerance, f"{arm}: error {error}, tolerance {tolerance}"
    if alone:
        reason = next(filter(None, map(reason_of, found.values())))
        pytest.skip(f"{alone} has nothing to be compared with: {reason}")


@pytest.mark.parametrize("technique", SCRIPTS)
def test_every_arm_gives_the_same_result_in_its_smallest_case(
    technique: str, tmp_path: Path
) -> None:
    script = SCRIPTS[technique]
    manifest = manifest_of(technique, script)
    if technique in SMALLER:
        script = rank_group.altered(tmp_path, script, SMALLER[technique])
    if left := left_to_the_engine(manifest):
        pytest.skip(f"{left}: core/host/contract_test.cpp starts it")
    point = smallest_point(manifest)
    found = answers_of(script, manifest, point, tmp_path / "case")
    require_same(manifest, found)
    require_same_work(script, manifest, point, found, tmp_path)
    reasons = [reason_of(answers) for answers in found.values()]
    if all(reasons) or (reasons[0] and not manifest["ceiling"]):
        pytest.skip(reasons[0])


def test_a_seed_that_changes_the_work_of_a_step_is_found(tmp_path: Path) -> None:
    script = tmp_path / "lengths.py"
    script.write_text(
        "from gpulift_worker import Arm\nARMS = ['one', 'other']\n"
        "def make(arm, point, seed, gpu):\n"
        "    items = seed if point['drawn'] else 7\n"
        "    return Arm(step=lambda: None, error=lambda: 0.0, bytes=2, items=items)\n"
    )
    manifest = manifest_of("testing/lengths", script)
    for drawn in (0, 1):
        found = answers_of(script, manifest, {"drawn": drawn}, tmp_path / "case")
        if drawn:
            with pytest.raises(AssertionError, match="one: a seed changes its work"):
                require_same_work(script, manifest, {"drawn": drawn}, found, tmp_path)
        else:
            require_same_work(script, manifest, {"drawn": drawn}, found, tmp_path)


def test_an_arm_has_its_own_environment(tmp_path: Path) -> None:
    script = tmp_path / "named.py"
    script.write_text(
        "import os\nfrom gpulift_worker import Arm\n"
        "ARMS = ['plain', 'named']\n"
        "ENVIRONMENT = {'named': {'NCCL_PROTO': 'LL'}}\n"
        "def make(arm, point, seed, gpu):\n"
        "    kept = os.environ.get('NCCL_PROTO') == ENVIRONMENT.get(arm, {}).get('NCCL_PROTO')\n"
        "    return Arm(step=lambda: None, error=lambda: float(not kept), items=1)\n"
    )
    manifest = {
        **manifest_of("testing/named", TESTING / "script.py"),
        "arms": ["plain", "named"],
        "environment": {"named": {"NCCL_PROTO": "LL"}},
        "ranks": {},
    }
    assert not left_to_the_engine(manifest | {"gpus": 0, "preload": {}})
    found = answers_of(script, manifest, {}, tmp_path)
    assert {arm: one["check_error"] for arm, (one,) in found.items()} == {"plain": 0, "named": 0}


@pytest.mark.parametrize("name", ["OMP_PLACES", "NCCLX"])
def test_variables_that_are_read_early_are_left_to_the_engine(name: str) -> None:
    manifest = {"gpus": 0, "preload": {}, "environment": {"bound": {name: "cores"}}}
    assert "environments of their own" in left_to_the_engine(manifest)


@pytest.mark.parametrize("gives", ["near", "far", "nan", "nothing"])
def test_what_differs_and_what_is_compared_with_nothing_is_found(
    gives: str, tmp_path: Path
) -> None:
    script = TESTING / "script_values.py"
    manifest = manifest_of("testing/script_values", script)
    found = {}
    expected = {
        "far": "error 0.05",
        "nan": "other is not a number",
        "nothing": "compared with nothing",
    }

    def look() -> None:
        found.update(answers_of(script, manifest, {"gives": gives}, tmp_path))
        require_same(manifest, found)

    if gives not in expected:
        look()
        assert found["other"][0]["value"] == 201
        return
    with pytest.raises(AssertionError, match=expected[gives]):
        look()


def test_an_arm_that_alone_can_start_is_compared_with_nothing_and_that_is_a_skip() -> None:
    found: dict[str, list[Json]] = {"first": [{"skipped": "no name"}], "other": [{"value": 1.0}]}
    with pytest.raises(pytest.skip.Exception, match=r"other has nothing .*: no name"):
        require_same({"check": {}}, found)
    found["third"] = [{"check_error": 0.5, "value": 1.0}]
    with pytest.raises(AssertionError, match=r"third: error 0\.5"):
        require_same({"check": {}}, found)


def test_an_error_is_none_that_may_be_skipped(tmp_path: Path) -> None:
    script = TESTING / "script.py"
    manifest = manifest_of("testing/script", script)
    with pytest.raises(AssertionError, match="raised on purpose"):
        answers_of(script, manifest, {"does": "raises"}, tmp_path)
