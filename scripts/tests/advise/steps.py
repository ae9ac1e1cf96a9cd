"""Steps made up for switches, and all that switches may change."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import arms, flags, waits  # noqa: E402
from torch import nn  # noqa: E402

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
BACKENDS = ("flash", "mem_efficient", "cudnn", "math")
SDPA = "aten::_scaled_dot_product_{}_attention"
FP32_PRODUCTS = {"aten::mm": 4}


def seen(device: Any = CPU, **changes: Any) -> Any:
    """One linear layer that AdamW trains, but for what is changed."""
    values: dict[str, Any] = {
        "modules": [nn.Linear(4, 4)],
        "operators": FP32_PRODUCTS,
        "calls": {},
        "compiled": False,
        "autocast": False,
        **changes,
    }
    if "optimizers" not in values:
        parameters = [one for module in values["modules"] for one in module.parameters()]
        values["optimizers"] = [torch.optim.AdamW(parameters, lr=0.1)]
    return arms.Seen(device=device, **values)


def named(name: str, watched: Any) -> Any:
    """The switch of that name."""
    return next(one for one in arms.switches(watched) if one.name == name)


def state(name: str, watched: Any) -> tuple[str, str]:
    """Of the switch of that name."""
    return named(name, watched).state(watched)  # type: ignore[no-any-return]


def scaled(scaler: Any, optimizer: Any, parameter: Any, factor: float) -> Any:
    """A step of mixed precision; the parameter behind it."""
    optimizer.zero_grad()
    scaler.scale((parameter * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return parameter.detach().clone()


def settings() -> dict[str, Any]:
    """All of the process that a switch may change."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    newer = (cuda.matmul, torch.backends.mkldnn.matmul, cudnn.conv, cudnn.rnn)
    patched = (torch.Tensor, nn.Module, torch.optim.Optimizer, torch.autocast, *waits.WAITS)
    names = (*waits.READS, "to", "cuda", "__call__", "zero_grad", "__enter__", "synchronize")
    return {
        "precision": [owner.fp32_precision for owner in newer],
        "older": [flags._products().older(), flags._convolutions().older()],
        "benchmark": cudnn.benchmark,
        "attention": [getattr(cuda, f"{one}_sdp_enabled")() for one in BACKENDS],
        "order": torch._C._get_sdp_priority_order(),
        "threads": torch.get_num_threads(),
        "functions": [vars(owner).get(name) for owner in patched for name in names],
        "stance": torch._dynamo.eval_frame._stance,
        "autocast": torch.is_autocast_enabled("cpu"),
        "anomaly": [torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()],
        "set_anomaly": torch.set_anomaly_enabled,
        "deterministic": [
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
            cudnn.deterministic,
        ],
    }
