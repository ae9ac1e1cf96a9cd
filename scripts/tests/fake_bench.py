"""Stands in for gpulift-bench: answers --describe, --health and --catalogue, writes sample records.

FAKE_BENCH chooses the behaviour: ok (default), gpu, failed, nothing, empty, usage, full, other,
busy, crash, wait, cards: two GPUs with links, of which a run in a folder whose name holds
FAKE_INTERRUPT is interrupted; open: the launches of one roof vary too much for the first three
to decide; cases: of the rows that it is told, all launches that the folder lacks; or burn: cards
whose products have the rates of FAKE_BURN, in FLOP/s, in the last of which results are wrong where
it is negative.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

from tests import runs_made, sample

BEHAVIOUR = os.environ.get("FAKE_BENCH", "ok")
CATALOGUE: list[sample.Json] = [
    {
        "id": "allocator/host_malloc",
        "question": "Which allocator is fastest?",
        "gpus": 0,
        "arms": ["glibc", "jemalloc"],
        "cases": [{"id": "threads:2/sizes:collate", "quick": True, "regime": "burst"}],
    },
    {
        "id": "transfer/pinned_copy",
        "question": "What is pinned memory worth?",
        "gpus": 1,
        "arms": ["pageable", "pinned"],
        "cases": [{"id": "bytes:4096"}, {"id": "bytes:65536", "quick": True}],
    },
    {"id": "model/resnet", "unavailable": "built without LibTorch", "remedy": "./gpulift setup"},
]
PEER_COPY = {
    "id": "ceiling/peer_copy",
    "question": "How fast are the links?",
    "gpus": 2,
    "arms": ["write"],
    "cases": [{"id": "bytes:268435456", "quick": True}],
}
ROOFS = [
    {
        "id": f"ceiling/{name}",
        "question": "How fast?",
        "gpus": 1,
        "ceiling": True,
        "arms": [arm],
        "cases": [{"id": "bytes:1073741824", "quick": True}],
    }
    for name, arm in (("host_link", "h2d"), ("device_memory", "read"))
]
CARDS = ("1a2b3c4d", "2b3c4d5e", "3c4d5e6f", "4d5e6f7a")[: 4 if BEHAVIOUR == "burn" else 2]
FIXED = "regime:sustained/product:fixed"
GEMM = {
    "id": "ceiling/gemm",
    "question": "How fast?",
    "gpus": 1,
    "ceiling": True,
    "arms": ["fp32", "bf16"],
    "cases": [{"id": FIXED, "regime": "sustained"}],
}


def write_records(folder: Path, resumed: bool) -> None:
    """One more file when the run is resumed, so that tests see the appending."""
    made = {"gpu": runs_made.full_gpu, "failed": runs_made.with_troubles}
    records = made.get(BEHAVIOUR, runs_made.without_gpu)()
    if "--modules" in sys.argv:
        records = records_of(Path(sys.argv[sys.argv.index("--modules") + 1]))
    if BEHAVIOUR in ("wait", "full", "crash"):
        records = records[:2]
    if not resumed:
        sample.write(folder, records)


def write_profile(folder: Path, flags: list[str]) -> int:
    """Of the one arm in the file of rows, whose name may say that it cannot run; there is no record
    where FAKE_NO_RECORD says why."""
    if why := os.environ.get("FAKE_NO_RECORD"):
        print(f"gpulift-bench: {why}", file=sys.stderr)
        return 75
    technique, case, arm = Path(flags[flags.index("--rows") + 1]).read_text().strip().split("\t")
    skipped = {"outcome": "skipped", "reason": "no arm can run here: no page is pinned"}
    cost = {"bytes": 2.0 * (1 << 30), "flops": 0.0, "items": 0.0, "roof": "device_memory"}
    arms = [{"name": arm, "role": "baseline", "outcome": "ok", "cost": cost}]
    told = skipped if arm == "pinned" else {"outcome": "ok", "arms": arms}
    folder.mkdir()
    line = {"technique": technique, "case_id": case, **told}
    (folder / "one.jsonl").write_text(json.dumps(line) + "\n")
    return 0


def measure_otherwise(folder: Path, flags: list[str]) -> int:
    """Not the same records at each call."""
    if "--profile" in flags:
        return write_profile(folder, flags)
    made = {"open": write_launches, "cases": write_cases, "cards": measure_cards, "burn": burn}
    return made[BEHAVIOUR](folder, flags)


def records_of(modules: Path) -> list[sample.Json]:
    """Of the one technique in a folder of modules: each arm takes half as long as the one before;
    with `failed`, the last one gave another result."""
    (manifest,) = (json.loads(file.read_text()) for file in modules.glob("*.json"))
    cost = {"items": 8.0, "item": "image"}
    quiet = {"noise": 1e-4, "launch_noise": 1e-4, "cpu_cores": 2.0}
    arms = [
        sample.arm(name, 0.05 / 2**index, cost=cost, checked=False, **quiet)
        for index, name in enumerate(manifest["arms"])
    ]
    records = sample.launches(3, manifest["id"], {}, arms, context=sample.CPU_CONTEXT)
    if BEHAVIOUR == "failed":
        for record in records:
            wrong = {"outcome": "failed", "reason": "another result", "role": "technique"}
            record["arms"][-1] = {"name": manifest["arms"][-1], **wrong}
    return records


def write_launches(folder: Path, flags: list[str]) -> int:
    """Writes all that the folder lacks of the launches that are asked for, of the rows that are."""
    count = int(flags[flags.index("--launches") + 1]) if "--launches" in flags else 3
    there = [json.loads(x) for file in folder.glob("*.jsonl") for x in file.open(encoding="utf-8")]
    done = {(one["technique"], one["launch"]) for one in there}
    rows = Path(flags[flags.index("--rows") + 1]).read_text() if "--rows" in flags else ""
    made = [one for one in runs_made.open_roof(count) if not rows or one["technique"] in rows]
    sample.write(folder, [x for x in made if (x["technique"], x["launch"]) not in done])
    return 0


def write_cases(folder: Path, flags: list[str]) -> int:
    """Of the rows that are asked."""
    text = Path(flags[flags.index("--rows") + 1]).read_text()
    arms: dict[tuple[str, str], list[str]] = {}
    for technique, case, arm in (line.split("\t") for line in text.splitlines()):
        arms.setdefault((technique, case), []).append(arm)
    there = [
        json.loads(x) for file in folder.glob("*.jsonl") for x in file.read_text().splitlines()
    ]
    done = {(one["technique"], one["case_id"], one["launch"]) for one in there}
    for (technique, case), names in arms.items():
        values = dict(part.split(":") for part in case.split("/"))
        made = sample.launches(3, technique, values, [sample.arm(name, 1e-3) for name in names])
        lacking = [one for one in made if (technique, case, one["launch"]) not in done]
        sample.write(folder, lacking)
    return 0


def index_of_gpu() -> int:
    """Which one the flags name."""
    return int(sys.argv[sys.argv.index("--gpu") + 1]) if "--gpu" in sys.argv else 0


def context_here() -> sample.Json:
    """The facts of the GPU that the flags name, or of a machine without one."""
    if BEHAVIOUR in ("cards", "burn") and index_of_gpu() < len(CARDS):
        gpu = {**sample.GPU_CONTEXT["gpu"], "card": CARDS[index_of_gpu()]}
        return {**sample.GPU_CONTEXT, "gpu": gpu}
    return (
        sample.GPU_CONTEXT
        if BEHAVIOUR in ("gpu", "failed", "open", "cases")
        else sample.CPU_CONTEXT
    )


def measure_cards(folder: Path, _: list[str]) -> int:
    """All that the folder lacks of what one of the cards measures, or both do with each other."""
    records = runs_made.full_gpu()
    if "--gpus" in sys.argv:
        from tests.analysis.machine.test_qualify_links import copies

        records = copies({}, {}, {}, gpus=2)
    card = CARDS[index_of_gpu()]
    records = json.loads(json.dumps(records).replace(sample.GPU_CONTEXT["gpu"]["card"], card))
    interrupt = os.environ.get("FAKE_INTERRUPT", "")
    interrupted = bool(interrupt) and interrupt in folder.name
    done = sum(len(file.read_text("utf-8").splitlines()) for file in folder.glob("*.jsonl"))
    sample.write(folder, records[done : 2 if interrupted else None])
    return 130 if interrupted else 0


def burn(folder: Path, flags: list[str]) -> int:
    """One card's part of what all do at once."""
    (asked,) = (flag for flag in flags if flag.startswith("--benchmark_filter="))
    assert re.search(asked.partition("=")[2], f"ceiling/gemm/{FIXED}/bf16")
    rate = float(os.environ["FAKE_BURN"].split()[index_of_gpu()])
    exact = {"noise": 0.0, "launch_noise": 0.0}
    arms = [
        sample.arm(name, 1e12 / of, cost={"flops": 1e12, "roof": f"gemm/{name}"}, **exact)
        for name, of in (("fp32", 5e13), ("bf16", abs(rate)))
    ]
    case = {"regime": "sustained", "product": "fixed"}
    count = int(flags[flags.index("--launches") + 1])
    made = sample.launches(count, "ceiling/gemm", case, arms, context=context_here())
    if rate < 0:
        made[-1] |= {"outcome": "failed", "reason": "bf16: error 1 of 0.01"}
    sample.write(folder, made)
    return int(rate < 0)


