"""ci/test: which steps run, how they are counted, and what is not repeated."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from conftest import SETUP, Sandbox

# One file of core is compiled, as tidy asks for them.
PYTHON = 'echo "python $*" >> "$LOG"; [[ $* != *compile_commands* ]] || echo "$PWD/core/a.cpp"'
NAMES = ("ruff", "clang-format", "clang-tidy", "cmake", "ninja", "ctest", "shellcheck")
OF_MACHINE = ("instrument", "manifests", "pure", "units")


@pytest.fixture
def tiers(sandbox: Sandbox) -> Sandbox:
    """A checkout with ci/test, whose tools all log how they are called and say that all is well."""
    (sandbox.root / "ci").mkdir()
    shutil.copy(SETUP.parent / "ci" / "test", sandbox.root / "ci")
    for folder in ("core", "kernels", "workloads", "benches", "scripts"):
        (sandbox.root / folder).mkdir(exist_ok=True)
        (sandbox.root / folder / "a.py").touch()
    (sandbox.root / ".ci").mkdir()
    for tool in NAMES:
        sandbox.fake(tool, 'echo "${0##*/} $*" >> "$LOG"')
    sandbox.fake("python", PYTHON)
    sandbox.script(sandbox.root / "setup" / "system_packages", 'echo "packages $*" >> "$LOG"')
    sandbox.script(sandbox.root / "gpulift", 'echo "gpulift $*" >> "$LOG"')
    return sandbox


def call(tiers: Sandbox, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs ci/test as the launcher does."""
    build = tiers.root / "build"
    path = f"{tiers.bin}:/usr/bin:/bin"
    python = str(tiers.bin / "python")
    return tiers.call("ci/test", *arguments, PATH=path, GPULIFT_BUILD=str(build), GPULIFT_SETUP_PYTHON=python)


def results(tiers: Sandbox) -> dict[str, str]:
    """The exit code of each step, as test_seconds.tsv keeps it."""
    lines = (tiers.root / "build" / "test_seconds.tsv").read_text("utf-8").splitlines()
    return {step: code for step, code, seconds in (line.split("\t") for line in lines) if int(seconds) >= 0}


def test_the_tier_of_the_machine_has_its_steps_and_builds_nothing(tiers: Sandbox) -> None:
    done = call(tiers)
    assert done.returncode == 0, done.stdout
    assert results(tiers) == dict(zip(OF_MACHINE, ("0", "0", "0", "77"), strict=True))
    assert "skipped: test.harness.units is not built of these sources" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["skipped: units", "3 passed, 0 failed, 1 skipped"]
    assert not [line for line in tiers.lines() if line.startswith(("cmake", "ninja", "gpulift"))]


@pytest.mark.parametrize(
    ("code", "counted"), [(5, "2 passed, 0 failed, 2 skipped"), (3, "2 passed, 1 failed, 1 skipped")]
)
def test_an_inconclusive_instrument_is_no_pass_and_no_failure_but_a_wrong_one_is(
    tiers: Sandbox, code: int, counted: str
) -> None:
    tiers.fake("python", f"[[ $* == *--instrument* ]] && exit {code}; exit 0")
    done = call(tiers)
    assert done.stdout.splitlines()[-1] == counted
    assert done.returncode == (1 if code == 3 else 0)


def test_a_step_that_is_none_names_what_is_near(tiers: Sandbox) -> None:
    (tiers.bin / "python").unlink()
    (tiers.bin / "python").symlink_to(sys.executable)
    done = call(tiers, "formt")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "gpulift: test: formt is no step, but these are near it: format; the steps are: build "
    )


def test_a_failed_step_keeps_none_from_running_and_is_repeated_at_the_end(tiers: Sandbox) -> None:
    tiers.fake("python", PYTHON + '; [[ $* != *"-m pytest"* ]] || { echo "a test failed" && exit 1; }')
    done = call(tiers, "all")
    assert done.returncode == 1
    failing = ["setup", "manifests", "pure", "world", "techniques", "workers"]
    assert {step for step, code in results(tiers).items() if code not in ("0", "77")} == set(failing)
    assert f"failed: {' '.join(sorted(failing))}" in [
        " ".join(["failed:", *sorted(line.split()[1:])]) for line in done.stdout.splitlines()
    ]
    assert done.stdout.count("a test failed") == 2 * len(failing)
    assert "6 failed" in done.stdout.splitlines()[-1]


def test_all_builds_once_with_the_steps_of_one_process_beside_it(tiers: Sandbox) -> None:
    done = call(tiers, "all")
    assert tiers.lines().count("gpulift setup --tests") == 1
    steps = set(results(tiers))
    assert {"build", "shell", "format", "lint", "types", "setup", "records", "unit", "world", "sanitizers"} <= steps
    assert set(OF_MACHINE) - {"units"} <= steps, "units are a part of sanitizers"
    assert done.stdout.index("== build:") < done.stdout.index("== format:") < done.stdout.index("== unit:")


def test_all_goes_on_without_repeating_what_passed_or_failed_before(tiers: Sandbox) -> None:
    tiers.fake("python", PYTHON + '; [[ $* != *"not world"* ]]')
    assert call(tiers).returncode == 1
    tiers.fake("python", PYTHON)
    before = len(tiers.lines())
    done = call(tiers, "all", "--go-on")
    assert done.returncode == 1, "what failed before stays failed"
    after = tiers.lines()[before:]
    assert not [
        line
        for line in after
        if "--instrument" in line or "not world" in line or line.split()[-1] == "benches/manifests_test.py"
    ]
    assert [line for line in after if "-m world" in line]
    assert results(tiers)["pure"] == "1"
    assert results(tiers)["instrument"] == "0"
    assert call(tiers, "all").returncode == 0, "without --go-on all of it runs"
    assert results(tiers)["pure"] == "0"


def test_a_step_that_there_is_not_is_a_line_with_those_that_there_are(tiers: Sandbox) -> None:
    for arguments in (("pythn",), ("all", "--frob")):
        done = call(tiers, *arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    assert "the steps are: build format" in call(tiers, "pythn").stderr


@pytest.mark.parametrize(("beside", "keeps_contract"), [(".cpp", False), (".cu", False), (".md", True)])
def test_a_technique_in_python_alone_keeps_the_contract_of_those(
    tiers: Sandbox, beside: str, keeps_contract: bool
) -> None:
    theme = tiers.root / "benches" / "theme"
    theme.mkdir()
    for name in ("name.py", "name_test.py", f"name{beside}"):
        (theme / name).touch()
    assert call(tiers, "technique", "theme/name").returncode == 0
    (tests,) = (line for line in tiers.lines() if "-m pytest" in line)
    assert "benches/theme/name_test.py" in tests.split()
    assert ("contract_test.py" in tests) == keeps_contract


def test_the_longest_tests_of_all_steps_are_one_list(tiers: Sandbox) -> None:
    build = tiers.root / "build"
    build.mkdir()
    for step, seconds in (("pure", 2), ("unit", 30)):
        cases = "".join(f'<testcase classname="of" name="{step}{i}" time="{seconds + i}"/>' for i in range(8))
        (build / f"tests_{step}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    (build / "tests_other.xml").write_text('<testsuite><testcase name="x" time="99"/></testsuite>')
    script = SETUP.parent / "ci" / "longest_tests.py"
    command = [sys.executable, str(script), str(build), "pure", "unit", "shell"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[1] == "longest of 16 tests:"
    assert lines[2:4] == ["  37.0 s  unit of.unit7", "  36.0 s  unit of.unit6"]
    assert lines[-1] == "  8.0 s  pure of.pure6"
    assert len(lines) == 12
