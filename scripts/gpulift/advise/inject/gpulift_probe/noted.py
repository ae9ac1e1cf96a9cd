"""What a step does that no switch changes."""

from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import missing
from .seen import COPIED_BYTES, COPIES
from .switch import Seen

MANY = 8  # of what one call could do
FROZEN = 0.1  # of a model's weights
TOLD_LINES, REASON_LETTERS = 3, 120


def notes(seen: Seen) -> list[str]:
    """One short line for each."""
    return [*_calls(seen), *_operators(seen), *_model(seen), *_compiler(), *_missing(seen)]


def _calls(seen: Seen) -> Iterator[str]:
    """What the script's own lines call."""
    calls = seen.calls
    if reads := calls.get("item"):
        yield f"values read back: {reads} a step, each of which waits for the device" + _at(
            seen, "item"
        )
    if synchronizations := calls.get("synchronize"):
        at = _at(seen, "synchronize")
        yield f"torch.cuda.synchronize and the like: {synchronizations} a step{at}"
    if copies := calls.get(COPIES):
        megabytes = calls[COPIED_BYTES] / 1e6
        yield (
            f"pageable memory: {copies} copies to the device a step, {megabytes:.1f} MB; "
            "from pinned memory they need not wait"
        )
    if (norms := calls.get("norm", 0)) >= MANY:
        way = "torch.nn.utils.get_total_norm does it in a few kernels"
        yield f"norms one by one: {norms} a step{_at(seen, 'norm')}; {way}"
    if (zeroed := calls.get("zero_", 0)) >= MANY:
        way = "optimizer.zero_grad() frees gradients"
        yield f"tensors zeroed one by one: {zeroed} a step{_at(seen, 'zero_')}; {way}"


def _at(seen: Seen, kind: str) -> str:
    lines = seen.lines.get(kind, Counter()).most_common(TOLD_LINES)
    return f" ({', '.join(line for line, _ in lines)})" if lines else ""


def _operators(seen: Seen) -> Iterator[str]:
    if not seen.operators:
        yield "operators: not known, since the script runs a profiler itself"
    if products := _attention_by_hand(seen.operators):
        yield (
            f"attention by hand: {products} products over a softmax a step; "
            "F.scaled_dot_product_attention does it in one kernel"
        )
    if plain := seen.operators.get("aten::_scaled_dot_product_attention_math"):
        yield (
            f"attention without a fused kernel: {plain} a step fall back to plain products; its "
            "mask, type or size of heads, or a back end that is off, rules the fused ones out"
        )


def _model(seen: Seen) -> Iterator[str]:
    if len(seen.optimizers) >= MANY:
        yield f"{len(seen.optimizers)} optimizers take turns: one of all weights does it at once"
    parts = [part for module in seen.modules for part in module.modules()]
    weights = {id(one): one for module in seen.modules for one in module.parameters()}.values()
    whole = sum(one.numel() for one in weights)
    frozen = sum(one.numel() for one in weights if not one.requires_grad)
    if whole and frozen / whole >= FROZEN:
        yield (
            f"{100 * frozen / whole:.0f} % of the weights are not trained by these steps: of a "
            "later phase that trains them nothing is known"
        )
    own = [part for part in parts if isinstance(part, DistributedDataParallel)]
    if any(part.process_group.size() == 1 for part in own):
        yield "DistributedDataParallel around one process: it copies gradients to no one"
    hooks = [file for part in parts for hook in _hooks(part) if (file := _own_file(hook))]
    if hooks:
        yield f"hooks of the script on modules: {len(hooks)}, of {', '.join(sorted(set(hooks)))}"


def _hooks(part: nn.Module) -> Iterator[object]:
    for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        yield from (getattr(part, kind, None) or {}).values()


def _own_file(hook: object) -> str:
    """That a function of the script is in; empty for one of a package."""
    code = getattr(inspect.unwrap(hook), "__code__", None)  # type: ignore[arg-type]
    file = code.co_filename if code else ""
    installed = any(folder in file for folder in missing.INSTALLED) or file.startswith("<")
    return "" if installed else os.path.basename(file)


def _compiler() -> Iterator[str]:
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return
    breaks = dynamo.counters["graph_break"].elements()
    again = (reason for reasons in dynamo.guard_failures.values() for reason in reasons)
    for what, reasons in (("graph breaks", [*breaks]), ("recompilations", [*again])):
        if reasons:
            first = _first_line(reasons[0])
            yield f"torch.compile: {len(reasons)} {what}, the first by: {first}"


def _first_line(reason: object) -> str:
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    return lines[0][:REASON_LETTERS] if lines else "no reason given"


def _missing(seen: Seen) -> Iterator[str]:
    kinds = {type(part) for module in seen.modules for part in module.modules()}
    modules = (sys.modules.get(kind.__module__) for kind in kinds)
    files = {str(getattr(module, "__file__", "")) for module in modules}
    for package, line in missing.told(files):
        file = os.path.join(*line.split(os.sep)[-2:])
        yield f"{package}: is looked for and not there ({file}), so that slower code may run"


def _attention_by_hand(operators: Mapping[str, int]) -> int:
    if any("scaled_dot_product" in operator for operator in operators):
        return 0
    products = operators.get("aten::bmm", 0) + operators.get("aten::baddbmm", 0)
    # Each takes the scores and the values; backward adds more.
    return min(operators.get("aten::_softmax", 0), products // 2)