def wait_for_interrupt() -> int:
    """Ends only on SIGINT, and counts how often it came."""
    got: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
    print("waiting", file=sys.stderr, flush=True)
    while not got:
        time.sleep(0.01)
    time.sleep(0.2)
    print(f"interrupts: {len(got)}", file=sys.stderr, flush=True)
    return 130


def tell_catalogue(flags: list[str]) -> int:
    """All techniques, or the one that has an axis."""
    if "--axis" in flags:
        return tell_axis(flags[flags.index("--axis") + 1])
    folders = [Path(flags[at + 1]) for at, flag in enumerate(flags) if flag == "--more-modules"]
    more = [json.loads(file.read_text()) for one in folders for file in one.glob("*.json")]
    also = {"cards": [PEER_COPY], "open": ROOFS, "burn": [GEMM]}.get(BEHAVIOUR, [])
    print(json.dumps(CATALOGUE + also + more))
    return 0


def tell_axis(axis: str) -> int:
    """The one technique that has it, with its values; any other name is refused."""
    name, _, values = axis.partition("=")
    if name != "bytes":
        print(f"gpulift-bench: --axis {name}: there are bytes, threads", file=sys.stderr)
        return 2
    cases = [{"id": f"bytes:{value}", "off_sweep": True} for value in values.split(",")]
    copies: sample.Json = CATALOGUE[1]
    print(json.dumps([{**copies, "cases": cases}]))
    return 0


