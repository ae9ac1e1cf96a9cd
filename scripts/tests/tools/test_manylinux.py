"""ci/old_glibc.c with the flags of ci/manylinux: what is linked so asks for no newer glibc."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="it is for x86-64"),
    pytest.mark.skipif(not shutil.which("objdump"), reason="objdump is missing"),
]

MODULE = """
#include <cmath>
#include <filesystem>
#include <random>
#include <stdexcept>
#define OUT extern "C" __attribute__((visibility("default")))
struct Skipped : std::runtime_error { using std::runtime_error::runtime_error; };
OUT void fail(int how) {
  if (how == 0) throw Skipped("skipped");
  if (how == 1) throw std::bad_alloc();
  (void)std::filesystem::file_size("/none");
}
OUT double compute(double x) {
  return std::pow(x, x) + std::exp(0 * x) + std::log(1 + 0 * x) + std::hypot(3 * x, 4 * x) +
         (std::random_device("rdrand")() < 0);
}
"""
PROGRAM = """
#include <condition_variable>
#include <chrono>
#include <dlfcn.h>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <sys/stat.h>
#include <thread>
using namespace std::chrono_literals;
struct Skipped : std::runtime_error { using std::runtime_error::runtime_error; };
static const int constructed = [] { std::cout << "constructed\\n"; return 0; }();
int main(int count, char** words) {
  void* module = dlopen(words[count - 1], RTLD_NOW | RTLD_LOCAL);
  if (!module) { std::cout << dlerror(); return 1; }
  auto fail = reinterpret_cast<void (*)(int)>(dlsym(module, "fail"));
  for (int how = 0; how < 3; ++how) try { fail(how); }
    catch (const Skipped& error) { std::cout << error.what() << "\\n"; }
    catch (const std::bad_alloc&) { std::cout << "bad_alloc\\n"; }
    catch (const std::system_error& error) { std::cout << error.code().value() << "\\n"; }
  std::cout << reinterpret_cast<double (*)(double)>(dlsym(module, "compute"))(2) << "\\n";
  struct stat facts;
  std::cout << stat(words[0], &facts) << lstat(words[0], &facts) << stat("/none", &facts) << "\\n";
  std::mutex mutex;
  std::condition_variable told;
  std::unique_lock lock(mutex);
  const auto began = std::chrono::steady_clock::now();
  const bool late = told.wait_until(lock, began + 50ms) == std::cv_status::timeout;
  const auto waited = std::chrono::steady_clock::now() - began;
  std::cout << late << (waited >= 50ms) << (waited < 20s) << "\\n";
  std::thread([] { std::cout << "thread\\n"; }).join();
}
"""
SAID = "constructed\nskipped\nbad_alloc\n2\n15\n00-1\n111\nthread\n"


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_what_is_linked_so_runs_on_old_systems(tmp_path: Path) -> None:
    shim = tmp_path / "old_glibc.o"
    output("gcc", "-O2", "-fPIC", "-c", CHECKOUT / "ci" / "old_glibc.c", "-o", shim)
    script = (CHECKOUT / "ci" / "manylinux").read_text("utf-8")
    (flags,) = re.findall(r'^(wraps=.*\nexport LDFLAGS=".*?")$', script, re.MULTILINE | re.DOTALL)
    flags = re.sub(r"^#.*\n", "", flags, flags=re.MULTILINE)
    told = output("bash", "-c", f'made="{tmp_path}"; {flags}; echo "$LDFLAGS"').split()
    made = []
    for name, text, kind in (("p", PROGRAM, "-pie"), ("m.so", MODULE, "-shared")):
        source = tmp_path / f"{name}.cpp"
        source.write_text(text, encoding="utf-8")
        how = ("g++", "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", kind)
        output(*how, *told, source, "-o", tmp_path / name)
        made.append(tmp_path / name)
    assert output(*made) == SAID
    asked = re.findall(r"GLIBC_2\.(\d+)|(GLIBCXX)", output("objdump", "-T", *made))
    assert asked
    assert not [one for one in asked if one[1] or int(one[0]) > 28]
