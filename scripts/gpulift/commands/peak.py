"""`gpulift peak`: what makers' papers say that a card reaches, dense, by number format.

The figures are in card_peaks.json beside the package's modules, for anybody's use (CC0); its schema
is beside it. Other code finds both by `importlib.resources.files("gpulift")`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gpulift.commands.shared import print_json
from gpulift.ground import text
from gpulift.ground.arguments import Json
from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.ground.near import near
from gpulift.records.find import model_named
from gpulift.records.model import slug

FILE = Path(__file__).parents[1] / "card_peaks.json"
FORMATS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}  # torch's


def peak(
    card: Annotated[
        str, typer.Argument(help="As the driver names it, or words of it: h200, 4090.")
    ],
    dtype: Annotated[
        str | None, typer.Argument(help="bf16, fp8, memory, ...; all that are known by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Dense peak rates of a card by number format, with the source of each: datasheets'."""
    known = json.loads(FILE.read_text(encoding="utf-8"))["cards"]
    found = known[card_named(card, known)]
    peaks = found["peaks"]
    if dtype is not None:
        name = dtype.lower().removeprefix("torch.")
        name = FORMATS.get(name, name)
        if name not in peaks:
            of_card = f"{found['name']}: no figure with a source for {text.visible(dtype)}"
            raise GpuliftError(f"{of_card}; known are {', '.join(peaks)}", USAGE)
        peaks = {name: peaks[name]}
    if as_json:
        print_json([{"card": found["name"], "format": k, **one} for k, one in peaks.items()])
        return
    for name, one in peaks.items():
        value = f"{one['value'] / 1e12:g} T{one['unit']}"
        dense = "" if name == "memory" else " dense"
        typer.echo(f"{found['name']}  {name:6}  {value:>13}{dense}  {one['source']}")


def card_named(wanted: str, known: Mapping[str, Any]) -> str:
    """The key of the card that a user means, by its name, another name or words of one."""
    names = {slug(name): key for key, one in known.items() for name in one.get("also", ())}
    key = names.get(slug(wanted)) or model_named(wanted, list(known))
    if key is None:
        words = {key.removeprefix("nvidia-"): key for key in known}
        close = near(slug(wanted).removeprefix("nvidia-"), words) or list(words)
        told = "near it are" if len(close) < len(words) else "known are"
        said = f"{text.visible(wanted) or repr(wanted)}: no card of that name"
        raise GpuliftError(f"{said}; {told} {', '.join(close)}", USAGE)
    return key
