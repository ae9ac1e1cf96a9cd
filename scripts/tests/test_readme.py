"""What README.md says of the commands and the files beside it."""

from __future__ import annotations

import json
import re
import subprocess
from functools import wraps
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.cli import command_lines
from gpulift.commands.bench import prepared
from gpulift.ground import later
from gpulift.ground.errors import OK
from gpulift.verdicts import decision
from tests.conftest import CHECKOUT


def readme() -> str:
    return (CHECKOUT / "README.md").read_text("utf-8")


def test_the_table_has_every_command_and_no_other() -> None:
    first_cells = re.findall(r"^\| (`.*?) \|", readme(), re.MULTILINE)
    spans = (span.split()[0] for cell in first_cells for span in re.findall(r"`(.+?)`", cell))
    assert set(spans) == set(command_lines())


def test_the_first_technique_that_is_shown_is_one_that_bench_takes(tmp_path: Path) -> None:
    shown = (CHECKOUT / "benches" / "README.md").read_text("utf-8")
    script = tmp_path / "add.py"
    script.write_text(re.findall(r"```python\n(.*?)```", shown, re.DOTALL)[0], encoding="utf-8")
    with prepared(script) as modules:
        (manifest,) = modules.glob("*.json")
        assert json.loads(manifest.read_text())["arms"] == ["torch", "triton"]


def test_what_agents_are_told_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command line is one that is taken, each word of a verdict one that there is."""
    told = (CHECKOUT / "scripts" / "gpulift" / "SKILL.md").read_text("utf-8")
    assert re.match(r"---\nname: gpulift\ndescription: .+\n---\n", told)
    assert len(told.splitlines()) <= 60
    monkeypatch.setattr(later, "refusing", lambda taken: wraps(taken)(lambda **_: None))
    (block,) = re.findall(r"```sh\n(.*?)```", told, re.DOTALL)
    calls = [line.partition(" #")[0] for line in block.splitlines()]
    spans = re.findall(r"`gpulift ([a-z][^`]*)`", told)
    assert len(calls) == 5
    for call in [*(one.removeprefix("gpulift ") for one in calls), *spans]:
        assert cli.main(call.split()) == OK, call
    for command in ("advise", "qualify", "compare"):
        assert cli.main([command, "--json", "--help"]) == OK
    for word in (decision.REGRESSED, decision.IMPROVED, decision.EQUIVALENT, decision.INCONCLUSIVE):
        assert f"`{word}`" in told
    advice = (CHECKOUT / "scripts" / "gpulift" / "advise" / "README.md").read_text("utf-8")
    for word in ("helps", "no change", "undecided", "same course", "all that help, together"):
        assert word in told
        assert word in advice


def test_the_action_that_it_calls_takes_what_it_gives() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", readme(), re.DOTALL)
    action = (CHECKOUT / "ci" / "github" / "action.yml").read_text("utf-8")
    (given,) = re.findall(r"with: \{ (base: .*) \}", shown)
    assert "uses: ./.github/actions/gpulift # ci/github, copied" in shown
    assert "OWNER" not in shown
    for name in re.findall(r"(\w+): ", given):
        assert re.search(rf"^  {name}: \{{", action, re.MULTILINE), name
    assert len(shown.splitlines()) <= 10


def test_the_advice_that_it_shows_is_that_which_was_measured() -> None:
    (shown,) = re.findall(r"\$ \./gpulift advise .*?\n(.*?)```", readme(), re.DOTALL)
    advise = CHECKOUT / "scripts" / "gpulift" / "advise" / "README.md"
    measured = advise.read_text("utf-8").splitlines()
    assert shown.splitlines()
    assert not [line for line in shown.splitlines() if line not in measured]


def test_it_is_short_enough_to_be_read() -> None:
    assert len(readme().split()) < 1200


def anchors(file: Path) -> set[str]:
    """Of its headings, as GitHub makes them, and those that it sets itself."""
    text = file.read_text("utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = (re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings)
    return {*made, *re.findall(r'<a id="([^"]+)">', text)}


def test_links_between_texts_lead_to_files_and_sections_that_there_are() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    broken = []
    for name in (name for name in listed.stdout.split() if "/tests/data/" not in name):
        text = (CHECKOUT / name).read_text("utf-8")
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            path, _, section = link.partition("#")
            file = (CHECKOUT / name).parent / path if path else CHECKOUT / name
            if not file.exists() or (section and section not in anchors(file)):
                broken.append(f"{name}: {link}")
    assert not broken
