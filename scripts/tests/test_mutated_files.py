"""Mutated files of every kind that commands read: they are taken, or refused with an error that a
user can act on. Nothing else comes out, as a traceback would."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from gpulift.analysis import cost, errata, ledger
from gpulift.analysis.machine import saved, topology
from gpulift.analysis.reference import read_reference
from gpulift.analysis.summary import summarise
from gpulift.engine import runs
from gpulift.engine.again import command_again
from gpulift.exchange.csv_table import all_columns, csv_bytes
from gpulift.exchange.gbench_out import gbench_text
from gpulift.exchange.prometheus import prometheus_text
from gpulift.gate import evidence
from gpulift.gate.benchmark_files import read_gbench, read_nvbench
from gpulift.gate.certificate import read_certificate, sentence
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import Run, read_run
from gpulift.records.together import STATE_FILE, was_crowded
from gpulift.verdicts import thresholds
from proof.trials import line_of, read_trials
from tests import fuzz_records, sample
from tests.conftest import CHECKOUT, DATA
from tests.fuzz_records import Mutation
from tests.gate.test_gate import setup
from tests.trials_made import planted, unchanged

EACH = 36  # mutations of a kind of file
RESULTS = CHECKOUT / "results"
RECORD = sample.record("a/b", {"n": 1}, [sample.arm("slow", 2e-3), sample.arm("fast", 1e-3)])
CHECK = {"id": "gpu", "verdict": "pass", "reason": "", "remedy": "", "kind": saved.HEALTH}
SETUP = setup(evidence.Row("a/b", "n:1", "fast"))
ODD_TOML = (
    *("nan", "-inf", "-1", "0", "1e308", "5e-324", "9" * 400, "true", '""', '"("', '"a\\nb"'),
    *(f'"a{{{"9" * 30}}}"', f'"{"(" * 3000}"', "[" * 3000 + "]" * 3000, "{}", "[[]]"),
    *("2026-11-24", "07:32:00", '"\\u0000"', '{ a = "b" }'),
)


def change_toml(content: bytes, source: random.Random) -> bytes:
    """One value replaced by an odd one, a line taken out or doubled."""
    lines = content.decode().splitlines()
    at = source.choice([at for at, line in enumerate(lines) if line.strip()])
    name, equals, _ = lines[at].partition(" = ")
    kind = source.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1 or not equals:
        lines.insert(at, lines[at])
    else:
        lines[at] = f"{name} = {source.choice(ODD_TOML)}"
    return "\n".join(lines).encode()


TOML: tuple[Mutation, ...] = (change_toml, fuzz_records.edit_bytes, fuzz_records.move_bytes)


def record() -> Record:
    """A whole one."""
    return read_record(RECORD, Path("run", "a.b.jsonl"), 1)


def use_reference(file: Path) -> object:
    return summarise(Run(file.parent, (record(),)), read_reference(file))


def use_state(file: Path) -> None:
    want = runs.Wanted("nvidia-h200", "0123456", False, {})
    was_crowded(file.parent)
    runs.state_of(file.parent)
    command_again(read_record(RECORD, file.with_name("a.b.jsonl"), 1))
    with suppress(GpuliftError), runs.choose_named(file.parent, want):
        runs.save_state(file.parent, want, runs.RUNNING)


def use_errata(file: Path) -> object:
    return errata.known_errors([record()], errata.read_errata(file))


def use_thresholds(file: Path) -> object:
    return thresholds.of_rows(thresholds.read(file), [("a/b", "n:1", "a/b/n:1/fast")])


def use_topology(file: Path) -> object:
    found = topology.kept(file.parent)
    count = len(found.gpus) if found else 0
    return [found.words(row, column) for row in range(count) for column in range(count) if found]


def use_record(file: Path) -> None:
    run = read_run(file.parent)
    for used in (csv_bytes, all_columns, gbench_text, prometheus_text):
        with suppress(GpuliftError):
            used([run])
    list(cost.cost_rows(summarise(run), cost.Prices(5e-324)))


KINDS: dict[str, tuple[str, bytes, Callable[[Path], object]]] = {
    "a reference": (
        "nvidia-h200.json",
        (RESULTS / "reference" / "nvidia-l40s.json").read_bytes(),
        use_reference,
    ),
    "a certificate": (
        "nvidia-h200.json",
        (RESULTS / "certificates" / "nvidia-h200.json").read_bytes(),
        lambda file: sentence(read_certificate(file)),
    ),
    "trials": (
        "trials.jsonl",
        f"{line_of(unchanged(1))}\n{line_of(planted(2, {'a/b': 0.01}))}\n".encode(),
        read_trials,
    ),
    "a gate": (
        evidence.GATE_FILE,
        json.dumps({"schema": evidence.SCHEMA, "setup": asdict(SETUP)}).encode(),
        lambda file: evidence.read_evidence(file.parent),
    ),
    "the health of a card": (
        saved.VERDICT_FILE,
        json.dumps({"coverage": "all", "checks": [CHECK, CHECK | {"id": "health/ecc"}]}).encode(),
        lambda file: saved.health_of(Run(file.parent, (record(),))),
    ),
    "the links between cards": (
        topology.FILE,
        next(RESULTS.glob(f"*/*/{topology.FILE}")).read_bytes(),
        use_topology,
    ),
    "the state of a run": (
        STATE_FILE,
        next(RESULTS.glob(f"*/*/{STATE_FILE}")).read_bytes(),
        use_state,
    ),
    "claims": ("claims.toml", ledger.FILE.read_bytes(), ledger.read_ledger),
    "articles": ("articles.toml", ledger.ARTICLES.read_bytes(), ledger.read_statements),
    "errata": ("errata.toml", (RESULTS / errata.FILE).read_bytes(), use_errata),
    "thresholds": ("t.toml", b'[rows."a/b"]\nleast_change = 0.05\n', use_thresholds),
    "a file of Google Benchmark": (
        "gbench.json",
        (DATA / "benchmark_files" / "gbench_of_1.9.5.json").read_bytes(),
        read_gbench,
    ),
    "a file of NVBench": (
        "nvbench.json",
        (DATA / "benchmark_files" / "nvbench.json").read_bytes(),
        read_nvbench,
    ),
    "a record": ("a.b.jsonl", json.dumps(RECORD).encode(), use_record),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_is_taken_or_refused(tmp_path: Path, kind: str) -> None:
    name, content, use = KINDS[kind]
    source = random.Random(kind)
    mutations = TOML if name.endswith(".toml") else fuzz_records.MUTATIONS
    lines = content.splitlines(keepends=True) if name.endswith(".jsonl") else [content]
    for number in range(EACH):
        folder = tmp_path / str(number)
        folder.mkdir()
        at = source.randrange(len(lines))
        mutation = source.choice(mutations)
        mutated = mutation(lines[at], source)
        (folder / name).write_bytes(b"".join([*lines[:at], mutated, *lines[at + 1 :]]))
        try:
            with suppress(GpuliftError):
                use(folder / name)
        except Exception as error:
            raise AssertionError(f"{mutation.__name__}: {mutated[:2000]!r}") from error


def test_the_health_of_a_card_is_one_of_its_words(tmp_path: Path) -> None:
    file = tmp_path / saved.VERDICT_FILE
    file.write_text(json.dumps({"checks": [CHECK | {"verdict": "fine"}]}), encoding="utf-8")
    with pytest.raises(GpuliftError, match=r"checks\[0\]\.verdict must be one of pass, fail"):
        saved.kept_health(tmp_path)


@pytest.mark.parametrize("price", ["5e-324", "1e308", "nan", "-1", "1e999", "9" * 400, "", "1=2=3"])
def test_a_price_of_any_size_is_taken_or_refused(price: str) -> None:
    with suppress(GpuliftError):
        prices = cost.read_prices([price], ["nvidia-h200"])
        list(cost.cost_rows(summarise(Run(Path("run"), (record(),))), prices))
