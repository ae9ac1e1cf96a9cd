"""input/loader_libraries: the same images by torch's DataLoader, and by what others load with."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import itertools
import multiprocessing
import os
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from gpulift_work.feeding import (
    DEVIATION,
    EMULATED,
    MEAN,
    PIXELS,
    Normalising,
    Place,
    arm_of,
    decoded_cut,
    keep_to,
    largest_difference,
    note_of,
    shares,
    step_alone_s,
    step_behind,
    stored,
    tensor_cut,
)
from gpulift_work.loaders import (
    PREFETCH,
    Ahead,
    AnyOrder,
    Batches,
    Key,
    Keys,
    Loader,
    Order,
    ProcessLoader,
    Rounds,
    Samples,
    end_with_parent,
    go_on,
    go_on_in_the_end,
    in_one_line,
    package,
    require_shared_memory,
    stacked,
    stop,
)
from gpulift_work.samples import folder_for
from gpulift_worker import Arm, scratch
from torch.utils.data import IterableDataset
from torchvision import io

TECHNIQUE = {
    "question": "Do the loaders of other libraries feed a training step faster than torch's "
    "DataLoader, or for less of the processors?",
    "expectation": """
        JPEGs of mixed sizes, 112 kB in the mean, from memory. All arms but dali decode, crop and
        resize with torchvision, 1.7 ms of a core an image, send bytes ahead of the step, pin them
        and normalise on the GPU: what differs is what lies around. In DataLoader that is 0.1 ms,
        1.8 in all, and 1.4 times as long where all cores are at work: 4 cores make 1,590 images/s,
        16 of them 6,300. webdataset parses tar files, 0.05 ms in place of 0.015; streaming looks
        its samples up one by one, 0.06; hf_datasets makes Python objects of Arrow's, 0.05: 0.97 to
        0.99. spdl has threads in one process, from which whole batches are copied once more; 0.25
        ms an image hold Python's lock: as fast on 4 cores, and no more than 4,000/s on 16. dali
        decodes on the GPU: the step is the bound. ResNet-50 takes 256 images in 74 ms, 3,460/s: on
        4 cores dali 3,460 / 1,590 = 2.2 and the rest 1; on 16 all alike, spdl 0.7 to 1. ViT-L/16
        takes 800/s: all alike. Without a GPU dali decodes on the processor, of a JPEG only the rows
        of the crop, and resizes in SIMD: 1.1 ms: on two cores 1.6 times the 780/s of DataLoader.
    """,
    "predict": [
        "model:resnet50_256/cores:4 @h100: webdataset 0.92-1.03, streaming 0.9-1.03,"
        " hf_datasets 0.9-1.03, spdl 0.85-1.15, dali 1.8-2.3",
        "model:resnet50_256/cores:all @h100: webdataset 0.93-1.04, streaming 0.93-1.04,"
        " hf_datasets 0.93-1.04, spdl 0.7-1.03, dali 0.93-1.05",
        "model:vit_l16 @h100: webdataset 0.97-1.03, streaming 0.97-1.03, hf_datasets 0.97-1.03,"
        " spdl 0.95-1.03, dali 0.95-1.03",
        # On two cores.
        "model:emulated/cores:all @cpu: webdataset 0.92-1.05, streaming 0.9-1.03,"
        " hf_datasets 0.9-1.03, spdl 0.85-1.15, dali 1.3-2.1",
    ],
    "arms": ["dataloader", "webdataset", "streaming", "hf_datasets", "spdl", "dali"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"model": ["emulated", "resnet50_256", "vit_l16"], "cores": [4, "all"]},
    "quick": [],  # input/pipeline has one, and this takes a minute on two cores
    "check": {
        "meaning": "largest mean difference of an image from torchvision's, of 255",
        # DALI resizes otherwise, and a GPU repeats chroma: 2.7 by nvJPEG. One pixel off is 5 to 16.
        "tolerance": 3.5,
    },
}
FILES = 4096  # 16 workers have a batch of 256 each
FORM_BYTES = 1.2 * FILES * 112e3  # that a library stores the images in
LEAST_IMAGES = 32  # that each worker makes for a round
LOOKED_IMAGES = 256
SHARDS = 4  # of each worker
# Samples that WebDataset draws from. People take 1000, which are filled once in epochs of thousands
# a worker; here that would be half of each epoch, at two samples read for each that is given.
SHUFFLED = 100
AREA, ASPECT = [0.08, 1.0], [3 / 4, 4 / 3]  # that torchvision's RandomResizedCrop draws from
# What a standard set-up need not have, and what installs it.
LIBRARIES = {
    "webdataset": ("webdataset", "webdataset"),
    "streaming": ("streaming", "mosaicml-streaming"),
    "hf_datasets": ("datasets", "datasets"),
    "spdl": ("spdl.pipeline", "spdl-core"),
    "dali": ("nvidia.dali", "nvidia-dali-cuda130"),
}


@dataclass(frozen=True)
class Images:
    """What every loader is to bring."""

    files: Sequence[Path]
    batch: int
    seed: int
    workers: int
    device: torch.device

    @property
    def order(self) -> Order:
        """Where the arm says it."""
        return Order(len(self.files), self.batch, self.seed)

    @property
    def any_order(self) -> AnyOrder:
        """Where a library does."""
        return AnyOrder(len(self.files), self.batch)

    @property
    def on_gpu(self) -> bool:
        """Where they are to be."""
        return bool(self.device.type == "cuda")


@dataclass(frozen=True)
class Feed:
    """A library's loader."""

    loader: Loader
    order: Order | AnyOrder


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Rounds of a library's loader, and a step with each batch."""
    library = package(*LIBRARIES[arm]) if arm in LIBRARIES else None
    model = str(point["model"])
    here = keep_to(point["cores"])
    step = step_behind(model, seed, gpu)
    # As many batches for each worker: streaming's wait for one another at the end of an epoch.
    count = FILES - FILES % (here * step.batch)
    files = stored(scratch(), FILES, seed)[:count]
    images = Images(files, step.batch, seed, here, step.device)
    require_shared_memory((here * PREFETCH + 1) * step.batch * 3 * PIXELS**2)
    feed = FEEDS[arm](library, images)
    normalise = Normalising(step.device)
    seen: list[torch.Tensor] = []

    def train(batch: torch.Tensor) -> None:
        batch = batch.to(step.device, non_blocking=True)
        # What follows the emulated step is its GPU's work, and none of a processor's.
        seen[:] = [batch if model == EMULATED else as_floats(batch)]
        step.train(seen[0])

    def as_floats(batch: torch.Tensor) -> torch.Tensor:
        return batch if batch.is_floating_point() else normalise(batch)

    batches = here * max(1, LEAST_IMAGES // step.batch)
    rounds = Rounds(feed.loader, feed.order, train, batches)

    def error() -> float:
        cut = feed.loader.cut if isinstance(feed.loader, Dali) else tensor_cut(images.files)
        return largest_difference(as_floats(seen[0]), list(map(cut, rounds.last[0])))

    def metrics() -> dict[str, float]:
        return shares(rounds, step, step_alone_s(step, seen[0]), LOOKED_IMAGES)

    return arm_of(
        rounds,
        step.synchronize,
        error=error,
        items=batches * step.batch,
        metrics=metrics,
        versions=version_of(arm),
        notes={"step": step.said, "cores": str(here), "batch": str(step.batch), **note_of(count)},
    )


def version_of(arm: str) -> dict[str, str]:
    """As it was installed: not every library tells."""
    distribution = LIBRARIES.get(arm, ("", "torchvision"))[1]
    return {distribution: metadata.version(distribution)}


def in_processes(images: Images, samples: Samples | IterableDataset[Any], order: Any) -> Feed:
    """By torch's DataLoader, which most libraries hand their samples to."""
    loader = ProcessLoader(samples, order, images.workers, pin_memory=images.on_gpu)
    return Feed(loader, order)


def by_dataloader(_: Any, images: Images) -> Feed:
    """Of files, as torch alone has it."""
    return in_processes(images, Samples(tensor_cut(images.files)), images.order)


def decoded(key: Key, content: bytes) -> tuple[Key, Any]:
    """A sample of a file's bytes."""
    file = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return Samples(lambda key: decoded_cut(key, file))[key]


class Epochs(IterableDataset[Any]):
    """A library's stream over and over, of which each worker has a part."""

    def __init__(self, stream: Iterable[Any]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[Any]:
        for epoch in itertools.count():
            for sample in self._stream:
                yield decoded((epoch, int(sample["__key__"])), sample["jpg"])


def by_webdataset(library: Any, images: Images) -> Feed:
    """Tar files, as many for each worker: one that had fewer would begin its epochs sooner."""
    folder = folder_for("webdataset", FORM_BYTES)
    count = SHARDS * images.workers
    shards = [str(folder / f"{number:06}.tar") for number in range(count)]
    for first, shard in enumerate(shards):
        with library.TarWriter(shard) as writer:
            for number in range(first, len(images.files), count):
                content = images.files[number].read_bytes()
                writer.write({"__key__": f"{number:06}", "jpg": content})
    stream = library.WebDataset(shards, shardshuffle=count, seed=images.seed % 2**32)
    return in_processes(images, Epochs(stream.shuffle(SHUFFLED)), images.any_order)


def by_streaming(library: Any, images: Images) -> Feed:
    """MosaicML's shards, of which its workers agree on parts in shared memory."""
    own = folder_for("streaming", FORM_BYTES)
    folder = str(own / "shards")
    tempfile.tempdir = str(own)  # where it leaves files that nobody removes
    with library.MDSWriter(out=folder, columns={"__key__": "str", "jpg": "bytes"}) as writer:
        for number, file in enumerate(images.files):
            writer.write({"__key__": str(number), "jpg": file.read_bytes()})
    stream = library.StreamingDataset(
        local=folder, shuffle=True, shuffle_seed=images.seed % 2**32, batch_size=images.batch
    )
    return in_processes(images, Epochs(stream), images.any_order)


def by_datasets(library: Any, images: Images) -> Feed:
    """Of Arrow's files, mapped into memory, where a batch's rows are looked up at once."""
    folder = folder_for("datasets", FORM_BYTES)
    library.disable_progress_bars()

    def rows() -> Iterator[dict[str, bytes]]:
        for file in images.files:
            yield {"jpg": file.read_bytes()}

    features = library.Features({"jpg": library.Value("binary")})
    stored = library.Dataset.from_generator(rows, features=features, cache_dir=str(folder))

    def read(keys: Keys) -> list[Any]:
        files = stored[[number for _, number in keys]]["jpg"]
        return [decoded(key, file)[1] for key, file in zip(keys, files, strict=True)]

    return in_processes(images, Batches(read), images.order)


class Spdl:
    """SPDL's threads in a process of their own, which is forked as DataLoader's workers are."""

    def __init__(self, library: Any, images: Images) -> None:
        fork = multiprocessing.get_context("fork")
        self._broken = fork.SimpleQueue()
        self._order = images.order
        self._samples = Samples(tensor_cut(images.files))
        ahead = images.workers * PREFETCH
        pipeline = (
            library.PipelineBuilder()
            .add_source(self._keys())
            .pipe(self._load, concurrency=images.workers)
            .aggregate(images.batch)
            .pipe(self._stacked)
            .add_sink(PREFETCH)
        )
        others = set(multiprocessing.active_children())
        batches = library.run_pipeline_in_subprocess(
            pipeline.get_config(),
            num_threads=images.workers,
            max_failures=0,
            mp_context="fork",
            buffer_size=ahead,
            initializer=begin(os.getpid()),
        )
        self.processes = [
            child.pid for child in set(multiprocessing.active_children()) - others if child.pid
        ]
        self._stopped = False
        go_on_in_the_end(self, self.processes)
        self._batches = iter(batches)
        # Before the first batch is asked for, no thread begins.
        self._batches = itertools.chain([self._next()], self._batches)

    def _keys(self) -> Iterator[Key]:
        for keys in self._order:
            yield from keys

    def _load(self, key: Key) -> tuple[Key, Any]:
        try:
            return self._samples[key]
        except ValueError as error:
            self._broken.put(str(error))
            raise

    def _stacked(self, samples: list[tuple[Key, Any]]) -> tuple[Keys, Any]:
        return stacked(samples)

    def take(self) -> tuple[Keys, Any]:
        """Leaves room for one more."""
        if self._stopped:
            go_on(self.processes)
            self._stopped = False
        return self._next()

    def _next(self) -> tuple[Keys, Any]:
        try:
            batch: tuple[Keys, Any] = next(self._batches)
        except Exception as error:
            broken = not self._broken.empty()
            raise RuntimeError(self._broken.get() if broken else in_one_line(error)) from error
        return batch

    def pause(self) -> int:
        """Stops the process in the midst of its batches."""
        stop(self.processes)
        self._stopped = True
        return 0


def begin(parent: int) -> Callable[[], None]:
    """What the process of SPDL's threads does first, as each of DataLoader's workers."""

    def end() -> None:
        torch.set_num_threads(1)
        end_with_parent(parent)(0)

    return end


def by_spdl(library: Any, images: Images) -> Feed:
    """Pinned by a thread of this process, as DataLoader's batches are."""
    loader: Loader = Spdl(library, images)
    if images.on_gpu:
        loader = Ahead(loader, torch.Tensor.pin_memory)
    return Feed(loader, images.any_order)


class Dali:
    """NVIDIA's pipeline from files to normalised batches: where there is a GPU, on it."""

    def __init__(self, library: Any, images: Images) -> None:
        fn, types = library.fn, library.types
        self._files = images.files
        self._epochs: Counter[int] = Counter()
        self._places: dict[Key, Place] = {}
        self._stream = torch.cuda.Stream(images.device) if images.on_gpu else None
        self._pipeline = library.Pipeline(
            images.batch,
            images.workers,
            images.device.index,
            seed=images.seed % 2**31,
            prefetch_queue_depth=PREFETCH,
        )
        with self._pipeline:
            files, numbers = fn.readers.file(
                files=list(map(str, images.files)),
                labels=list(range(len(images.files))),
                shuffle_after_epoch=True,
            )
            # What decoders.image_random_crop does, but it tells where it cut.
            at, size = fn.random_crop_generator(
                fn.peek_image_shape(files), random_area=AREA, random_aspect_ratio=ASPECT
            )
            flipped = fn.random.coin_flip()
            crops = fn.decoders.image_slice(
                files, start=at, shape=size, axes=[0, 1], device="mixed" if images.on_gpu else "cpu"
            )
            crops = fn.resize(
                crops, size=(PIXELS, PIXELS), interp_type=types.INTERP_LINEAR, antialias=True
            )
            # Bytes stay bytes where other arms' are not normalised, either.
            floats = {
                "dtype": types.FLOAT,
                "mean": [255 * value for value in MEAN],
                "std": [255 * value for value in DEVIATION],
            }
            batch = fn.crop_mirror_normalize(
                crops,
                mirror=flipped,
                output_layout="CHW",
                **(floats if images.on_gpu else {"dtype": types.UINT8}),
            )
            self._pipeline.set_outputs(batch, numbers, at, size, flipped)
        self._pipeline.build()
        self._ready: deque[Any] = deque()
        self._pipeline.schedule_run()  # the first fills the queue

    def take(self) -> tuple[Keys, Any]:
        """Asks for one more."""
        batch, *said = self._ready.popleft() if self._ready else self._next()
        self._pipeline.schedule_run()
        keys = []
        self._places = {}
        for number, at, size, flipped in zip(*said, strict=True):
            keys.append((self._epochs[number], number))
            self._epochs[number] += 1
            self._places[keys[-1]] = Place(at[0], at[1], size[0], size[1], bool(flipped))
        return keys, batch

    def pause(self) -> int:
        """Until the pipeline has made all batches, which then are the loader's."""
        while len(self._ready) < PREFETCH:
            self._ready.append(self._next())
        return PREFETCH

    def _next(self) -> tuple[Any, ...]:
        """The batch, and of each image its number, place, size and whether it is flipped."""
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            batch, numbers, at, size, flipped = (
                torch.from_dlpack(output.as_tensor()) for output in self._pipeline.share_outputs()
            )
            batch = batch.clone()  # the memory is the pipeline's
        if self._stream:
            self._stream.synchronize()
            batch.record_stream(torch.cuda.default_stream(batch.device))
        said = numbers.flatten().tolist(), at.tolist(), size.tolist(), flipped.flatten().tolist()
        self._pipeline.release_outputs()
        return batch, *said

    def cut(self, key: Key) -> torch.Tensor:
        """Of the last batch: by torchvision what the pipeline cut."""
        image = io.decode_jpeg(io.read_file(str(self._files[key[1]])), mode=io.ImageReadMode.RGB)
        cropped: torch.Tensor = self._places[key].cut(image)
        return cropped


def by_dali(library: Any, images: Images) -> Feed:
    """One pipeline, all threads of which make a batch together."""
    return Feed(Dali(library, images), images.any_order)


FEEDS: Mapping[str, Callable[[Any, Images], Feed]] = {
    "dataloader": by_dataloader,
    "webdataset": by_webdataset,
    "streaming": by_streaming,
    "hf_datasets": by_datasets,
    "spdl": by_spdl,
    "dali": by_dali,
}
