"""input/tokens: what it costs to feed a language model, by the ways in which its tokens lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpulift_work.feeding import Step, arm_of, shares, step_alone_s, with_cores
from gpulift_work.loaders import (
    PREFETCH,
    Batches,
    Keys,
    Order,
    ProcessLoader,
    Rounds,
    package,
    require_shared_memory,
)
from gpulift_work.resting import Resting
from gpulift_work.samples import folder_for
from gpulift_work.training import (
    TEXT_SIZES,
    TWINS,
    device_of,
    require_gpu_for,
    set_up,
    tokens_of_step,
)
from gpulift_worker import Arm, cores

TECHNIQUE = {
    "question": "What share of a language model's training goes into bringing its tokens, and do "
    "worker processes or another form make it less?",
    "expectation": """
        A batch is 2 x 4097 tokens of llama_1b, 66 kB of 64-bit integers, or 8 x 33 of a toy; 16
        steps with a batch each. memmap is what nanoGPT does in the loop: it maps the file anew,
        copies rows from random places, pins them and does not wait for their copy: 0.2 ms, all of
        it while the GPU works on the step before. A step of llama_1b in BF16 takes an H100 190 ms:
        3.04 s, and no arm can be more than 1.001 times as fast. packed works out positions that
        begin anew in each document: 0.1 ms more. hf_datasets finds rows of Arrow's, 0.4 ms, in
        processes. python_lists makes tensors of Python's integers, 60 ns each, 0.5 ms: all 0.99 to
        1.01. Workers move these costs elsewhere, and a batch from a worker costs the loop 0.3 ms:
        1.0. On two cores the toy's step takes 5 ms, and memmap 0.15 in turn with it, 82 ms in all.
        packed adds 0.15 ms: 0.97. python_lists converts 264 integers: 1.0. Each worker's batch
        costs the loop 0.4 ms, and the worker takes a core for 0.5: 0.93; hf_datasets, too, 0.9.
    """,
    "predict": [
        "model:llama_1b @h100: memmap 2.6-3.5 s, workers_1 0.985-1.01, workers_4 0.985-1.01,"
        " workers_16 0.98-1.01, packed 0.99-1.01, hf_datasets 0.985-1.01, python_lists 0.985-1.01",
        # On two cores.
        "model:llama_toy @cpu: workers_1 0.82-1.02, packed 0.93-1.01, hf_datasets 0.78-1.0,"
        " python_lists 0.95-1.03",
    ],
    "arms": [
        "memmap",
        "workers_1",
        "workers_4",
        "workers_16",
        "packed",
        "hf_datasets",
        "python_lists",
    ],
    "controls": ["python_lists"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"model": ["llama_toy", "llama_1b"]},
    "check": {"meaning": "wrong tokens and positions of the last batch", "tolerance": 0},
}
ROWS = 4096  # of a step's length: 17 million tokens of llama_1b
BATCHES = 16  # of a round: one or more of each worker
LOOKED_BATCHES = 32
DOCUMENT_TOKENS = 600  # in the mean, as of web pages
END = 0  # of a document
DATASETS = ("datasets", "datasets")
DATASETS_WORKERS = 4
Rows = list[tuple[torch.Tensor, ...]]  # of a batch: tokens with the one that follows, positions


@dataclass(frozen=True)
class Corpus:
    """Documents behind one another, each with its end."""

    tokens: Any  # of 32 bits: Llama's vocabulary does not fit 16
    length: int  # of a row, without the token that follows
    seed: int

    def place(self, number: int) -> slice:
        """Of the row with this number, where rows lie behind one another."""
        start = number * self.length
        return slice(start, start + self.length + 1)

    def random_place(self, epoch: int, number: int) -> slice:
        """Of another row, anywhere."""
        last = len(self.tokens) - self.length
        # A generator would take longer than reading.
        start = hash((self.seed, epoch, number)) % last
        return slice(start, start + self.length + 1)


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Rounds of a training whose batches come in the arm's way."""
    library = package(*DATASETS) if arm == "hf_datasets" else None
    name = str(point["model"])
    require_gpu_for(name, gpu)
    workers = workers_of(arm)
    device = device_of(gpu)
    threads = set_up(device)
    size, rows = TEXT_SIZES[name], TWINS[name].batch
    corpus = corpus_of(size.vocabulary, size.tokens, seed)
    require_shared_memory((workers * PREFETCH + 1) * rows * 16 * (size.tokens + 1))
    folder = folder_for(arm, 2.0 * corpus.tokens.nbytes)
    order = Order(ROWS, rows, seed)
    loader = ProcessLoader(
        Batches(READERS[arm](corpus, folder, library)),
        order,
        workers,
        pin_memory=device.type == "cuda",
    )
    resting = Resting(name, device, seed)
    training = resting.training
    seen: list[torch.Tensor] = []

    def train(batch: Sequence[torch.Tensor]) -> None:
        seen[:] = [each.to(device, non_blocking=True) for each in batch]
        training.input, training.target = seen[0][:, :-1], seen[0][:, 1:]
        training.step()

    rounds = Rounds(loader, order, train, BATCHES)
    step = Step(tokens_of_step(name), device, train, training.synchronize, f"on {device.type}")

    def metrics() -> dict[str, float]:
        resting.wake()
        step_s = step_alone_s(step, seen)
        return shares(rounds, step, step_s, LOOKED_BATCHES * step.batch, "token")

    return arm_of(
        rounds,
        training.synchronize,
        item="token",
        rest_too=resting.rest,
        wake=resting.wake,
        error=lambda: wrong(arm, corpus, rounds.last[0], seen),
        items=BATCHES * step.batch,
        metrics=metrics,
        notes={
            "device": device.type,
            "workers": str(workers),
            "torch_threads": str(threads),
            "documents": f"random tokens, {DOCUMENT_TOKENS} in the mean of a document",
        },
    )


