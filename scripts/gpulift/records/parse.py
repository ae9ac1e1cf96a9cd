"""Turns the JSON object of a record into dataclasses; what is wrong or missing is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from msgspec.json import encode

from gpulift.records.convert import converted
from gpulift.records.fields import Fields
from gpulift.records.model import (
    Arm,
    Build,
    Clock,
    Context,
    Cost,
    Gpu,
    Host,
    HostLoad,
    Kind,
    Order,
    Outcome,
    Precondition,
    Range,
    Record,
    Role,
    Scratch,
    Stop,
    Telemetry,
    Windows,
)

SCHEMA_MAJOR = 1
IMPORT = "import"  # measured by another tool: it has no build of ours, and no seed
KINDS: tuple[Kind, ...] = get_args(Kind)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
ROLES: tuple[Role, ...] = get_args(Role)
CLOCKS: tuple[Clock, ...] = get_args(Clock)
NO_BUILD = Build(commit="", dirty=False)

Word = TypeVar("Word", bound=str)


def read_record(
    raw: Mapping[str, Any],
    file: Path = Path(),
    line: int = 0,
    contexts: dict[bytes, Context] | None = None,
    start: int = 0,
    keep: bool = True,
) -> Record:
    """One record from its JSON object. `file` and `line` appear in errors.

    Records of the same machine and build share one Context where `contexts` is given. An object
    that is not kept is read again from the line that begins at byte `start`.
    """
    fields = Fields(raw, f"{file}:{line}")
    _require_known_schema(fields)
    record = converted(raw) or carefully(fields)
    context = _context(fields, {} if contexts is None else contexts)
    place = {"parsed": raw if keep else None, "file": file, "line": line, "start": start}
    vars(record).update(place, context=context)  # before anybody else has it
    _require_consistent(record, fields)
    return record


def carefully(fields: Fields) -> Record:
    """As `converted`, in thrice the time; whatever is wrong is an error that names the field."""
    imported = _is_import(fields)
    return Record(
        schema=fields.text("schema"),
        method=fields.text("method"),
        kind=_one_of(fields, "kind", KINDS),
        technique=fields.text("technique"),
        case=_case(fields),
        case_id=fields.text("case_id"),
        quick=fields.flag("quick", False),
        ceiling=fields.flag("ceiling", False),
        regime=fields.text("regime", "burst"),
        launch=fields.whole("launch"),
        launches=fields.whole("launches"),
        started_at=fields.text("started_at"),
        outcome=_one_of(fields, "outcome", OUTCOMES),
        context=read_context(fields.child("context"), imported),
        reason=fields.text("reason", ""),
        remedy=fields.text("remedy", ""),
        question=fields.text("question", ""),
        expectation=fields.text("expectation", ""),
        claims=fields.texts("claims"),
        check_meaning=_check_meaning(fields),
        duet_arm=fields.text("arm", ""),
        arms=tuple(_arm(arm) for arm in fields.children("arms")),
        order=_order(fields, imported),
        stop=_stop(fields),
        discarded_blocks=fields.whole("discarded_blocks", 0),
        restarts=fields.whole("restarts", 0),
        notes=fields.texts_by_key("notes"),
        telemetry=_maybe_telemetry(fields),
        telemetry_missing=fields.text("telemetry_missing", ""),
        telemetry_others=tuple(_telemetry(one) for one in fields.children("telemetry_others")),
        source=fields.texts_by_key("source"),
        host_load=_host_load(fields),
        time_s=fields.numbers_by_key("time_s"),
    )


def _is_import(fields: Fields) -> bool:
    return fields.values.get("kind") == IMPORT


def _context(record: Fields, contexts: dict[bytes, Context]) -> Context:
    fields, imported = record.child("context"), _is_import(record)
    key = encode((imported, fields.values))  # its spelling, since True == 1 == 1.0
    if key not in contexts:
        contexts[key] = read_context(fields, imported)
    return contexts[key]


def read_context(fields: Fields, imported: bool = False) -> Context:
    """Machine facts; the same object that `gpulift-bench --describe` prints."""
    host = fields.child("host")
    gpu = fields.maybe_child("gpu")
    options = fields.maybe_child("options")
    return Context(
        host=Host(host.text("cpu"), host.maybe_whole("cores"), host.values),
        build=NO_BUILD if imported else _build(fields.child("build")),
        gpu=_gpu(gpu) if gpu else None,
        gpu_missing=fields.text("gpu_missing", ""),
        gpu_remedy=fields.text("gpu_remedy", ""),
        driver=fields.text("driver", ""),
        cuda_driver=fields.text("cuda_driver", ""),
        cuda_runtime=fields.text("cuda_runtime", ""),
        gpus=tuple(_gpu(one) for one in fields.children("gpus")),
        versions=fields.texts_by_key("versions"),
        scratch=_scratch(fields),
        environment=fields.texts_by_key("environment"),
        options=dict(options.values) if options else {},
    )


def _build(build: Fields) -> Build:
    return Build(
        commit=build.text("commit"),
        dirty=build.flag("dirty"),
        type=build.text("type", ""),
        compiler=build.text("compiler", ""),
        cuda_compiler=build.text("cuda_compiler", ""),
        architectures=build.text("architectures", ""),
        sanitizers=build.text("sanitizers", ""),
    )


def _require_known_schema(fields: Fields) -> None:
    version = fields.text("schema")
    major, _, minor = version.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise fields.error("schema", f"must be major.minor, not {version!r}")
    if int(major) != SCHEMA_MAJOR:
        raise fields.error(
            "schema",
            f"is {version}, but this gpulift reads {SCHEMA_MAJOR}.x; use the version that wrote it",
        )


def _one_of(fields: Fields, key: str, known: tuple[Word, ...]) -> Word:
    value = fields.text(key)
    if value not in known:
        raise fields.error(key, f"must be one of {', '.join(known)}, not {value!r}")
    return known[known.index(value)]


def _check_meaning(fields: Fields) -> str:
    check = fields.maybe_child("check")
    return check.text("meaning", "") if check else ""


def _case(fields: Fields) -> Mapping[str, int | float | str]:
    case = fields.child("case")
    for key, value in case.values.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise case.error(key, "must be a number or a word")
        if not isinstance(value, str):
            case.number(key)
    return case.values


def _arm(fields: Fields) -> Arm:
    steps = fields.whole("steps_per_window", 1)
    if steps < 1:
        raise fields.error("steps_per_window", "must be 1 or more")
    return Arm(
        name=fields.text("name"),
        role=_one_of(fields, "role", ROLES),
        outcome=_one_of(fields, "outcome", OUTCOMES),
        reason=fields.text("reason", ""),
        remedy=fields.text("remedy", ""),
        clock=_one_of(fields, "clock", CLOCKS) if fields.has("clock") else "host",
        cost=_cost(fields),
        check_error=fields.maybe_number("check_error"),
        check_tolerance=fields.maybe_number("check_tolerance"),
        steps_per_window=steps,
        lead_in_steps=fields.whole("lead_in_steps", 0),
        held=fields.flag("held", False),
        peak_device_bytes=fields.maybe_whole("peak_device_bytes"),
        peak_pinned_bytes=fields.maybe_whole("peak_pinned_bytes"),
        peak_host_bytes=fields.maybe_whole("peak_host_bytes"),
        windows=_windows(fields),
        metrics=fields.numbers_by_key("metrics"),
        ranks=_ranks(fields),
        environment=fields.texts_by_key("environment"),
        checked=fields.flag("checked", True),
        precondition=_precondition(fields),
    )


def _ranks(fields: Fields) -> int:
    ranks = fields.whole("ranks", 1)
    if ranks < 1:
        raise fields.error("ranks", "must be 1 or more")
    return ranks


def _precondition(fields: Fields) -> Precondition | None:
    required = fields.maybe_child("precondition")
    if required is None:
        return None
    return Precondition(
        name=required.text("name"),
        most=required.number("most"),
        worst=required.maybe_number("worst"),
    )


def _cost(fields: Fields) -> Cost | None:
    cost = fields.maybe_child("cost")
    if cost is None:
        return None
    return Cost(
        bytes=cost.number("bytes", 0.0),
        flops=cost.number("flops", 0.0),
        items=cost.number("items", 0.0),
        roof=cost.text("roof", ""),
        item=cost.text("item", ""),
    )


def _windows(fields: Fields) -> Windows:
    windows = fields.maybe_child("windows")
    if windows is None:
        return Windows()
    device_s = _positive(windows, "device_s")
    host_s = _positive(windows, "host_s")
    energy_j = windows.maybe_numbers("energy_j")
    cpu_s = windows.numbers("cpu_s")
    used: dict[str, tuple[float | None, ...]] = {"energy_j": energy_j, "cpu_s": cpu_s}
    for key, values in used.items():
        if any(value is not None and value < 0 for value in values):
            raise windows.error(key, "must not be negative")
        if values and len(values) != len(host_s):
            raise windows.error(key, "must have an entry for each window")
    return Windows(
        device_s=device_s,
        host_s=host_s,
        enqueue_s=windows.numbers("enqueue_s"),
        sm_clock_hz=windows.numbers("sm_clock_hz"),
        start_s=windows.numbers("start_s"),
        energy_j=energy_j,
        cpu_s=cpu_s,
    )


def _positive(windows: Fields, key: str) -> tuple[float, ...]:
    values = windows.numbers(key)
    if values and min(values) <= 0:
        raise windows.error(key, "must be positive")
    return values


def _order(fields: Fields, imported: bool) -> Order | None:
    order = fields.maybe_child("order")
    if order is None:
        return None
    return Order(
        seed=order.whole("seed", 0 if imported else None),
        blocks=order.rows("blocks"),
        allocation=order.wholes("allocation"),
    )


def _stop(fields: Fields) -> Stop | None:
    stop = fields.maybe_child("stop")
    if stop is None:
        return None
    return Stop(
        reason=stop.text("reason"),
        blocks=stop.whole("blocks"),
        asked_half_width=stop.maybe_number("asked_half_width"),
        reached_half_width=stop.maybe_number("reached_half_width"),
        planned_blocks=stop.maybe_whole("planned_blocks"),
    )


def _maybe_telemetry(fields: Fields) -> Telemetry | None:
    telemetry = fields.maybe_child("telemetry")
    return None if telemetry is None else _telemetry(telemetry)


def _telemetry(telemetry: Fields) -> Telemetry:
    ranges = {
        key: _range(telemetry.child(key))
        for key, value in telemetry.values.items()
        if isinstance(value, dict)
    }
    return Telemetry(
        samples=telemetry.whole("samples"),
        interval_s=telemetry.maybe_number("interval_s"),
        ranges=ranges,
        temperature_slope_c_per_s=telemetry.maybe_number("temperature_slope_c_per_s"),
        energy_j=telemetry.maybe_number("energy_j"),
        throttle=telemetry.texts("throttle") if telemetry.has("throttle") else None,
        pcie_generation=telemetry.maybe_whole("pcie_generation"),
        pcie_width=telemetry.maybe_whole("pcie_width"),
    )


def _host_load(fields: Fields) -> HostLoad | None:
    load = fields.maybe_child("host_load")
    if load is None:
        return None
    cores = [load.number(name) for name in ("own_cores", "other_cores", "stolen_cores")]
    if min(cores) < 0:
        raise fields.error("host_load", "must not be negative")
    return HostLoad(*cores)


def _range(fields: Fields) -> Range:
    return Range(fields.number("min"), fields.number("median"), fields.number("max"))


def _gpu(fields: Fields) -> Gpu:
    return Gpu(
        name=fields.text("name"),
        card=fields.text("card", ""),
        memory_bytes=fields.maybe_whole("memory_bytes"),
        power_limit_w=fields.maybe_number("power_limit_w"),
        facts=fields.values,
    )


def _scratch(fields: Fields) -> Scratch | None:
    scratch = fields.maybe_child("scratch")
    if scratch is None:
        return None
    return Scratch(
        filesystem=scratch.text("filesystem", ""),
        rotational=scratch.flag("rotational") if scratch.has("rotational") else None,
        in_memory=scratch.flag("in_memory", False),
    )


def _require_consistent(record: Record, fields: Fields) -> None:
    """No two arms share a name; every measured one has as many windows as the order gave it.

    A skip says why: without a reason nobody knows what would have to change.
    """
    _require_reason(fields, "reason", record.outcome, record.reason)
    for index, arm in enumerate(record.arms):
        _require_reason(fields, f"arms[{index}].reason", arm.outcome, arm.reason)
    if len({arm.name for arm in record.arms}) != len(record.arms):
        raise fields.error("arms", "must have different names")
    if record.outcome != "ok":
        return
    if not record.arms or record.order is None:
        raise fields.error("outcome", "is ok, but there are no arms or no order")
    turns = record.order.turns
    if not turns.keys() <= set(range(len(record.arms))):
        raise fields.error("order.blocks", "names an arm that is not there")
    for index, arm in enumerate(record.arms):
        count = sum(turns.get(index, ()))
        if arm.outcome == "ok" and len(arm.window_s) != count:
            raise fields.error(
                f"arms[{index}].windows",
                f"has {len(arm.window_s)} {arm.clock} windows, but the order has {count}",
            )


def _require_reason(fields: Fields, name: str, outcome: Outcome, reason: str) -> None:
    if outcome == "skipped" and not reason.strip():
        raise fields.error(name, "must say why it was skipped")
