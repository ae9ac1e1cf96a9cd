"""What a mode of torch.compile needs."""

from __future__ import annotations

from types import ModuleType

import pytest
from gpulift_worker import Skip


def test_the_mode_whose_graphs_are_a_gpus_is_not_measured_as_another(technique: ModuleType) -> None:
    with pytest.raises(Skip, match="without one it is default"):
        technique.make("reduce_overhead", {"model": "gpt_toy"}, 1, None)
