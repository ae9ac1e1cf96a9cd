"""What is asked of the system's package manager, and what is said when it cannot help."""

from __future__ import annotations

import pytest
from conftest import Sandbox

REQUIRED = (
    "g++ git libbenchmark-dev nlohmann-json3-dev libgtest-dev libgmock-dev libcli11-dev libboost-dev python3-venv"
)
HAS_REQUIRED = f'[[ " {REQUIRED} " == *" ${{@: -1}} "* ]] && printf installed'


@pytest.fixture
def bare(sandbox: Sandbox) -> Sandbox:
    """A Debian with nothing installed, whose user is not root and has no sudo; any use of apt-get is logged."""
    sandbox.fake("dpkg-query", "exit 1")
    sandbox.fake("ldconfig", "exit 0")
    sandbox.fake("id", "echo 1000")
    sandbox.fake("apt-get", 'echo "apt-get $*" >> "$LOG"; exit 1')
    sandbox.fake("apt-cache", 'echo "$2 | 1.0"')
    return sandbox


def test_no_sudo_gives_one_line_that_lists_the_packages(bare: Sandbox) -> None:
    result = bare.call("setup/system_packages")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.strip().endswith(f"Debian packages installed and call again: {REQUIRED}")
    assert bare.lines() == []


def test_what_is_missing_is_listed_and_not_asked_for(bare: Sandbox) -> None:
    bare.fake("dpkg-query", HAS_REQUIRED)
    result = bare.call("setup/system_packages", "--missing")
    optional = "libjemalloc2 libtcmalloc-minimal4t64 or libtcmalloc-minimal4 libmimalloc2.0\n"
    assert (result.returncode, result.stdout, result.stderr, bare.lines()) == (0, optional, "", [])


def test_a_package_manager_that_hangs_is_given_up_and_said(bare: Sandbox) -> None:
    script = bare.root / "setup" / "system_packages"
    script.write_text(script.read_text().replace("answer_limit_s=60", "answer_limit_s=1"))
    bare.fake("dpkg-query", "trap '' TERM; [[ $3 != git ]] || sleep 60; printf installed")
    result = bare.call("setup/system_packages")
    assert result.returncode == 2
    assert result.stderr.splitlines()[0] == "gpulift: dpkg-query has not answered in 1 s; going on without it"
    assert result.stderr.strip().endswith("installed and call again: git")


def test_nothing_is_asked_when_dpkg_has_everything(bare: Sandbox) -> None:
    bare.fake("dpkg-query", "printf installed")
    result = bare.call("setup/system_packages")
    assert (result.returncode, result.stderr, bare.lines()) == (0, "", [])


def test_a_removed_package_with_its_configuration_left_is_not_installed(bare: Sandbox) -> None:
    bare.fake("dpkg-query", "printf config-files")
    assert bare.call("setup/system_packages").returncode == 2


def test_headers_that_the_compiler_finds_need_no_package_manager(bare: Sandbox) -> None:
    for name in ("dpkg-query", "apt-get", "apt-cache"):
        (bare.bin / name).unlink()
    bare.fake("g++", "echo yes")
    bare.fake("git", "")
    bare.fake("python3", "")
    bare.fake("ldconfig", "echo libjemalloc.so.2 libtcmalloc_minimal.so.4 libmimalloc.so.2")
    result = bare.call("setup/system_packages")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_header_that_the_compiler_does_not_find_is_asked_for(bare: Sandbox) -> None:
    bare.fake("g++", "cat > /dev/null")
    result = bare.call("setup/system_packages")
    assert "nlohmann-json3-dev" in result.stderr
    assert "g++" not in result.stderr.split(":")[-1]


def test_missing_allocators_alone_do_not_stop_the_set_up(bare: Sandbox) -> None:
    bare.fake("dpkg-query", HAS_REQUIRED)
    result = bare.call("setup/system_packages")
    assert result.returncode == 0
    assert "going on without" in result.stderr
    assert "libjemalloc2" in result.stderr


def test_allocators_that_cannot_be_installed_do_not_stop_root_either(bare: Sandbox) -> None:
    bare.fake("dpkg-query", HAS_REQUIRED)
    bare.fake("id", "echo 0")
    result = bare.call("setup/system_packages")
    assert result.returncode == 0
    assert "going on without" in result.stderr


def test_sudo_is_used_after_saying_for_what(bare: Sandbox) -> None:
    bare.fake("sudo", 'echo "sudo $*" >> "$LOG"')
    result = bare.call("setup/system_packages")
    assert result.returncode == 0
    assert "sudo" in result.stderr
    assert REQUIRED in result.stderr
    assert any(line.startswith("sudo ") and "install" in line and REQUIRED in line for line in bare.lines())


