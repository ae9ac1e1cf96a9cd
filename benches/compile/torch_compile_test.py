"""What a mode of torch.compile needs, and which has to be asked for."""

from __future__ import annotations

from types import ModuleType

import pytest
from gpulift_worker import Skip


def test_the_mode_whose_graphs_are_a_gpus_is_not_measured_as_another(technique: ModuleType) -> None:
    with pytest.raises(Skip, match="without one it is default"):
        technique.make("reduce_overhead", {"model": "gpt_toy"}, 1, None)


def test_the_search_of_minutes_is_made_only_where_it_is_asked_for(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(_model: str, _seed: int, _gpu: None, mode: str, *, always_cold: bool) -> None:
        assert always_cold
        asked.append(mode)

    monkeypatch.setattr(technique, "make_arm", noted)
    monkeypatch.setenv("GPULIFT_ON_REQUEST", "other")
    with pytest.raises(Skip, match="not asked for: its search takes 5 to 8 minutes") as skipped:
        technique.make("max_autotune", {"model": "gpt_toy"}, 1, None)
    assert skipped.value.remedy == "ask for it: GPULIFT_ON_REQUEST=max_autotune"
    technique.make("default", {"model": "gpt_toy"}, 1, None)
    monkeypatch.setenv("GPULIFT_ON_REQUEST", "other,max_autotune")
    technique.make("max_autotune", {"model": "gpt_toy"}, 1, None)
    assert asked == ["default", "max-autotune"]
