"""What the driver says of a card at a moment: `gpulift-bench --health`, an object of JSON in which
every key may be absent."""

from __future__ import annotations

from dataclasses import dataclass

from gpulift.records.decode import decoded
from gpulift.records.values import Integer, Maybe, Number


@dataclass(frozen=True)
class Ecc:
    """Of the card's memory."""

    enabled: Maybe[bool] = None
    pending: bool = True
    corrected_volatile: Maybe[Integer] = None
    uncorrected_volatile: Maybe[Integer] = None
    uncorrected_aggregate: Maybe[Integer] = None


@dataclass(frozen=True)
class RowRemapping:
    """Rows of memory that others stand in for."""

    pending: Maybe[bool] = None
    failure: Maybe[bool] = None
    correctable: Integer = 0
    uncorrectable: Integer = 0


@dataclass(frozen=True)
class Pcie:
    """The link to the host."""

    replays: Maybe[Integer] = None
    max_generation: Maybe[Integer] = None
    max_width: Maybe[Integer] = None


@dataclass(frozen=True)
class NvLink:
    """One link to another card; without a number it has that of its place."""

    link: Maybe[Integer] = None
    active: Maybe[bool] = None
    errors: Integer = 0
    crc_errors: Integer = 0
    replays: Integer = 0
    ecc_errors: Integer = 0


@dataclass(frozen=True)
class Power:
    """Its limit now and by default."""

    limit_w: Maybe[Number] = None
    default_limit_w: Maybe[Number] = None


@dataclass(frozen=True)
class Memory:
    """How much of it there is."""

    total_bytes: Maybe[Number] = None
    free_bytes: Maybe[Number] = None
    reserved_bytes: Number = 0.0


@dataclass(frozen=True)
class Clocks:
    """The highest, and what applications are set to."""

    max_sm_hz: Maybe[Number] = None
    application_sm_hz: Maybe[Number] = None


@dataclass(frozen=True)
class Temperature:
    """Now, and where the card slows down."""

    now_c: Maybe[Number] = None
    slowdown_c: Maybe[Number] = None


@dataclass(frozen=True)
class Process:
    """One that is on the card."""

    pid: Integer
    used_bytes: Maybe[Integer] = None


@dataclass(frozen=True)
class Health:
    """What the driver said of the card at one moment; None and empty is what it does not say."""

    time_s: Number = 0.0
    gpu_missing: Maybe[str] = None
    gpu_remedy: str = ""
    driver: str = ""
    cuda_driver: str = ""
    cuda_runtime: str = ""
    mig: Maybe[bool] = None
    retired_pages_pending: Maybe[bool] = None
    numa_node: Maybe[Integer] = None
    affinity_covers_node: Maybe[bool] = None
    ecc: Ecc = Ecc()
    row_remapping: RowRemapping = RowRemapping()
    pcie: Pcie = Pcie()
    power: Power = Power()
    memory: Memory = Memory()
    clocks: Clocks = Clocks()
    temperature: Temperature = Temperature()
    nvlinks: Maybe[tuple[NvLink, ...]] = None
    processes: Maybe[tuple[Process, ...]] = None


def read_health(answer: bytes, place: str = "gpulift-bench --health") -> Health:
    """Reads the JSON object; RecordError where it is none, or has a key of the wrong type."""
    return decoded(answer, Health, place)
