"""What README.md says of the commands and the files beside it."""

from __future__ import annotations

import re

from gpulift.cli import app
from tests.conftest import CHECKOUT

OF_THE_LAUNCHER = {"setup", "test"}


def readme() -> str:
    return (CHECKOUT / "README.md").read_text("utf-8")


def test_the_table_has_every_command_and_no_other() -> None:
    commands = {
        one.name or getattr(one.callback, "__name__", "") for one in app.registered_commands
    }
    groups = {one.typer_instance.info.name for one in app.registered_groups if one.typer_instance}
    first_cells = re.findall(r"^\| (`.*?) \|", readme(), re.MULTILINE)
    spans = (span.split()[0] for cell in first_cells for span in re.findall(r"`(.+?)`", cell))
    assert set(spans) == commands | groups | OF_THE_LAUNCHER


def test_links_lead_to_files_and_headings() -> None:
    for target, heading in re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", readme()):
        file = CHECKOUT / target
        assert file.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
            assert heading in [title.lower().replace(" ", "-") for title in titles], target


def test_it_is_short_enough_to_be_read() -> None:
    assert len(readme().split()) <= 1200
