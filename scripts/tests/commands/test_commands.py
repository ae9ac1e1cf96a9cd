"""What several commands share."""

from __future__ import annotations

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.records.find import model_named

MODELS = ["cpu-amd-epyc", "nvidia-a100-sxm4-80gb", "nvidia-h200", "nvidia-l40s"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia-h200", "nvidia-h200"),
        ("NVIDIA H200", "nvidia-h200"),
        ("h200", "nvidia-h200"),
        ("A100", "nvidia-a100-sxm4-80gb"),
        ("AMD EPYC", "cpu-amd-epyc"),
        ("NVIDIA L4", None),
        ("NVIDIA H20", None),
        ("A10", None),
        ("-", None),
    ],
)
def test_a_model_goes_by_whole_words_of_its_name(name: str, expected: str | None) -> None:
    assert model_named(name, MODELS) == expected


def test_a_model_that_is_listed_twice_is_one() -> None:
    assert model_named("h200", [*MODELS, *MODELS]) == "nvidia-h200"


def test_a_part_of_several_names_is_refused() -> None:
    with pytest.raises(GpuliftError, match="nvidia is a part of nvidia-a100-sxm4-80gb, nvidia-h20"):
        model_named("nvidia", MODELS)
