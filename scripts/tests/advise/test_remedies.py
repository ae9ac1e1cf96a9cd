"""What to do for a change."""

from __future__ import annotations

import pytest

from gpulift.advise.remedies import kind, remedy
from tests.advise.made import FACTS


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("workers_8", "x: DataLoader(..., num_workers=8)"),
        ("malloc", "x: set it in the environment of the command"),
        ("threads", "x: call it ahead of the first step"),
        ("fused", "x: AdamW(..., fused=True)"),
        ("channels_last", "x: model.to(memory_format=torch.channels_last), and inputs likewise"),
        ("vary_1", "x: append it to the command"),
        ("batch_2x", "x"),
        ("bucket_100", "x: DistributedDataParallel(..., bucket_cap_mb=100)"),
        ("bucket_view", "x: DistributedDataParallel(..., gradient_as_bucket_view=True)"),
    ],
)
def test_the_line_of_a_change(name: str, line: str) -> None:
    assert remedy(name, "x", [FACTS], on_gpu=True) == line


def test_lines_name_the_device() -> None:
    assert 'autocast("cpu"' in remedy("bf16", "x", [], on_gpu=False)
    assert 'autocast("cuda"' in remedy("bf16", "x", [], on_gpu=True)


def test_changes_that_exclude_one_another() -> None:
    assert kind("workers_4") == kind("workers_8")
    assert kind("attention_cudnn") == kind("attention_flash")
    assert kind("vary_1") != kind("vary_2")
    assert kind("bucket_100") != kind("bucket_view")
