"""What is said of techniques that cannot run."""

from __future__ import annotations

from gpulift.engine.doctor import examine
from gpulift.engine.machine import TechniqueInfo
from gpulift.records.model import Context, Host


def technique(name: str, why: str) -> TechniqueInfo:
    return TechniqueInfo(name, "?", 0, False, (), (), unavailable=why, remedy="bring it")


def test_techniques_that_lack_the_same_share_a_line() -> None:
    lacking = [technique("a/a", "no library"), technique("b/b", "no library")]
    findings = examine(Context(Host("EPYC", 2)), [*lacking, technique("c/c", "no file")])
    told = [(one.what, one.found) for one in findings if one.remedy == "bring it"]
    assert told == [("2 techniques", "no library"), ("c/c", "no file")]
