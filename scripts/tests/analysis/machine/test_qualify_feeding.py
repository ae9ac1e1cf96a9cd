"""What `qualify` says of the host's loading, from records of the ladder."""

from __future__ import annotations

from typing import Any

import pytest

from gpulift.analysis.machine.feeding import answers
from tests.figures import summary
from tests.sample import CPU_CONTEXT, Json, arm, launches, skipped_arm

CASE: Json = {"model": "emulated", "cores": "all"}
NOTES = {"cores": "2", "batch": "16", "step": "emulated: sleeps 5 ms"}
EXACT: Json = {"noise": 0.0, "launch_noise": 0.0}
LADDER = {"naive": 400, "workers": 800, "tensors": 1000, "pinned": 1500, "uint8": 1550}


def rung(name: str, per_s: float, **metrics: float) -> Json:
    """An arm that trains on so many images a second, of which a core loads half."""
    told = {"loader_cpu_s_per_image": 2 / per_s, "step_alone_s": 5e-3, **metrics}
    cost = {"items": 32.0, "item": "image"}
    return arm(name, 32 / per_s, cost=cost, metrics=told, **EXACT)


def ladder(case: Json = CASE, **other: Any) -> list[Json]:
    """Three launches of it, without a GPU."""
    arms = [rung(name, per_s) for name, per_s in LADDER.items()]
    top = {"notes": NOTES, "context": CPU_CONTEXT, **other}
    return launches(3, "input/pipeline", case, arms, **top)


def test_it_says_how_much_with_how_many_cores_which_rung_and_what_the_step_needs() -> None:
    (said,) = answers(summary(ladder()))
    assert said.startswith("ResNet-50: 2 cores feed ")
    assert " images/s (uint8), the naive loop " in said
    assert "workers brings most, 2.00×." in said
    # 16 images in 5 ms are 3,200 a second, of which a core makes 775.
    assert said.endswith("takes 3200 images/s: that needs some 5 cores like these.")


def test_a_step_that_is_fed_says_so() -> None:
    arms = [rung("naive", 400), rung("workers", 3150)]
    made = launches(3, "input/pipeline", CASE, arms, notes=NOTES, context=CPU_CONTEXT)
    (said,) = answers(summary(made))
    assert said.endswith("takes 3200 images/s: it is not short of data.")


def test_each_number_of_cores_has_its_line_and_models_that_are_not_named_none() -> None:
    four = {**CASE, "cores": 4}
    made = [
        *ladder(),
        *ladder(four, notes={**NOTES, "cores": "4"}),
        *ladder({**CASE, "model": "resnet18"}),
        *ladder({**CASE, "model": "vit_l16"}),
    ]
    assert [said.split(" feed ")[0] for said in answers(summary(made))] == [
        "ResNet-50: 2 cores",
        "ResNet-50: 4 cores",
        "ViT-L/16: 2 cores",
    ]


def test_older_records_tell_images_a_processor_second() -> None:
    old = {"loader_cpu_s_per_image": 0.0, "loader_images_per_cpu_s": 775}
    arms = [rung("naive", 400, **old), rung("workers", 1550, **old)]
    case = {**CASE, "model": "resnet50"}
    made = launches(3, "input/pipeline", case, arms, notes=NOTES, context=CPU_CONTEXT)
    (said,) = answers(summary(made))
    assert said.endswith("that needs some 5 cores like these.")


@pytest.mark.parametrize("notes", [{}, {"batch": "many"}])
def test_records_that_do_not_tell_get_no_line(notes: dict[str, str]) -> None:
    assert answers(summary(ladder(notes=notes))) == []


def test_one_rung_alone_is_no_ladder_and_other_techniques_are_none() -> None:
    alone = [rung("naive", 400), skipped_arm("workers", "no shared memory")]
    made = launches(3, "input/pipeline", CASE, alone, notes=NOTES, context=CPU_CONTEXT)
    assert answers(summary(made)) == []
    other = launches(3, "input/decode", CASE, [rung("a", 1), rung("b", 2)], notes=NOTES)
    assert answers(summary(other)) == []
