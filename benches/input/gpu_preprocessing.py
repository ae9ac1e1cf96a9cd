"""input/gpu_preprocessing: JPEGs to normalised batches on the GPU, decoded by cores or by it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic

import torch
import torchvision
from gpulift_work.images import synthetic_jpegs
from gpulift_work.training import COLD_STEPS, Training, device_of, set_up
from gpulift_worker import Arm, Skip, cores
from torchvision.transforms.v2 import functional

TECHNIQUE = {
    "question": "How many images a second become batches on the GPU, if it decodes them itself?",
    "expectation": (
        "A core decodes 133 MB of JPEG a second: 112 kB in 0.84 ms, resized in 0.12 ms, so 16 "
        "cores could do 16,600 images a second. Threads of one process share the lock on its page "
        "tables and Python's, and decode 2,350 on an H100's host. nvJPEG decodes 18,156 in batches "
        "of 512, on the engine that data centre cards have since A100: 7.7 times as fast. One by "
        "one it waits for each image, 0.27 ms: 3,744, 1.6. Resized on the GPU after the cores "
        "decoded, an image is 564 kB on the link in place of 151, 56 us of one thread's copying at "
        "10 GB/s, and saves 0.12 of 0.96 ms: 0.9 to 1.1. 760 kB at 1920 x 1080 are 6.8 times the "
        "bytes: 2,700 a second in batches and 350 on the cores, 7.7 again. DALI drives the same "
        "engine, and cores beside it: 1 to 1.3 of nvJPEG in batches. While the GPU trains, the "
        "engine takes only colour conversion and resizing from it: the step is 1 to 5 % slower; "
        "threads on all cores launch it late, 5 to 30 %."
    ),
    "predict": [
        {
            "case": {"kilobytes": 112, "beside": "nothing"},
            "on": "h100",
            "step_time_s": {"cores": [0.1961, 0.2397]},
            "speedup": {
                "gpu_resize": [0.9, 1.1],
                "nvjpeg_one_by_one": [1.44, 1.76],
                "nvjpeg_batches": [6.93, 8.47],
                "dali": [7.7, 10],
            },
        },
        {
            "case": {"kilobytes": 760, "beside": "nothing"},
            "on": "h100",
            "speedup": {"nvjpeg_batches": [6.93, 8.47], "dali": [7.7, 10]},
        },
    ],
    "claims": ["gpu-preprocessing-faster", "gpu-preprocessing-burdens-gpu"],
    "gpus": 1,
    "arms": ["cores", "gpu_resize", "nvjpeg_one_by_one", "nvjpeg_batches", "dali"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"kilobytes": [112, 760], "beside": ["nothing", "training"]},
    "check": {
        "meaning": "mean difference from libjpeg-turbo's pixels, resized on the host, of 255",
        "tolerance": 2,
    },
}

# Different images of a mean size, their width and height, and how many there are in a batch.
IMAGES = {112: (32, 500, 375, 512), 760: (8, 1920, 1080, 64)}
SIDE = 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours
MODEL = "resnet50"
ALONE_STEPS = 20
BESIDE_S = 2.0  # of preprocessing, in which the training's steps are counted
RGB = torchvision.io.ImageReadMode.RGB

Files = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Preprocessing:
    """What makes a batch of pixels [images, 3, SIDE, SIDE] on the device, of FP32 normalised."""

    batch: Callable[[], torch.Tensor]
    versions: Mapping[str, str] = field(default_factory=dict)


class Beside:
    """Steps back to back on a thread of their own while it is told to."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self._wanted = threading.Event()
        self._stepping = threading.Lock()
        self._failed: Exception | None = None
        self.steps = 0
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self) -> None:
        """Steps from now on; raises what a step has raised."""
        if self._failed is not None:
            raise RuntimeError(f"the training beside: {self._failed}") from self._failed
        self._wanted.set()

    def pause(self) -> None:
        """Returns when no step runs any more."""
        self._wanted.clear()
        with self._stepping:
            pass

    def _run(self) -> None:
        while self._failed is None:
            self._wanted.wait()
            with self._stepping:
                if self._wanted.is_set():
                    self._take_step()

    def _take_step(self) -> None:
        try:
            self._step()
            self.steps += 1
        except Exception as error:  # the thread that measures raises it
            self._failed = error


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A batch of images in each step, with or without a training beside."""
    device = device_of(gpu)
    set_up(device)
    count, width, height, batch = IMAGES[int(point["kilobytes"])]
    files = [
        torch.frombuffer(bytearray(file), dtype=torch.uint8)
        for file in synthetic_jpegs(count, width, height, 1e3 * int(point["kilobytes"]), seed)
    ]
    made = PREPROCESSING[arm]([files[index % count] for index in range(batch)], device)
    beside = training_beside(device, seed) if point["beside"] == "training" else None
    latest: list[torch.Tensor] = []

    def step() -> None:
        if beside is not None:
            beside.resume()
        latest[:] = [made.batch()]

    def metrics() -> dict[str, float]:
        return {} if beside is None else slowdown(beside, step, lambda: wait(device))

    return Arm(
        step=step,
        error=lambda: mean_difference(latest, batch, [host_pixels(file) for file in files]),
        synchronize=lambda: wait(device),
        rest=beside.pause if beside is not None else lambda: None,
        metrics=metrics,
        items=batch,
        item="image",
        versions={"torchvision": torchvision.__version__, **made.versions},
        notes={
            "threads": str(cores()),
            "images": f"batches of {batch}: {count} synthetic JPEGs of {width} x {height} pixels, "
            "quality 90, 4:2:0, again and again",
        },
    )


def wait(device: torch.device) -> None:
    """For the work of this thread, and not for a training's beside."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def training_beside(device: torch.device, seed: int) -> Beside:
    """Steps of a training in BF16 on a stream of its own, each waited for."""
    training = Training(MODEL, device, seed)
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))

    def step() -> None:
        with torch.cuda.device(device), torch.cuda.stream(stream):
            training.step()
            stream.synchronize()

    for _ in range(COLD_STEPS):
        step()
    return Beside(step)