def tell_indices(names: list[str]) -> int:
    """Of cards, the first two of whose UUIDs begin with GPU-a and GPU-b."""
    names = [str(index) for index in range(len(CARDS))] if names == ["all"] else names
    places = [name if name.isdecimal() else str("ab".find(name[4:5])) for name in names]
    if "-1" in places:
        print(f"gpulift-bench: --gpus {','.join(names)}: no such UUID", file=sys.stderr)
        return 2
    print(f"[{','.join(places)}]")
    return 0


def main() -> int:
    """Does what the flags and FAKE_BENCH say."""
    flags = sys.argv[1:]
    context = context_here()
    if "--describe" in flags:
        print(json.dumps(context))
        return 0
    if "--health" in flags:
        known = {"card": "0a1b2c3d", "ecc": {"enabled": True, "uncorrected_volatile": 0}}
        print(json.dumps(known if "gpu" in context else {"gpu_missing": "no driver"}))
        return 0
    if "--catalogue" in flags:
        return tell_catalogue(flags)
    if "--gpu-indices" in flags:
        return tell_indices(flags[flags.index("--gpus") + 1].split(","))
    print("flags:", *flags, file=sys.stderr, flush=True)
    if BEHAVIOUR == "usage":
        (Path(flags[flags.index("--records") + 1]) / ".lock").touch()
        print("gpulift-bench: no case matches the filter", file=sys.stderr)
        return 2
    if BEHAVIOUR == "empty":
        print("gpulift-bench: model/resnet cannot run here", file=sys.stderr)
        return 77
    folder = Path(flags[flags.index("--records") + 1])
    if "--profile" in flags or BEHAVIOUR in ("open", "cards", "cases", "burn"):
        return measure_otherwise(folder, flags)
    write_records(folder, any(folder.glob("*.jsonl")))
    if BEHAVIOUR == "wait":
        return wait_for_interrupt()
    if BEHAVIOUR == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"failed": 1, "full": 1, "other": 4, "busy": 75, "nothing": 77}.get(BEHAVIOUR, 0)


if __name__ == "__main__":
    sys.exit(main())
