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


LARGEST = sys.float_info.max  # neither infinity nor NaN is at most this

Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=LARGEST)]
NotNegative = Annotated[float, Meta(ge=0, le=LARGEST)]
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # msgspec knows no larger limits
Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]


def about(text: str) -> Meta:
    """What the schema says of a field."""
    return Meta(description=text)
