"""Linear layers in FP8 by the library people use."""

from __future__ import annotations

from torch import nn


def convert_to_fp8(model: nn.Module, recipe: str = "tensorwise") -> None:
    """Its linear layers multiply in FP8, scaled as it comes by a recipe of torchao's. The output
    layer, whose weight is the embedding's, stays in BF16, as is usual."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe))