def workers_of(arm: str) -> int:
    """Processes beside the loop; no more than cores."""
    if arm == "hf_datasets":
        return min(DATASETS_WORKERS, cores())
    return with_cores(int(arm.removeprefix("workers_"))) if arm.startswith("workers_") else 0


def corpus_of(vocabulary: int, length: int, seed: int) -> Corpus:
    """As many tokens for each seed, and documents that end at the same places."""
    count = ROWS * length + 1
    tokens = np.random.default_rng(seed).integers(END + 1, vocabulary, count, dtype=np.uint32)
    lengths = np.random.default_rng(0).geometric(1 / DOCUMENT_TOKENS, count)
    ends = np.cumsum(lengths)
    tokens[ends[ends < count]] = END
    return Corpus(tokens, length, seed)


def mapped(corpus: Corpus, folder: Path, _: Any) -> Callable[[Keys], Rows]:
    """As nanoGPT reads: a map for each batch, which else would count as memory, random places."""
    file = written(corpus, folder)

    def read(keys: Keys) -> Rows:
        tokens = np.memmap(file, np.uint32, "r")
        return [(copied(tokens, corpus.random_place(*key), key[1]),) for key in keys]

    return read


def packed(corpus: Corpus, folder: Path, _: Any) -> Callable[[Keys], Rows]:
    """Rows of documents behind one another, each once an epoch, and places in their documents,
    which models want that keep documents apart."""
    file = written(corpus, folder)

    def read(keys: Keys) -> Rows:
        tokens = np.memmap(file, np.uint32, "r")
        rows = [copied(tokens, corpus.place(number), number) for _, number in keys]
        return [(row, positions(row)) for row in rows]

    return read


def written(corpus: Corpus, folder: Path) -> Path:
    """The tokens and nothing else."""
    file = folder / "tokens.bin"
    corpus.tokens.tofile(file)
    return file


def copied(tokens: Any, place: slice, number: int) -> torch.Tensor:
    """A row, in the type that embeddings and losses take."""
    row = tokens[place].astype(np.int64)
    if len(row) < place.stop - place.start:
        raise ValueError(f"sample {number}: the file of tokens ends before it")
    return torch.from_numpy(row)


def positions(row: torch.Tensor) -> torch.Tensor:
    """Of the tokens that are given to the model: from 0 on behind the end of a document."""
    places = torch.arange(len(row) - 1)
    begins = torch.zeros_like(places)
    begins[1:] = torch.where(row[:-2] == END, places[1:], 0)
    return places - begins.cummax(0).values


def arrow_rows(corpus: Corpus, folder: Path, library: Any) -> Callable[[Keys], Rows]:
    """Rows of Hugging Face's data sets, as tensors."""
    library.disable_progress_bars()

    def rows() -> Any:
        for number in range(ROWS):
            yield {"input_ids": corpus.tokens[corpus.place(number)].astype(np.int32)}

    features = library.Features({"input_ids": library.Sequence(library.Value("int32"))})
    stored = library.Dataset.from_generator(rows, features=features, cache_dir=str(folder))
    stored = stored.with_format("torch")

    def read(keys: Keys) -> Rows:
        return [(row,) for row in stored[[number for _, number in keys]]["input_ids"]]

    return read


def listed(corpus: Corpus, _: Path, __: Any) -> Callable[[Keys], Rows]:
    """As a tokenizer hands them over: a list of Python's integers for each row."""
    rows = [corpus.tokens[corpus.place(number)].tolist() for number in range(ROWS)]
    return lambda keys: [(torch.tensor(rows[number]),) for _, number in keys]


READERS: Mapping[str, Callable[[Corpus, Path, Any], Callable[[Keys], Rows]]] = {
    "memmap": mapped,
    "workers_1": mapped,
    "workers_4": mapped,
    "workers_16": mapped,
    "packed": packed,
    "hf_datasets": arrow_rows,
    "python_lists": listed,
}


def wrong(arm: str, corpus: Corpus, keys: Keys, seen: Sequence[torch.Tensor]) -> float:
    """Tokens that are not those of their places, and positions that do not count from the last
    document's end."""
    random = READERS[arm] is mapped
    count = 0
    for row, (epoch, number) in enumerate(keys):
        place = corpus.random_place(epoch, number) if random else corpus.place(number)
        expected = corpus.tokens[place].tolist()
        count += sum(a != b for a, b in zip(seen[0][row].tolist(), expected, strict=True))
        if arm == "packed":
            position = -1
            for token, told in zip(expected, seen[1][row].tolist(), strict=False):
                position += 1
                count += told != position
                position = -1 if token == END else position
    return float(count)
