"""The switches that are tried on a training script, none of which knows of the others.

`synchronize`, `wait_event`, `wait_stream` and `item` are torch's own, whatever is flipped.
"""

from __future__ import annotations

from .exchange import Accumulating, NoExchange, Reshard
from .flags import CudnnAttention, EfficientAttention, FlashAttention, Tf32, Threads
from .forward import Bf16, Compile
from .leftovers import Anomaly, Deterministic, Fill, SecondPass, Unread, Unwrapped
from .optimizers import Foreach, Fused, SetToNone
from .switch import Seen, Switch
from .waits import Reads, Synchronize, item, synchronize, wait_event, wait_stream

__all__ = ["Seen", "Switch", "item", "switches", "synchronize", "wait_event", "wait_stream"]

_ALL: tuple[type[Switch], ...] = (
    *(Tf32, CudnnAttention, FlashAttention, EfficientAttention, Bf16),
    *(Foreach, Fused, SetToNone, Compile, Reads, Synchronize, Threads),
    *(Anomaly, Fill, Deterministic, Unwrapped, Unread, SecondPass),
    *(NoExchange, Accumulating, Reshard),
)


def switches(seen: Seen) -> list[Switch]:
    """All switches, for what one step showed; `state` of each says whether it can be tried."""
    return [switch(seen) for switch in _ALL]
