"""The field's words, by which `list` and the search box of reports find what has another name."""

from __future__ import annotations

import re

# Patterns of both, which Python and browsers read alike: what the field says, and which names of
# techniques, cases or arms that is here.
WORDS = {
    "amp|autocast": "precision/(mixed|training_step)",
    "data_?loader|num_workers": "input/(workers|pipeline|loader_libraries|prefetch)",
    "dp|ddp": "ddp|data_parallel",
    "flash(_?attention)?|sdpa": "flash|sdpa",
    "fsdp|zero": "fsdp|zero_|hsdp",
    "mfu|tflops": "ceiling/gemm|job/(step|ladder)",
    "packing": "pack(ed|ing)|document_mask|dynamic_size",
    "pin_memory": "pinned",
    "prefetch_factor": "input/prefetch",
}


def in_our_words(filter: str | None) -> str | None:
    """The filter, or, where it is a word of the field, the names that it has here."""
    same = (ours for word, ours in WORDS.items() if re.fullmatch(word, filter or "", re.IGNORECASE))
    return next(same, filter)