def slowdown(
    beside: Beside, step: Callable[[], object], synchronize: Callable[[], object]
) -> dict[str, float]:
    """What a training's step takes alone, and beside the arm's steps."""
    step()
    synchronize()
    first = beside.steps
    start_s = monotonic()
    while beside.steps == first or monotonic() - start_s < BESIDE_S:
        step()
        synchronize()
    beside_s = (monotonic() - start_s) / (beside.steps - first)
    first = beside.steps
    start_s = monotonic()
    while beside.steps - first < ALONE_STEPS:
        beside.resume()
        threading.Event().wait(beside_s)  # sleeps: what asks takes no core from it
    alone_s = (monotonic() - start_s) / (beside.steps - first)
    beside.pause()
    return {
        "training_step_s": beside_s,
        "training_step_alone_s": alone_s,
        "training_slowdown_ratio": beside_s / alone_s,
    }


def mean_difference(found: Sequence[torch.Tensor], batch: int, wanted: Files) -> float:
    """Of the last batch, whose images are those wanted again and again, in levels of 255."""
    if not found:
        raise RuntimeError("no batch was made")
    (last,) = found
    if last.shape != (batch, 3, SIDE, SIDE) or last.dtype != torch.float32:
        raise ValueError(f"the batch is {last.dtype}{tuple(last.shape)}")
    mean, deviation = (torch.tensor(one)[:, None, None] for one in (MEAN, DEVIATION))
    levels = 255 * (last.cpu() * deviation + mean)
    # The worst of all images: one that is wrong is not hidden by hundreds that are right.
    return max(
        float((one - wanted[index % len(wanted)]).abs().mean()) for index, one in enumerate(levels)
    )


