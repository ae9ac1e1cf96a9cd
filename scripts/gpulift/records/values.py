"""What a value of a record may be, in the words of msgspec, which checks and converts it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from msgspec import Meta

Held = TypeVar("Held")

if TYPE_CHECKING:
    Maybe: TypeAlias = Held | None
else:

    class Maybe:
        """`Maybe[float]` is None where the key is absent; null is as wrong as in any other."""

        def __class_getitem__(cls, held: Any) -> Any:
            return held


FINITE = sys.float_info.max  # neither infinity nor NaN is at most this
LARGEST = 1e30  # beyond any quantity of a machine; products of some of these stay finite
SMALLEST = (
    1e-12  # below what any clock or meter tells: light crosses a third of a millimetre in 1 ps
)
LONGEST_S = 1e9

# What a program computed, which may have diverged or vanished.
Result = Annotated[float, Meta(ge=-FINITE, le=FINITE)]
Error = Annotated[float, Meta(ge=0, le=FINITE)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
Seconds = Annotated[float, Meta(ge=SMALLEST, le=LONGEST_S)]
NotNegative = Annotated[float, Meta(ge=0, le=LARGEST)]
Text = Annotated[str, Meta(min_length=1)]
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # msgspec knows no larger limits
Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]


def about(text: str) -> Meta:
    """What the schema says of a field."""
    return Meta(description=text)


def among(*names: str) -> Meta:
    """Of a text that is one of these; what is wrong with another one tells them all."""
    return Meta(pattern=rf"^({'|'.join(names)})\Z")
