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
    bare.fake("apt-cache", '[[ $2 == *t64 || $2 == libmimalloc3 ]] || echo "$2 | 1.0"')
    bare.fake("apt-get", 'echo "apt-get $*" >> "$LOG"')
    assert bare.call("setup/system_packages").returncode == 0
    assert bare.lines()[-1].endswith("libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0")
