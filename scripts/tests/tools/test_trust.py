"""results/TRUST.md: that its numbers are those of the certificate and the pages beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpulift.ground.errors import GpuliftError
from tests.conftest import CHECKOUT
from tools import coverage, trust

RESULTS = CHECKOUT / "results"


def test_the_committed_page_is_of_the_committed_certificate_and_pages() -> None:
    made, held = trust.page(RESULTS), (RESULTS / trust.PAGE).read_text("utf-8")
    assert held == made, "run python -m tools.trust in scripts/, commit what it writes"


def test_readme_has_its_numbers() -> None:
    readme = " ".join((CHECKOUT / "README.md").read_text("utf-8").split())
    (gate,) = (line for line in trust.page(RESULTS).splitlines() if "(`gate`)" in line)
    alarms, suites = gate.split(" suites")[0].split("| ")[-1].split(" of ")
    found = gate.split("was found in ")[1].split(" rows")[0]
    assert f"0.5 % in {found} rows; {alarms} of {suites} of unchanged code raised" in readme


def test_a_page_that_no_longer_says_its_number_is_named(tmp_path: Path) -> None:
    shutil.copytree(
        RESULTS / "certificates", tmp_path / "certificates", ignore=lambda *_: ["nvidia-h200"]
    )
    file = tmp_path / coverage.TABLE
    file.write_text("| all | nothing |", "utf-8")
    with pytest.raises(GpuliftError, match=r"coverage\.md: does not say what TRUST\.md takes"):
        trust.page(tmp_path)
    file.unlink()
    with pytest.raises(GpuliftError, match=r"coverage\.md: No such file"):
        trust.page(tmp_path)
