"""distributed/gradient_compression: as many bits as an arm says, and no fewer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.distributed import Group  # noqa: E402
from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402
from testing.rank_group import RankGroup  # noqa: E402

Altered = Callable[[Path, str], Path]
Hellos = Callable[..., list[dict[str, Any]]]
SCRIPT = Path(__file__).with_name("gradient_compression.py")
TOY = {"model": "gpt_toy", "link": "gloo"}
SHORT = "technique.SEEDS, technique.LOSS_UPDATES, technique.EXCHANGES = 1, 5, 32\n"
TOLERANCES = {"fp32": 1e-5, "bf16_hook": 5e-3, "int8": 0.03, "powersgd_4": 0.2, "local_steps": 1e-3}

compression = load(__file__)


@pytest.mark.parametrize(
    ("arm", "least"),
    [
        ("fp32", 0.0),
        ("bf16_hook", 1e-3),
        ("int8", 5e-3),
        ("powersgd_4", 0.01),
        ("local_steps", 0.0),
    ],
)
def test_what_is_exchanged_is_as_exact_as_the_arm_says(
    altered: Altered, arm: str, least: float
) -> None:
    with RankGroup(altered(SCRIPT, SHORT)) as group:
        hellos = group.hello(arm, TOY)
        windows = group.window(1)
        assert group.exit_codes() == [0, 0]
    for hello, window in zip(hellos, windows, strict=True):
        assert least < hello["check_error"] < TOLERANCES[arm]
        assert hello.get("tolerance", 1e-5) == pytest.approx(TOLERANCES[arm])
        assert hello["cost"]["items"] == 4 * 2 * 8 * 32, "tokens of four updates on two ranks"
        assert window["host_s"] > 0
        assert ("lost_share" in hello["metrics"]) == (arm != "fp32")
        assert ("average_s" in hello["metrics"]) == (arm == "local_steps")
        assert abs(hello["metrics"].get("lost_share", 0)) < 1


@pytest.mark.parametrize(
    ("arm", "fault", "least"),
    [
        ("int8", "technique.LARGEST_INT8 = 7", 0.05),
        ("local_steps", "technique.PeriodicModelAverager.average_parameters = skip", 0.9),
        ("powersgd_4", "technique.powerSGD_hook.PowerSGDState = forgetful", 0.5),
    ],
)
def test_what_is_lost_on_the_way_is_found(
    altered: Altered, hellos_of_ranks: Hellos, arm: str, fault: str, least: float
) -> None:
    lines = f"""
whole = technique.powerSGD_hook.PowerSGDState
forgetful = lambda **given: whole(use_error_feedback=False, **given)
skip = lambda self, parameters: None
technique.require_same_on_all_ranks = lambda *given: None
{fault}
"""
    for hello in hellos_of_ranks(altered(SCRIPT, SHORT + lines), arm, TOY):
        assert hello["check_error"] > least > TOLERANCES[arm]


def test_ranks_that_hold_other_weights_after_an_average_are_found(
    altered: Altered, hellos_of_ranks: Hellos
) -> None:
    fault = "technique.PeriodicModelAverager.average_parameters = lambda self, parameters: None"
    hellos = hellos_of_ranks(altered(SCRIPT, SHORT + fault), "local_steps", TOY)
    assert any("does not hold what rank 0 holds" in hello.get("failed", "") for hello in hellos)


def test_what_takes_too_long_or_has_no_gpu_is_skipped() -> None:
    for point in ({"model": "gpt2", "link": "gloo"}, {"model": "llama_1b", "link": "tcp"}):
        with pytest.raises(Skip, match="seconds"):
            compression.make("fp32", point, 7, 0)
    with pytest.raises(Skip, match="a GPU each"):
        compression.make("fp32", {"model": "gpt_toy", "link": "tcp"}, 7, None)


def test_updates_of_a_loss_end_with_an_average() -> None:
    assert (compression.LOSS_UPDATES - 1) % compression.PERIOD == 0


def test_an_exchange_over_tcp_uses_no_memory_that_ranks_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NCCL_SHM_DISABLE", "NCCL_NET"):
        monkeypatch.setenv(name, "")
    alone = Group(0, 1, torch.device("cpu"), 1)
    joined = {"host": alone}  # alone: without the other GPU's memory
    monkeypatch.setattr(compression, "join", lambda link, gpu: joined[link])
    assert compression.join_by("tcp", 0) == alone
    assert compression.os.environ["NCCL_SHM_DISABLE"] == "1"
    assert compression.os.environ["NCCL_NET"] == "Socket"
    assert set(manifest(__file__)["ranks"].values()) == {2}
