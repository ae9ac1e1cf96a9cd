"""Real faults as an H200 showed them: from its records each is found, and its cause is told.

The records are those of a gate of build/faults/head against build/faults/base at commit c24ce5b,
with seed 14; on a GPU, test_faults_on_gpu.py measures them anew.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from gpulift.gate.answer import answer
from gpulift.gate.evidence import TWO_IN_ONE, Row, Setup, save
from gpulift.gate.judge import GateResult
from gpulift.gate.plan import judged_again
from gpulift.ground.errors import FAILED
from gpulift.verdicts.decision import DECISION_METHOD
from tests.conftest import DATA
from tests.faults import CAUSES, SEED

RECORDS = DATA / "faults" / "nvidia-h200.tar.xz"
ARMS = {
    "testing/extra_pass": "scale_and_shift",
    "testing/fp32_fallback": "product",
    "testing/graph_capture_off": "step",
    "testing/host_extra_pass": "scale_and_shift",
    "testing/low_occupancy": "copy",
    "testing/pageable_memory": "copy",
    "testing/stray_synchronisation": "chain",
    "testing/unfused_epilogue": "linear_relu",
    "testing/vector_loads": "copy",
}
CONTROLS = ("testing/vector_loads", "testing/extra_pass")
PLANTED = 0.01


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    _unpack(folder)
    rows = {name: Row(name, "", arm) for name, arm in ARMS.items()}
    setup = Setup(
        method=DECISION_METHOD,
        mode=TWO_IN_ONE,
        base="sound",
        head="with faults",
        machine="nvidia-h200",
        certificate="",
        seed=SEED,
        rows=tuple(rows.values()),
        null_rows=tuple(rows[name] for name in CONTROLS),
        planted_size=PLANTED,
    )
    save(folder, setup, {})
    return folder


def _unpack(folder: Path) -> None:
    """Not by extractall(): the Python of Debian 12 has no filter, and newer ones ask for one."""
    with tarfile.open(RECORDS) as archive:
        for member in archive:
            if content := archive.extractfile(member):  # None for a folder
                file = folder / member.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.read())


@pytest.fixture(scope="module")
def result(gate: Path) -> GateResult:
    return judged_again(gate)


def test_each_fault_is_found(result: GateResult) -> None:
    assert result.exit_code == FAILED
    verdicts = {one.row.technique: one.verdict.verdict for one in result.rows}
    assert verdicts == dict.fromkeys(CAUSES, "regressed")


def test_the_controls_of_that_gate_passed(result: GateResult) -> None:
    assert {one.name: one.passed for one in result.controls} == {
        "rows": True,
        "null": True,
        "planted": True,
    }


def test_the_cause_of_each_is_told(gate: Path, result: GateResult) -> None:
    rows = answer(result, gate).rows
    causes = {row.group: row.data()["attribution"]["cause"] for row in rows}
    assert causes.keys() == CAUSES.keys()
    wrong = {name: said for name, said in causes.items() if not said.startswith(CAUSES[name])}
    assert wrong == {}
