"""distributed/no_sync: gradients of several micro-batches, exchanged each time or once."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.distributed import Replica, arm_of, join
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "With gradient accumulation, what is it worth to exchange gradients after the last "
    "micro-batch alone?",
    "expectation": """
        llama_1b on two H100, micro-batches of one row of 4096 tokens, which take 84 ms forward and
        backward, and AdamW 13 once. Over NVLink an exchange of 4.9 GB takes 15 ms, of which 12 show
        or take time from the pass beside: the embedding's 3, NCCL's kernels 2, copies into buckets
        and back 7. Of 4 micro-batches 349 + 48 ms against 349 + 12: 1.10; of 8, 685 + 96 against
        685 + 12: 1.12. Through the host, 26 GB/s, an exchange takes 190 ms, of which a backward
        pass hides 55: 4 x 142 + 349 against 349 + 142: 1.87; of 8, 2.2. ResNet-18 over Gloo, 32
        images in all: 31 ms each beside micro-batches of 40: 1.4.
    """,
    "predict": [
        "link:nvlink/micro_batches:4 @h200: exchange_each 345-400 ms, exchange_last 1.05-1.12",
        "link:nvlink/micro_batches:4 @h100: exchange_each 375-425 ms, exchange_last 1.06-1.15",
        "link:nvlink/micro_batches:8 @h100: exchange_last 1.07-1.17",
        "link:host/micro_batches:4 @h100: exchange_each 820-1000 ms, exchange_last 1.7-2.05",
        "link:host/micro_batches:8 @h100: exchange_last 2.0-2.4",
        "link:gloo: exchange_last 1.26-1.54",
    ],
    "found": """
        Two H200s over NVLink, 4 micro-batches, three launches: 420 ms, 1.119. Predicted were 400 at
        most: each exchange shows 16.8 ms, more than an all-reduce alone takes, 14.5. The rest, by
        reckoning, are copies into buckets and what the pass beside loses.
        Of GPT-2 with micro-batches of 2 x 1024 tokens through the host, one launch on H100s: 1.15.
        Its 3,800 to 4,700 launches a step bounded it, 126 ms without any exchange, which is why
        micro-batches are of a Llama now.
    """,
    "claims": ["data-parallel-traffic-costs"],
    "whole_steps": True,
    "arms": ["exchange_each", "exchange_last"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {"link": ["nvlink", "host", "gloo"], "micro_batches": [4, 8]},
    "check": {
        "meaning": "gradients of FP32 against those of all ranks' rows in FP64, of a Llama in "
        "FP32, relative; ranks hold the same bits",
        "tolerance": 1e-5,
    },
}
MODELS = {"nvlink": "llama_1b", "host": "llama_1b", "gloo": "resnet18"}
ROWS = {"llama_1b": 1}  # of a micro-batch; of others the twin's batch is divided


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each of two ranks, which takes its rows in parts."""
    link, parts = str(point["link"]), int(point["micro_batches"])
    group = join(link, gpu)
    name = MODELS[link]
    rows = ROWS[name] * parts if name in ROWS else None
    replica = Replica(name, group, seed, batch=rows, micro_batches=parts)
    replica.exchanges_each = arm == "exchange_each"
    return arm_of(replica, exchanging=Replica.wrap)
