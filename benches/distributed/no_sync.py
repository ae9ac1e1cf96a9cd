"""distributed/no_sync: gradients of several micro-batches, exchanged each time or once."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.distributed import MODELS, Replica, arm_of, join
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "With gradient accumulation, what is it worth to exchange gradients after the last "
    "micro-batch alone?",
    "expectation": "GPT-2, 8 rows of 1024 tokens in all. Over NVLink an exchange of 498 MB takes "
    "1.6 ms and hides behind a backward pass of 6 ms (4 micro-batches of 2 rows): three of four "
    "saved give 1.02, up to 1.2 where launches set the pace and the hooks' calls count. Through "
    "the host each takes 19 ms, three times what a micro-batch computes: 4 x 19 ms against 39 + "
    "13: 1.5 with 4 micro-batches, 2.5 with 8. ResNet-18 over Gloo: 31 ms each, beside micro-"
    "batches of 40: 1.4.",
    "predict": [
        {"case": {"link": "nvlink", "micro_batches": 4}, "speedup": {"exchange_last": [1.02, 1.2]}},
        {"case": {"link": "host", "micro_batches": 4}, "speedup": {"exchange_last": [1.35, 1.65]}},
        {"case": {"link": "host", "micro_batches": 8}, "speedup": {"exchange_last": [2.25, 2.75]}},
        {"case": {"link": "gloo"}, "speedup": {"exchange_last": [1.26, 1.54]}},
    ],
    "claims": [],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["exchange_each", "exchange_last"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {"link": ["nvlink", "host", "gloo"], "micro_batches": [4, 8]},
    "check": {
        "meaning": "gradients of FP32 against those of all ranks' rows in FP64, relative; ranks "
        "hold the same bits",
        "tolerance": 1e-5,
    },
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each of two ranks, which takes its rows in parts."""
    link = str(point["link"])
    group = join(link, gpu)
    replica = Replica(MODELS[link], group, seed, micro_batches=int(point["micro_batches"]))
    replica.wrap()
    replica.exchanges_each = arm == "exchange_each"
    return arm_of(replica)
