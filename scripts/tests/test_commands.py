"""What several commands share."""

from __future__ import annotations

import pytest

from gpulift.commands import models_named

MODELS = ["cpu-amd-epyc", "nvidia-a100-sxm4-80gb", "nvidia-h200", "nvidia-l40s"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia-h200", ["nvidia-h200"]),
        ("NVIDIA H200", ["nvidia-h200"]),
        ("h200", ["nvidia-h200"]),
        ("A100", ["nvidia-a100-sxm4-80gb"]),
        ("AMD EPYC", ["cpu-amd-epyc"]),
        ("nvidia", MODELS[1:]),
        ("NVIDIA L4", []),
        ("NVIDIA H20", []),
        ("A10", []),
        ("-", []),
    ],
)
def test_a_model_goes_by_whole_words_of_its_name(name: str, expected: list[str]) -> None:
    assert models_named(name, MODELS) == expected
