"""What every technique that is built declares, as its manifest says it: one process, no module is
loaded. `core/host/contract_test.cpp` holds the manifests against the modules, and runs the arms.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from gpulift.analysis.today import FILE
from tools.today import made

RESULTS = Path(__file__).parents[1] / "results"
MODULES = Path(os.environ.get("GPULIFT_BUILD") or Path(__file__).parents[1] / "build") / "modules"
WORD = re.compile(r"[a-z0-9_]+")
FEW_CASES = 6  # all of which may be quick

Manifest = dict[str, Any]


def declared() -> list[Manifest]:
    """All that say more than why they were not built."""
    manifests = [json.loads(file.read_bytes()) for file in sorted(MODULES.glob("*.json"))]
    return [manifest for manifest in manifests if not manifest.get("unavailable")]


@pytest.fixture(name="manifest", params=declared(), ids=lambda manifest: str(manifest["id"]))
def manifest_of_a_technique(request: pytest.FixtureRequest) -> Manifest:
    """manifest: of each technique."""
    manifest: Manifest = request.param
    return manifest


def test_some_techniques_are_built() -> None:
    assert declared(), f"{MODULES} has no manifest of a technique"


def test_what_techniques_are_today_is_known_where_nothing_is_built() -> None:
    written = (RESULTS / FILE).read_text(encoding="utf-8")
    hint = f"stale: python -m tools.today, in scripts/, writes {FILE} anew"
    assert written == made(RESULTS, MODULES), hint


def test_it_says_what_it_asks_and_expects(manifest: Manifest) -> None:
    assert manifest["question"].endswith("?")
    assert manifest["expectation"]


def test_it_has_a_baseline_and_something_to_compare_and_no_name_twice(manifest: Manifest) -> None:
    arms = manifest["arms"]
    assert len(arms) >= (1 if manifest["ceiling"] else 2)
    assert len(set(arms)) == len(arms)
    assert [arm for arm in arms if not WORD.fullmatch(arm)] == [], "is no snake_case word"


def test_it_has_beside_its_baseline_an_arm_that_is_no_control(manifest: Manifest) -> None:
    others, controls = set(manifest["arms"][1:]), set(manifest["controls"])
    assert controls <= others
    assert manifest["ceiling"] or controls < others


def test_it_has_two_cases_where_the_sign_can_flip(manifest: Manifest) -> None:
    ids = [case["id"] for case in manifest["cases"]]
    assert len(ids) >= (1 if manifest["ceiling"] else 2)
    assert len(set(ids)) == len(ids)


def test_it_predicts_numbers_of_its_own_arms_and_cases(manifest: Manifest) -> None:
    assert manifest["predict"] or manifest["ceiling"] or manifest["integrity"], "predicts no number"
    points = [case["point"].items() for case in manifest["cases"]]
    for prediction in manifest["predict"]:
        assert prediction["arm"] in manifest["arms"], f"predict names {prediction['arm']}, no arm"
        asked = prediction["case"].items()
        assert any(asked <= point for point in points), f"predict asks for {dict(asked)}, no case"
        ranges = [prediction[key] for key in ("speedup", "step_time_s") if key in prediction]
        assert len(ranges) == 1, f"predict of {prediction['arm']} says {len(ranges)} things"
        assert 0 < ranges[0][0] <= ranges[0][1], f"predict of {prediction['arm']}: {ranges[0]}"


@pytest.mark.parametrize("cache", ["l2", "page_cache"])
def test_it_says_what_a_step_finds_in_the_cache(manifest: Manifest, cache: str) -> None:
    assert manifest[cache] in {"none", "cold", "warm", "by_size", "by_case"}, f"{cache} is not said"


def test_quick_is_the_part_that_tells_most(manifest: Manifest) -> None:
    cases = manifest["cases"]
    quick = sum(case["quick"] for case in cases)
    # Interpreters that load a framework for every launch, and models that train for their check,
    # take longer than all other quick cases. A ceiling of LibTorch's is the roof of such models.
    roof_of_models = manifest["ceiling"] and "torch" in manifest
    if not (manifest["python"] or manifest["whole_steps"] or roof_of_models):
        assert quick > 0
    assert len(cases) <= FEW_CASES or quick < len(cases)


def test_the_script_of_its_python_arms_lies_beside_it(manifest: Manifest) -> None:
    script = MODULES / f"{manifest['id'].replace('/', '.')}.py"
    assert script.exists() == bool(manifest["python"])