def test_a_failed_installation_lists_the_packages(bare: Sandbox) -> None:
    bare.fake("id", "echo 0")
    result = bare.call("setup/system_packages")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(REQUIRED)


def test_a_package_is_asked_for_by_the_name_that_this_release_knows(bare: Sandbox) -> None:
    bare.fake("id", "echo 0")
    bare.fake("apt-cache", '[[ $2 == *t64 ]] || echo "$2 | 1.0"')
    bare.fake("apt-get", 'echo "apt-get $*" >> "$LOG"')
    assert bare.call("setup/system_packages").returncode == 0
    assert bare.lines()[-1].endswith("libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0")


def test_a_newer_mimalloc_is_not_the_one_that_is_preloaded(bare: Sandbox) -> None:
    bare.fake("id", "echo 0")
    bare.fake("ldconfig", "echo libjemalloc.so.2 libtcmalloc_minimal.so.4 libmimalloc.so.3")
    bare.fake("apt-cache", 'echo "$2 | 1.0"')
    bare.fake("apt-get", 'echo "apt-get $*" >> "$LOG"')
    assert bare.call("setup/system_packages").returncode == 0
    assert bare.lines()[-1].split()[-1] == "libmimalloc2.0"


@pytest.fixture
def for_tests(bare: Sandbox) -> Sandbox:
    """Root, on a Debian that knows all packages; a downloaded one is a file that dpkg-deb turns into a tar of it."""
    for name in ("mktemp", "mv", "tar"):
        if not (bare.bin / name).exists():
            (bare.bin / name).symlink_to(f"/usr/bin/{name}")
    bare.fake("id", "echo 0")
    bare.fake("apt-cache", '[[ $1 == show ]] && echo "Size: 19257088" || echo "$2 | 1.0"')
    bare.fake("apt-get", 'echo "apt-get $*" >> "$LOG"; [[ $1 != download ]] || touch prometheus_1_all.deb')
    bare.fake("dpkg-deb", "mkdir -p usr/bin; echo exit > usr/bin/promtool; tar --create ./usr/bin/promtool")
    return bare


def test_what_tests_use_is_said_with_its_size_and_fetched(for_tests: Sandbox) -> None:
    result = for_tests.call("setup/system_packages", "--for-tests")
    assert result.returncode == 0
    assert "prometheus is loaded (19 MB), not installed" in result.stderr
    assert (for_tests.root / ".setup/bin/promtool").exists()
    assert [one.name for one in (for_tests.root / ".setup/bin").iterdir()] == ["promtool"]
    assert " install " in for_tests.lines()[-1]
    assert "chromium" in for_tests.lines()[-1]
    assert not any("prometheus" in line for line in for_tests.lines() if "install" in line)


def test_what_is_there_is_not_fetched_again(for_tests: Sandbox) -> None:
    for_tests.fake("promtool", "")
    for_tests.fake("dpkg-query", "printf installed")
    result = for_tests.call("setup/system_packages", "--for-tests")
    assert (result.returncode, result.stderr, for_tests.lines()) == (0, "", [])


def test_a_release_without_such_packages_says_so_and_goes_on(for_tests: Sandbox) -> None:
    for_tests.fake("apt-cache", "exit 0")
    for_tests.fake("apt-get", '[[ $1 == update ]] || { echo "apt-get $*" >> "$LOG"; exit 100; }')
    result = for_tests.call("setup/system_packages", "--for-tests")
    assert result.returncode == 0
    assert "going on without promtool" in result.stderr
    assert "going on without chromium" in result.stderr
    assert "(not known to this release): tests that need them are skipped" in result.stderr
    assert not any("install" in line for line in for_tests.lines())
    assert list((for_tests.root / ".setup/bin").iterdir()) == []


def test_without_root_or_apt_the_tests_go_on(for_tests: Sandbox) -> None:
    for_tests.fake("id", "echo 1000")
    result = for_tests.call("setup/system_packages", "--for-tests")
    assert (result.returncode, "not root, and no sudo" in result.stderr) == (0, True)
    for name in ("apt-get", "apt-cache", "dpkg-query"):
        (for_tests.bin / name).unlink()
    (for_tests.root / ".setup/bin/promtool").unlink()
    result = for_tests.call("setup/system_packages", "--for-tests")
    assert result.returncode == 0
    assert "without promtool (this system has no apt-get)" in result.stderr
