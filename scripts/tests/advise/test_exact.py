"""The step in FP32."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe.exact import Exact  # noqa: E402

from tests.advise import steps  # noqa: E402

pytestmark = [pytest.mark.usefixtures("unchanged"), pytest.mark.world]


def product_type() -> Any:
    """Of a product under the script's autocast."""
    with torch.autocast("cpu", torch.bfloat16):
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


def test_neither_autocast_nor_tf32() -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    raw = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    exact = Exact(steps.seen())
    exact.flip()
    during = product_type(), matmul.fp32_precision, cudnn.allow_tf32
    exact.back()
    assert during == (torch.float32, "ieee", False)
    assert (product_type(), matmul.fp32_precision) == (torch.bfloat16, "tf32")
    matmul.fp32_precision = raw


@pytest.mark.parametrize("compiled", [False, True])
def test_what_was_compiled_with_them(compiled: bool) -> None:
    def stance() -> str:
        return str(torch._dynamo.eval_frame._stance.stance)

    with torch.compiler.set_stance("eager_on_recompile"):
        exact = Exact(steps.seen(compiled=compiled))
        exact.flip()
        during = stance()
        exact.back()
        assert (during == "force_eager") is compiled
        assert stance() == "eager_on_recompile"
