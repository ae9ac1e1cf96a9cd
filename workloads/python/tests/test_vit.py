"""The vision transformer is that of another implementation, and its work is what torch counts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import training, vit  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

SIZE = vit.VIT_SIZES["vit_toy"]
OTHERS = {  # names of parameters in torchvision's, by those here
    "patches": "conv_proj",
    "places": "encoder.pos_embedding",
    "ln.": "encoder.ln.",
    "head.": "heads.head.",
    "layers.": "encoder.layers.encoder_layer_",
    "in_proj.": "self_attention.in_proj_",
    "out_proj": "self_attention.out_proj",
    "mlp_in": "mlp.0",
    "mlp_out": "mlp.3",
}


def other_name(name: str) -> str:
    for mine, theirs in OTHERS.items():
        if name.startswith(mine) or f".{mine}" in name:
            name = name.replace(mine, theirs)
    return name


def torchvision_model() -> Any:
    models = pytest.importorskip("torchvision").models
    return models.VisionTransformer(
        SIZE.pixels, SIZE.patch, SIZE.layers, SIZE.heads, SIZE.width, 4 * SIZE.width, num_classes=10
    ).double()


def test_loss_and_gradients_are_those_of_torchvision() -> None:
    torch.manual_seed(3)
    other = torchvision_model()
    mine = vit.Vit(SIZE).double()
    theirs = dict(other.named_parameters())
    with torch.no_grad():
        for name, parameter in mine.named_parameters():
            parameter += 0.1 * torch.randn_like(parameter)  # so that all of them matter
            theirs[other_name(name)].copy_(parameter)
    images, target = training.make_batch("vit_toy", 3)
    losses = [training.Loss(model)(images.double(), target) for model in (mine, other)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-9)
    for name, parameter in mine.named_parameters():
        assert training.distance(parameter.grad, theirs[other_name(name)].grad) < 1e-9, name


def test_the_large_one_has_the_parameters_of_the_paper() -> None:
    with torch.device("meta"):
        model = vit.Vit(vit.VIT_SIZES["vit_l16"])
    assert sum(one.numel() for one in model.parameters()) == 304_326_632


def test_work_is_what_torch_counts() -> None:
    # Of its fused attention on a processor torch counts nothing.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        training.Loss(vit.Vit(SIZE))(*training.make_batch("vit_toy", 1)).backward()
    assert counter.get_total_flops() == SIZE.flops_of_row()
