"""Whether two sets of records may be compared: what must be equal, and what one question allows.

Everything that a record's context holds must be equal on both sides, and so must the method of the
measuring. Left out are the options that only change how many windows are taken (`WINDOWS_ONLY`),
the texts that say why there is no GPU, and the host's id, since another one of the same kind is as
good. One declared difference, a factor, is what the comparison
then asks about; it allows these facts and no others:

- driver: the driver and the CUDA version that it offers (`cuda_driver`), which comes with it.
- torch: every library whose version a record tells, since a torch brings its own CUDA libraries.
  The CUDA runtime that gpulift was linked with is not torch's and stays equal.
- card: the card and its VBIOS. Not what records say of the host: a card in another host is a
  question about two machines, which the record cannot take apart. ECC, MIG and the power limit are
  settings.
- gpu-model: all that describes the GPU but ECC and MIG, which are settings; a model has its own
  power limit. Driver, host and build stay equal: the question is not about the machines.
- commit: the commit and whether there were uncommitted changes.

From schema 1.8 on records tell the flags of compilers and linker, and more of the environment: what
an older record could not tell is no difference.

Versions of libraries, the disk of files and further GPUs are told by the records of those
techniques alone that have to do with them. A side has one of each, and what both sides know must be
equal. A further GPU's facts (`gpus.1.card`) go with the factors of the first one's.

A gate asks about a commit: its two builds are held against each other in the same way, before
anything is measured.

The declared factor is what lies between the sides: within a side it is one value too, but that for
card and gpu-model a side may hold several cards of one model, of which it is a sample. No card may
be in both samples: they would not be independent. A run folder is always of one card.

Arms in C++ note the release of their LibTorch (2.11.0), those in Python the whole version of their
torch (2.11.0+cu130): two facts, and a side has one of each. Until schema 1.6 versions were among
the notes (`VERSIONS`), and until 1.5 LibTorch's was noted as `torch` too, and hid that of Python
arms in cases with both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from gpulift.ground.errors import NOT_COMPARABLE, USAGE, GpuliftError
from gpulift.records.model import Context, Record
from gpulift.records.read import Run

ABSENT = "not recorded"
NO_GPU = "none"
WINDOWS_ONLY = frozenset(
    f"options.{key}" for key in ("quick", "launches", "arm_time_s", "precision", "seed")
)
TEXTS = frozenset({"gpu_missing", "gpu_remedy"})
HOST_ID = frozenset({"host.id", "host.id_of"})
ONE_CARD = frozenset({"gpu.card", "gpu.vbios"})
MEMORY_PARTS = 1000  # of which one may differ
GPU_SETTINGS = frozenset({"gpu.ecc", "gpu.mig"})

OF_TECHNIQUE = ("versions", "scratch", "gpus")  # parts of a context that not all records have
FURTHER_GPU = re.compile(r"gpus\.\d+\.")

# Of the libraries that a step runs through, where arms noted them.
VERSIONS = ("python", "torch", "libtorch", "jax", "numpy", "triton")
RELEASE = re.compile(r"\d+(\.\d+)*")  # all that an arm in C++ knows of its torch
NOTES_LIBTORCH = 6  # minor version of the schema from which on arms in C++ note it by that name
HAS_VERSIONS = 7  # from which on no version is a note
HAS_CONDITIONS = 8  # from which on flags are told, and all of the environment that is
# What was told of the environment before.
TOLD_BEFORE = re.compile(
    r"environment\.((MALLOC|NCCL|OMP|OPENBLAS|TORCH_NCCL|TORCH_SYMM_MEM)_.*|CUBLASLT_WORKSPACE_SIZE"
    r"|CUBLAS_WORKSPACE_CONFIG|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_DEVICE_ORDER|CUDA_FORCE_PTX_JIT"
    r"|CUDA_LAUNCH_BLOCKING|CUDA_MODULE_DATA_LOADING|CUDA_MODULE_LOADING|CUDA_VISIBLE_DEVICES"
    r"|GLIBC_TUNABLES|GPULIFT_TORCH|LD_PRELOAD|MKL_NUM_THREADS|NVIDIA_TF32_OVERRIDE"
    r"|PYTORCH_ALLOC_CONF|PYTORCH_CUDA_ALLOC_CONF|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE)"
)
SET = "set"  # what was told of preloaded libraries
FLAGS = (
    "build.cuda_flags",
    "build.cuda_host_compiler",
    "build.environment.",
    "build.flags",
    "build.link_flags",
    "build.linker",
)

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Factor:
    """`asked` are the facts of which one must differ, `allowed` all that may differ with it."""

    name: str
    asked: Callable[[str], bool]
    allowed: Callable[[str], bool]
    within_side: frozenset[str] = frozenset()

    def asks(self, fact: str) -> bool:
        """Whether it is one of those of which one must differ."""
        return self.asked(_of_any_gpu(fact))

    def allows(self, fact: str) -> bool:
        """Whether it may differ."""
        return self.allowed(_of_any_gpu(fact))

    def may_vary(self, fact: str) -> bool:
        """Whether a side may have several of it, in runs of several cards."""
        return _of_any_gpu(fact) in self.within_side


def _of_any_gpu(fact: str) -> str:
    """`gpus.1.card` becomes `gpu.card`."""
    return FURTHER_GPU.sub("gpu.", fact)


FACTORS = {
    factor.name: factor
    for factor in (
        Factor("driver", {"driver"}.__contains__, {"driver", "cuda_driver"}.__contains__),
        Factor(
            "torch",
            lambda key: key.startswith(("libraries.torch", "libraries.libtorch")),
            lambda key: key.startswith("libraries."),
        ),
        Factor("card", {"gpu.card"}.__contains__, ONE_CARD.__contains__, within_side=ONE_CARD),
        Factor(
            "gpu-model",
            {"gpu.name"}.__contains__,
            lambda key: key.startswith("gpu.") and key not in GPU_SETTINGS,
            within_side=ONE_CARD,
        ),
        Factor(
            "commit",
            {"build.commit", "build.dirty"}.__contains__,
            {"build.commit", "build.dirty"}.__contains__,
        ),
    )
}


@dataclass(frozen=True)
class FactDifference:
    """A fact that two records do not share."""

    fact: str
    base: Any
    head: Any

    def __str__(self) -> str:
        return f"{self.fact} ({_shown(self.base)} in base, {_shown(self.head)} in head)"


@dataclass(frozen=True)
class Common:
    """What both sides share, what was declared to differ, and what only one side knows."""

    equal: Mapping[str, Any]
    declared: tuple[FactDifference, ...]
    one_sided: tuple[str, ...]


def require_factor(name: str | None) -> Factor | None:
    """The declared factor of that name. Raises GpuliftError (usage) when there is none such."""
    if name is None:
        return None
    if name not in FACTORS:
        raise GpuliftError(f"--across knows {', '.join(FACTORS)}, not {name!r}")
    return FACTORS[name]


def require_comparable(base: Sequence[Run], head: Sequence[Run], factor: Factor | None) -> Common:
    """What the two sides have in common.

    Raises GpuliftError, not comparable: naming every fact that differs undeclared; usage: when the
    declared factor does not differ.
    """
    ours, others = _distinct(base), _distinct(head)
    for side, records in (("base", ours), ("head", others)):
        _require_one_set(side, records, factor)
    varying, varying_too = (_varying(side, factor) for side in (base, head))
    noted, noted_too = _noted("base", base, factor), _noted("head", head, factor)
    told, told_too = {**varying, **noted}, {**varying_too, **noted_too}
    found = [d for d in _between(ours, others, factor) if d.fact not in told.keys() & told_too]
    found += [
        FactDifference(fact, told[fact], told_too[fact])
        for fact in sorted(told.keys() & told_too.keys())
        if told[fact] != told_too[fact]
    ]
    declared = tuple(d for d in found if factor is not None and factor.allows(d.fact))
    undeclared = [d for d in found if d not in declared]
    if undeclared:
        raise GpuliftError(_refusal(undeclared, factor), NOT_COMPARABLE)
    if factor is not None and factor.within_side:
        _require_cards("base", base)
        _require_cards("head", head)
        _require_separate(_every_card(base), _every_card(head))
    if factor is not None and not any(factor.asks(d.fact) for d in declared):
        raise GpuliftError(f"the two sets do not differ in {factor.name}: drop --across", USAGE)
    mine, theirs = {**_known(ours), **told}, {**_known(others), **told_too}
    equal = {key: mine[key] for key in sorted(mine) if key in theirs and mine[key] == theirs[key]}
    changed = {d.fact for d in declared}
    one_sided = sorted((mine.keys() ^ theirs.keys()) - changed)
    return Common(equal, declared, tuple(filter(_tells, one_sided)))


def _tells(one_sided: str) -> bool:
    """Of a GPU that only one side used its name is enough."""
    return not FURTHER_GPU.match(one_sided) or one_sided.endswith(".name")


def _distinct(runs: Sequence[Run]) -> list[tuple[Run, Record]]:
    """Of each run the records whose facts are not those of an earlier one in it."""
    found: list[tuple[Run, Record]] = []
    for run in runs:
        own: list[Record] = []
        for record in run.records:
            if not any(_same_facts(record, one) for one in own):
                own.append(record)
        found += [(run, record) for record in own]
    return found


def _same_facts(one: Record, other: Record) -> bool:
    same = (one.method, one.schema) == (other.method, other.schema)
    return same and _fixed(one.context.facts) == _fixed(other.context.facts)


def _fixed(context: Mapping[str, Any]) -> dict[str, Any]:
    """What all records of a machine and a build share."""
    return {key: value for key, value in context.items() if key not in OF_TECHNIQUE}


def _between(
    base: Sequence[tuple[Run, Record]], head: Sequence[tuple[Run, Record]], factor: Factor | None
) -> list[FactDifference]:
    """What differs between any record of one side and any of the other, by name.

    A fact that each side may have several of differs where it does between all of them.
    """
    pairs = [{d.fact: d for d in differences(one, two)} for _, one in base for _, two in head]
    first: dict[str, FactDifference] = {}
    for pair in pairs:
        first = {**pair, **first}
    within = factor.within_side if factor is not None else frozenset()
    return [
        first[fact]
        for fact in sorted(first)
        if fact not in within or all(fact in pair for pair in pairs)
    ]


def _known(side: Sequence[tuple[Run, Record]]) -> dict[str, Any]:
    """Every fact that any record of a side has."""
    found: dict[str, Any] = {}
    for _, record in side:
        found = {**facts(record), **found}
    return found


def cards(runs: Sequence[Run]) -> set[str]:
    """The cards of a side, by their short hashes; of a run of several GPUs the first counts."""
    gpus = [run.records[0].context.gpu for run in runs]
    return {gpu.card for gpu in gpus if gpu is not None and gpu.card}


def _every_card(runs: Sequence[Run]) -> set[str]:
    """With those of further GPUs."""
    gpus = (gpu for run in runs for record in run.records for gpu in record.context.gpus)
    return cards(runs) | {gpu.card for gpu in gpus if gpu.card}


def _varying(runs: Sequence[Run], factor: Factor | None) -> dict[str, str]:
    """What a side may have several of, all of them; a fact that no run records is not there."""
    found: dict[str, set[str]] = {}
    within = factor.within_side if factor is not None else frozenset()
    for run in runs:
        known = facts(run.records[0])
        for fact in known.keys() & within:
            found.setdefault(fact, set()).add(str(known[fact]))
    return {fact: _joined(sorted(values)) for fact, values in found.items()}


def _joined(values: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(values[:-1]), values[-1]) if part)


def _noted(side: str, runs: Sequence[Run], factor: Factor | None) -> dict[str, Any]:
    """What the records of a side tell of their own techniques, by fact. Refuses a side that has two
    of one, but for the cards of several runs where the factor allows several."""
    found: dict[str, list[tuple[Any, Run, Record]]] = {}
    for run, record in ((one, record) for one in runs for record in one.records):
        for fact, value in _of_technique(record):
            seen = found.setdefault(fact, [])
            for known, of, first in seen:
                may_vary = factor is not None and factor.may_vary(fact) and of is not run
                if known != value and not may_vary:
                    difference = FactDifference(fact, known, value)
                    raise GpuliftError(_mixed(side, [difference], first, record), NOT_COMPARABLE)
            if not any(of is run for _, of, _ in seen):
                seen.append((value, run, record))
    return {fact: _one_of([value for value, _, _ in seen]) for fact, seen in found.items()}


def _one_of(values: Sequence[Any]) -> Any:
    """The value, or where there are several all of them as a text."""
    if all(one == values[0] for one in values):
        return values[0]
    return _joined(sorted({*map(str, values)}))


def _of_technique(record: Record) -> Iterable[tuple[str, Any]]:
    yield from _versions(record)
    scratch = record.context.scratch
    for key, value in vars(scratch).items() if scratch else ():
        if value not in ("", None):
            yield f"scratch.{key}", value
    for number, gpu in enumerate(record.context.gpus[1:], start=1):  # the first is `gpu`
        yield from _flat(gpu.facts, f"gpus.{number}.")


def _versions(record: Record) -> Iterable[tuple[str, str]]:
    for name, version in record.context.versions.items():
        yield f"libraries.{name}", version
    if record.minor >= HAS_VERSIONS:
        return
    for name in sorted(record.notes.keys() & VERSIONS):
        version = record.notes[name]
        of_cpp = name == "torch" and record.minor < NOTES_LIBTORCH and RELEASE.fullmatch(version)
        yield f"libraries.{'libtorch' if of_cpp else name}", version


def _require_cards(side: str, runs: Sequence[Run]) -> None:
    """Refuses a sample of which a run does not tell its card: it may be one of the others."""
    for run in runs:
        if len(runs) > 1 and not cards([run]):
            raise GpuliftError(
                f"not comparable: {run.folder} of {side} does not tell its card: in a sample of"
                " cards each must be known",
                NOT_COMPARABLE,
            )


def _require_separate(base: set[str], head: set[str]) -> None:
    """Refuses two samples that share a card; the same single card twice is no sample."""
    both = sorted(base & head)
    if both and len(base | head) > 1:
        raise GpuliftError(
            f"not comparable: gpu.card {', '.join(both)} is in base and in head: samples of cards"
            " must not share one, leave it out of one side",
            NOT_COMPARABLE,
        )


def require_same_but_commit(base: Context, head: Context) -> None:
    """Refuses (not comparable) builds that differ in more than their commit, naming all of it.

    What only one of the builds knows how to ask the host for is no difference: it is one machine.
    """
    mine, theirs = _context_facts(base), _context_facts(head)
    if None in (base.build.flags, head.build.flags):  # an older build tells less
        untold = (*FLAGS, "environment.")  # the latter is that of this one process
        mine, theirs = (
            {key: value for key, value in known.items() if not key.startswith(untold)}
            for known in (mine, theirs)
        )
    one_sided = {key for key in mine.keys() ^ theirs.keys() if key.startswith("host.")}
    found = [one for one in _differing(mine, theirs) if one.fact not in one_sided]
    other = [str(one) for one in found if not FACTORS["commit"].allows(one.fact)]
    if other:
        raise GpuliftError(
            f"not comparable: {', '.join(other)}; build both sides alike: only the commit may"
            " differ",
            NOT_COMPARABLE,
        )


def facts(record: Record) -> dict[str, Any]:
    """All facts that must be equal, by dotted name: `driver`, `gpu.card`, `host.kernel`."""
    return {**_asked(_fixed(record.context.facts)), "method": record.method}


def _context_facts(context: Context) -> dict[str, Any]:
    """The same of a context that was read; facts that have no field of their own are in `facts`."""
    known = asdict(context)
    del known["facts"]
    known["libraries"] = known.pop("versions")
    for part in ("gpu", "host"):
        if known[part] is not None:
            known[part] |= known[part].pop("facts")
    if known["gpu"] is None:
        del known["gpu"]
    return _asked(known)


def _asked(context: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(_flat(context, ""))
    found.setdefault("gpu.name", NO_GPU)
    return {k: v for k, v in found.items() if k not in WINDOWS_ONLY | TEXTS | HOST_ID}


def differences(base: Record, head: Record) -> list[FactDifference]:
    """The facts that differ, by name.

    A fact that only the record of the newer schema has was unknown to the older one, and is no
    difference. An environment variable that the older one would have told is: it was not set.
    """
    return [
        one for one in _differing(facts(base), facts(head)) if not _excused(one.fact, base, head)
    ]


def _differing(mine: Facts, theirs: Facts) -> list[FactDifference]:
    without_gpu = NO_GPU in (mine["gpu.name"], theirs["gpu.name"])
    found = []
    for key in sorted(mine.keys() | theirs.keys()):
        if mine.get(key, ABSENT) == theirs.get(key, ABSENT) or _same_memory(key, mine, theirs):
            continue
        if without_gpu and key != "gpu.name" and key.startswith(("gpu.", "driver", "cuda_")):
            continue  # all of them are missing with the GPU: its name says so
        found.append(FactDifference(key, mine.get(key, ABSENT), theirs.get(key, ABSENT)))
    return found


def _same_memory(key: str, mine: Facts, theirs: Facts) -> bool:
    """Of one machine what the kernel leaves to others varies by some pages from boot to boot."""
    one, other = mine.get(key), theirs.get(key)
    if key != "host.memory_bytes" or not isinstance(one, int) or not isinstance(other, int):
        return False
    return abs(one - other) * MEMORY_PARTS <= max(one, other)


def _excused(key: str, base: Record, head: Record) -> bool:
    if base.minor == head.minor:
        return False
    newer, older = (base, head) if base.minor > head.minor else (head, base)
    known, told = facts(newer), facts(older)
    if key == "build.dirty" and key not in known:
        return True  # of an unknown commit, of which older records said that nothing was changed
    if key.startswith("environment."):
        return older.minor < HAS_CONDITIONS and _untold(key, known, told)
    return key in known and key not in told


def _untold(key: str, known: Facts, told: Facts) -> bool:
    """Whether a record below schema 1.8 cannot tell what another one does of the environment."""
    if key == "environment.LD_PRELOAD" and key in known:
        return told.get(key) == SET
    return key not in told and not TOLD_BEFORE.fullmatch(key)


def _require_one_set(
    side: str, records: Sequence[tuple[Run, Record]], factor: Factor | None
) -> None:
    """Each record is held against each other one: a fact that an old one lacks may part two others.

    A run is of one card, whatever a side may have several of.
    """
    within = factor.within_side if factor is not None else frozenset()
    for (run, one), (other, two) in combinations(records, 2):
        allowed = within if run is not other else frozenset()
        found = [d for d in differences(one, two) if d.fact not in allowed]
        if found:
            sample = factor is None and run is not other and {d.fact for d in found} <= ONE_CARD
            hint = "; two samples of cards are compared with --across card" if sample else ""
            raise GpuliftError(_mixed(side, found, one, two) + hint, NOT_COMPARABLE)


def _mixed(side: str, found: Iterable[FactDifference], first: Record, record: Record) -> str:
    named = ", ".join(f"{d.fact} ({_shown(d.base)}, then {_shown(d.head)})" for d in found)
    return (
        f"the {side} records are of more than one set: {named}, from {_place(first)} to"
        f" {_place(record)}; name runs or record files that agree in it"
    )


def _place(record: Record) -> str:
    return f"{record.file}:{record.line}"


def _refusal(undeclared: Sequence[FactDifference], factor: Factor | None) -> str:
    named = ", ".join(str(d) for d in undeclared)
    text = f"not comparable: {named}"
    if factor is not None:
        return f"{text}; --across {factor.name} allows one declared difference, no other"
    fitting = [
        one.name
        for one in FACTORS.values()
        if all(one.allows(d.fact) for d in undeclared) and any(one.asks(d.fact) for d in undeclared)
    ]
    hint = f"; if that is the question, add --across {fitting[0]}" if fitting else ""
    return text + hint


def _shown(value: Any) -> str:
    return str(value) if value != "" else "empty"


def _flat(value: Mapping[str, Any], path: str) -> Iterable[tuple[str, Any]]:
    for key, inner in value.items():
        name = f"{path}{key}"
        if isinstance(inner, dict):
            yield from _flat(inner, f"{name}.")
        else:
            yield name, inner
