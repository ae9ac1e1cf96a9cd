"""What makes a build doubtful: flags that neither gpulift nor its type gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis import conditions
from gpulift.analysis.summary import summarise
from gpulift.records.model import Build
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests import runs_made, sample

OWN = read_record(runs_made.full_gpu()[0]).context.build
FOREIGN = "-fno-inline -O3 -DNDEBUG"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ""),
        (
            {"type": "RelWithDebInfo", "flags": "-O2 -g -DNDEBUG", "cuda_flags": "-O2 -g -DNDEBUG"},
            "",
        ),
        ({"flags": FOREIGN}, f"C++: {FOREIGN}"),
        ({"flags": ""}, "C++: none"),
        ({"cuda_flags": "-G"}, "CUDA: -G"),
        ({"cuda_compiler": " ", "cuda_flags": ""}, ""),
        ({"link_flags": "-Wl,-z,lazy"}, "linker: -Wl,-z,lazy"),
        ({"environment": {"NVCC_APPEND_FLAGS": "-O0"}}, "NVCC_APPEND_FLAGS: -O0"),
        ({"environment": {"LIBRARY_PATH": "#1a2b3c4d"}}, ""),
        ({"flags": "-O1", "cuda_flags": "-G"}, "C++: -O1; CUDA: -G"),
        ({"type": "Debug", "flags": "-g -O1"}, ""),
        ({"flags": None, "cuda_flags": None, "link_flags": None}, ""),
    ],
)
def test_flags_of_an_optimised_build_are_foreign_beyond_those_of_its_type(
    changes: dict[str, Any], told: str
) -> None:
    build = replace(OWN, **changes)
    assert build.foreign_flags == told
    assert build.doubt == (f"built with foreign flags ({told})" if told else "")


def test_all_that_makes_a_build_doubtful_is_told() -> None:
    build = replace(OWN, dirty=True, flags="-O1")
    assert build.doubt == "built from uncommitted changes and with foreign flags (C++: -O1)"
    assert Build("unknown").doubt == "built from an unknown commit"


def test_reports_and_citations_mark_it() -> None:
    raw = runs_made.full_gpu()[0]
    raw["context"] = {**raw["context"], "build": {**sample.BUILD, "flags": FOREIGN}}
    record = read_record(raw)
    mark, _ = summarise(Run(Path("x"), (record,)), None).marks  # the other: launches are missing
    assert mark == f"built with foreign flags (C++: {FOREIGN})"
    assert f"foreign flags (C++: {FOREIGN})" in conditions.commit(record.context.build)