def host_pixels(file: torch.Tensor) -> torch.Tensor:
    """A file, decoded and resized on the host."""
    return functional.resize(torchvision.io.decode_jpeg(file, mode=RGB), [SIDE, SIDE])


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """A batch of bytes."""
    values = functional.to_dtype(pixels, torch.float32, scale=True)
    return functional.normalize(values, list(MEAN), list(DEVIATION))


def on_cores(files: Files, device: torch.device) -> Preprocessing:
    """All but normalising on threads, and bytes over the link."""
    pool = ThreadPoolExecutor(cores())
    torch.set_num_threads(1)  # the pool has one for each core
    shape = (len(files), 3, SIDE, SIDE)
    buffer = torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")

    def fill(index: int) -> None:
        buffer[index] = host_pixels(files[index])

    def batch() -> torch.Tensor:
        for _ in pool.map(fill, range(len(files))):
            pass  # raises what a thread raised
        return normalised(buffer.to(device))

    return Preprocessing(batch)


def with_gpu_resize(files: Files, device: torch.device) -> Preprocessing:
    """Decoded on threads, and whole images over the link."""
    pool = ThreadPoolExecutor(cores())
    torch.set_num_threads(1)

    def decoded(file: torch.Tensor) -> torch.Tensor:
        return torchvision.io.decode_jpeg(file, mode=RGB).to(device)

    def batch() -> torch.Tensor:
        return resized(list(pool.map(decoded, files)))

    return Preprocessing(batch)


def by_nvjpeg_one_by_one(files: Files, device: torch.device) -> Preprocessing:
    """torchvision's nvJPEG, which takes the card's engine where there is one."""
    return Preprocessing(
        lambda: resized([torchvision.io.decode_jpeg(one, RGB, device) for one in files])
    )


def by_nvjpeg_in_batches(files: Files, device: torch.device) -> Preprocessing:
    """The same, of all images in one call."""
    return Preprocessing(
        lambda: resized(torchvision.io.decode_jpeg(list(files), mode=RGB, device=device))
    )


def resized(images: Sequence[torch.Tensor]) -> torch.Tensor:
    """A normalised batch of images of one size, where they are."""
    return normalised(functional.resize(torch.stack(list(images)), [SIDE, SIDE]))


def by_dali(files: Files, device: torch.device) -> Preprocessing:
    """DALI's own pipeline, which works on the next batch while this one is taken."""
    try:
        dali = importlib.import_module("nvidia.dali")
    except ModuleNotFoundError as error:
        raise Skip(
            f"the Python package {error.name} is not installed",
            "install nvidia-dali-cuda130, or name another interpreter with --python",
        ) from error
    on_gpu = device.type == "cuda"
    arrays = [file.numpy() for file in files]
    pipeline = dali.Pipeline(len(files), cores(), device.index if on_gpu else None)
    with pipeline:
        encoded = dali.fn.external_source(source=lambda: arrays, batch=True)
        images = dali.fn.decoders.image(encoded, device="mixed" if on_gpu else "cpu")
        images = dali.fn.resize(
            images, size=(SIDE, SIDE), interp_type=dali.types.INTERP_LINEAR, antialias=True
        )
        pipeline.set_outputs(
            dali.fn.crop_mirror_normalize(
                images,
                dtype=dali.types.FLOAT,
                output_layout="CHW",
                mean=[255 * one for one in MEAN],
                std=[255 * one for one in DEVIATION],
            )
        )
    pipeline.build()

    def batch() -> torch.Tensor:
        (output,) = pipeline.run()
        return torch.from_dlpack(output.as_tensor()).clone()  # the memory is the pipeline's

    return Preprocessing(batch, versions={"nvidia-dali": dali.__version__})


PREPROCESSING: Mapping[str, Callable[[Files, torch.device], Preprocessing]] = {
    "cores": on_cores,
    "gpu_resize": with_gpu_resize,
    "nvjpeg_one_by_one": by_nvjpeg_one_by_one,
    "nvjpeg_batches": by_nvjpeg_in_batches,
    "dali": by_dali,
}
