"""distributed/comm_sms: how many of a GPU's multiprocessors an exchange may take."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from gpulift_work.distributed import Group, join, library_versions
from gpulift_work.training import mark_on
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "What is it worth to give NCCL fewer of the multiprocessors where it exchanges "
    "beside a matrix product?",
    "expectation": "A step is an all-gather of 256 MiB beside a product of 8192 in BF16. Alone: "
    "134 MB over NVLink at 250 GB/s take 0.54 ms, 1.1 TFLOP at 690 TFLOPS 1.6 ms. By default NCCL "
    "takes 16 to 32 of 132 multiprocessors: while it runs, the product has 0.8 of its speed: 1.6 + "
    "0.2 x 0.54 = 1.71 ms. With 4 CTAs the gather has 0.4 of its speed, 1.35 ms, which is less "
    "than the product, whose speed beside it is 0.97: 1.64 ms: 1.04. Where the gather were waited "
    "for, the default would win. Through the host, 26 GB/s, it takes 5.2 ms and is waited for; 4 "
    "CTAs are enough for that link: 0.95 to 1.0.",
    "predict": [
        {
            "case": {"link": "nvlink"},
            "step_time_s": {"default": [0.001539, 0.001881]},
            "speedup": {"ctas_4": [0.936, 1.144]},
        },
        {
            "case": {"link": "host"},
            "step_time_s": {"default": [0.00468, 0.00572]},
            "speedup": {"ctas_4": [0.95, 1]},
        },
    ],
    "found": "With 4 CTAs the gather alone has 0.28 of its speed, not 0.4: 2.4 ms at 57 GB/s, and "
    "4.5 beside the product, which takes 1.5 alone. So it is waited for, and the default wins; "
    "nor is the product faster beside it, 0.90 of its speed against 0.92. One launch.",
    "claims": [],
    "gpus": 0,
    "arms": ["default", "ctas_4"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "environment": {"ctas_4": {"NCCL_MAX_CTAS": "4"}},
    "sweep": {"link": ["nvlink", "host"]},
    "check": {
        "meaning": "elements that differ from what was gathered from and from the product alone",
        "tolerance": 0,
    },
}
SIZE = 8192
GATHERED_BYTES = 256 << 20  # of all ranks together
SAMPLES = 7
VARIABLE = "NCCL_MAX_CTAS"

Work = Callable[[], object]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The same work for both: what differs is in the environment, which NCCL reads."""
    require_environment(arm)
    group = join(str(point["link"]), gpu)
    beside = Beside(group, seed)
    return Arm(
        step=beside.step,
        error=beside.wrong_elements,
        synchronize=lambda: torch.cuda.synchronize(group.device),
        mark=lambda: mark_on(group.device),
        notes={"nccl_max_ctas": os.environ.get(VARIABLE, "default")},
        versions=library_versions(on_gpu=True),
        metrics=beside.metrics,
        flops=2.0 * SIZE**3,
    )


def require_environment(arm: str) -> None:
    """Throws RuntimeError where the arm was started without its variable, Skip where the others
    have it, too."""
    found = os.environ.get(VARIABLE)
    if arm == "ctas_4" and found != "4":
        raise RuntimeError(f"{arm} was started without {VARIABLE}=4")
    if arm == "default" and found is not None:
        raise Skip(f"{VARIABLE} is set: the default cannot be seen", f"unset {VARIABLE}")


class Beside:
    """A matrix product on one stream and an all-gather on another."""

    def __init__(self, group: Group, seed: int) -> None:
        self.group = group
        self.device = group.device
        generator = torch.Generator(self.device).manual_seed(seed)
        self.left, self.right = torch.randn(
            (2, SIZE, SIZE), generator=generator, device=self.device, dtype=torch.bfloat16
        )
        self.expected_product = torch.mm(self.left, self.right)
        self.product = torch.full_like(self.expected_product, math.nan)
        numbers = GATHERED_BYTES // 4
        self.expected_gathered = torch.randint(
            2**31 - 1, (numbers,), generator=generator, device=self.device, dtype=torch.int32
        )
        self.own = self.expected_gathered.chunk(group.ranks)[group.rank].clone()
        self.gathered = torch.full_like(self.expected_gathered, -1)
        self.main = torch.cuda.current_stream(self.device)
        self.side = torch.cuda.Stream(self.device)

    def step(self) -> None:
        """Both at once, and both are done when the next begins."""
        self.side.wait_stream(self.main)
        self.gather()
        self.multiply()
        self.main.wait_stream(self.side)

    def gather(self) -> None:
        """On the side stream, which waits for NCCL's."""
        with torch.cuda.stream(self.side):
            dist.all_gather_into_tensor(self.gathered, self.own)

    def multiply(self) -> None:
        """On the main stream."""
        torch.mm(self.left, self.right, out=self.product)

    def wrong_elements(self) -> float:
        """Of both results."""
        torch.cuda.synchronize(self.device)
        return wrong(self.product, self.expected_product) + wrong(
            self.gathered, self.expected_gathered
        )

    def metrics(self) -> dict[str, float]:
        """What each takes alone, and while the other runs."""
        product_s = self.time_of(self.multiply, self.main)
        gather_s = self.time_of(self.gather, self.side)
        gathers = repeats_that_outlast(product_s, gather_s)
        products = repeats_that_outlast(gather_s, product_s)
        product_beside_s = self.time_of(self.multiply, self.main, [self.gather] * gathers)
        gather_beside_s = self.time_of(self.gather, self.side, [self.multiply] * products)
        bus_bytes = GATHERED_BYTES * (self.group.ranks - 1) / self.group.ranks
        return {
            "product_alone_s": product_s,
            "product_beside_s": product_beside_s,
            "product_speed_beside": product_s / product_beside_s,
            "gather_alone_s": gather_s,
            "gather_beside_s": gather_beside_s,
            "gather_speed_beside": gather_s / gather_beside_s,
            "gather_bus_bytes": bus_bytes,
            "gather_bus_bytes_per_s": bus_bytes / gather_s,
        }

    def time_of(self, work: Work, stream: torch.cuda.Stream, beside: Sequence[Work] = ()) -> float:
        """Of work on its stream that begins after what it runs beside has begun: the median, in
        seconds."""
        times_s = []
        for _ in range(SAMPLES + 1):
            torch.cuda.synchronize(self.device)
            dist.barrier()
            torch.cuda.synchronize(self.device)
            for other in beside:
                other()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            work()
            end.record(stream)
            torch.cuda.synchronize(self.device)
            times_s.append(begin.elapsed_time(end) / 1e3)
        return float(statistics.median(times_s[1:]))  # the first warms up


def wrong(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Elements that differ; one that is not a number differs, too."""
    return float((found != expected).sum())


def repeats_that_outlast(work_s: float, other_s: float) -> int:
    """How often the other has to run so that it runs all the time, with room for both being slower
    together."""
    return 2 + math.ceil(3 * work_s / other_s)
