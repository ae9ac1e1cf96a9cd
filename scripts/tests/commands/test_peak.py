"""`gpulift peak`, and whether the figures that it gives others are right."""

from __future__ import annotations

import importlib.resources
import json
import re
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from gpulift import cli
from gpulift.analysis.reference import read_reference
from gpulift.ground.errors import OK, USAGE
from gpulift.ground.registers import register
from gpulift.records.model import slug
from tests.conftest import CHECKOUT

FILE, SCHEMA = (
    json.loads((files("gpulift") / f"card_peaks.{kind}").read_text("utf-8"))
    for kind in ("json", "schema.json")
)
CARDS: dict[str, Any] = FILE["cards"]
# Papers give three digits, of some the half of two. What one could mix up is further off: sparsity
# and accumulation are factors of 2, the two clocks of Hopper cards 8 %, the multiprocessors of a
# chip and of a card 5 %.
ROUNDED = 0.02
WITH_CLOCKS = {key: one for key, one in CARDS.items() if "boost_hz" in one}


def test_it_is_as_its_schema_says() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(FILE, SCHEMA)
    assert all(key == slug(one["name"]) for key, one in CARDS.items())
    named = [slug(name) for one in CARDS.values() for name in (one["name"], *one.get("also", ()))]
    assert len(named) == len(set(named))


def test_it_is_where_others_are_told_to_look() -> None:
    told = (CHECKOUT / "scripts" / "gpulift" / "exchange" / "README.md").read_text("utf-8")
    ((code, shown),) = re.findall(r"(cards = .*\n(?:cards\[.*\]))  # (\S+) FLOP/s", told)
    first, second = code.splitlines()
    found: dict[str, Any] = {"json": json, "importlib": importlib}
    exec(first, found)
    assert eval(second, found) == float(shown)


@pytest.mark.parametrize(
    "change",
    [
        {"license": "MIT"},
        {"cards": {"NVIDIA H200": CARDS["nvidia-h200"]}},
        {"cards": {"a": {"name": "A", "architecture": 90, "peaks": {}}}},
        {
            "cards": {
                "a": CARDS["nvidia-h200"] | {"peaks": {"bf16": {"value": 1, "unit": "FLOP/s"}}}
            }
        },
        {
            "cards": {
                "a": CARDS["nvidia-h200"]
                | {"peaks": {"int8": CARDS["nvidia-h200"]["peaks"]["fp32"]}}
            }
        },
    ],
    ids=["another licence", "a key with spaces", "no peaks", "no source", "another unit"],
)
def test_its_schema_refuses(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(FILE | change, SCHEMA)


def test_machines_are_judged_by_the_same_figures() -> None:
    compared = 0
    for file in (CHECKOUT / "results" / "reference").glob("*.json"):
        held = read_reference(file)
        for roof, told in held.peaks.items():
            name = "memory" if roof == "device_memory" else roof.removeprefix("gemm/")
            one = CARDS.get(file.stem, {"peaks": {}})["peaks"].get(name)
            if one is not None:
                assert (one["value"], one["unit"]) == (told.value, told.unit), f"{file.stem} {roof}"
                compared += 1
            else:
                # The cards whose papers give no product's rate.
                assert not roof.startswith("gemm/"), f"{file.stem} {roof}"
    assert compared >= 80


@pytest.mark.parametrize("key", WITH_CLOCKS)
def test_a_figure_is_that_of_its_multiprocessors_and_clock(key: str) -> None:
    """Operations per clock come from the architectures' papers, the figures from the cards'."""
    card, known = CARDS[key], register("peaks")
    per_clock = known["operations"][str(card["architecture"])]["per_clock"]
    for name, one in card["peaks"].items():
        if name == "memory":
            continue
        clock = card.get("boost_hz_fp32", card["boost_hz"]) if name == "fp32" else card["boost_hz"]
        halved = "GeForce" in card["name"] and name in known["halved_on_geforce"]["types"]
        computed = per_clock[name] * card["multiprocessors"] * clock / (2 if halved else 1)
        assert one["value"] == pytest.approx(computed, rel=ROUNDED), name


def test_most_cards_are_held_against_their_clock() -> None:
    assert len(WITH_CLOCKS) >= 11


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["h200", "bf16"], OK, "NVIDIA H200  bf16    989.5 TFLOP/s dense  NVIDIA H200 Tensor Core"),
        (["NVIDIA H200", "torch.bfloat16"], OK, "NVIDIA H200  bf16    989.5 TFLOP/s dense"),
        (["h100 sxm", "FP8"], OK, "NVIDIA H100 80GB HBM3  fp8      1979 TFLOP/s dense"),
        (["rtx 4090", "half"], OK, "NVIDIA GeForce RTX 4090  fp16    165.2 TFLOP/s dense"),
        (["h100 pcie", "memory"], OK, "NVIDIA H100 PCIe  memory         2 TB/s  "),
        (["h300"], USAGE, "h300: no card of that name; near it are h200"),
        (["zzzz"], USAGE, "zzzz: no card of that name; known are a100-80gb-pcie, "),
        ([""], USAGE, "'': no card of that name; known are a100-80gb-pcie, "),
        (["a\x1b[2J"], USAGE, r"a\x1b[2J: no card of that name"),
        (["a100", "bf16"], USAGE, "a100 is a part of nvidia-a100-80gb-pcie, "),
        (
            ["h200", "fp4"],
            USAGE,
            "NVIDIA H200: no figure with a source for fp4; known are memory, ",
        ),
    ],
)
def test_what_is_shown_or_unknown_is_one_line(
    words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["peak", *words]) == code
    said = capsys.readouterr()
    (line,) = (said.err if code else said.out).splitlines()
    assert line.startswith(f"gpulift: error: {told}" if code else told)


def test_all_formats_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["peak", "h200"]) == OK
    assert len(capsys.readouterr().out.splitlines()) == len(CARDS["nvidia-h200"]["peaks"])
    assert cli.main(["peak", "h200", "--json"]) == OK
    told = json.loads(capsys.readouterr().out)
    of_file = CARDS["nvidia-h200"]["peaks"]
    assert told == [{"card": "NVIDIA H200", "format": k, **one} for k, one in of_file.items()]
