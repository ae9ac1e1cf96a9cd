"""The manifest of a technique in Python alone, which its script does not run for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpulift_manifest as manifests
import pytest

FOLDER = Path(__file__).parents[1]
EVERYTHING = """
import no_such_package
raise SystemExit("was run")
TECHNIQUE: dict = {
    "question": "What is "
    "asked?",
    "expectation": "First line.\\nSecond line.",
    "predict": [
        "size:8 @h100: fast_2 2-3.5",
        "plain 1-1 ms",
    ],
    "found": "First line.\\nSecond line.",
    "l2": "by_size",
    "page_cache": "none",
    "claims": ["a-claim"],
    "gpus": 1,
    "ceiling": True,
    "integrity": True,
    "launch_bound": True,
    "whole_steps": True,
    "spans_hosts": True,
    "arms": ("plain", "fast_2"),
    "controls": ["fast_2"],
    "sweep": {"size": [8, -1], "regime": ["burst", "sustained"]},
    "quick": [{"size": 8, "regime": "burst"}, {"size": -1}],
    "check": {"meaning": "exact", "tolerance": 0.5},
    "environment": {"fast_2": {"A_B": "1"}},
    "ranks": {"fast_2": 2},
    "preload": {"fast_2": "libfast.so"},
}
"""


def asked(folder: Path, text: str, identity: str = "mine/my_step") -> Any:
    """The worker's end after it was asked for the manifest of a script with this text."""
    script = folder / "my_step.py"
    script.write_text(text)
    return subprocess.run(
        [sys.executable, str(FOLDER / "gpulift_worker.py"), "--manifest", identity, str(script)],
        capture_output=True,
        text=True,
        check=False,
    )


def manifest(folder: Path, text: str) -> Any:
    done = asked(folder, text)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_arms_alone_are_a_technique(tmp_path: Path) -> None:
    text = 'ARMS = ["eager", "compiled"]\n'
    assert manifest(tmp_path, text) == {
        "id": "mine/my_step",
        "script": True,
        "question": "How do the arms of my_step.py compare?",
        "expectation": "",
        "predict": [],
        "found": "",
        "claims": [],
        "gpus": 0,
        "ceiling": False,
        "integrity": False,
        "launch_bound": False,
        "whole_steps": False,
        "spans_hosts": False,
        "arms": ["eager", "compiled"],
        "controls": [],
        "python": ["eager", "compiled"],
        "l2": "",
        "page_cache": "",
        "cases": [{"id": "", "point": {}, "quick": False, "regime": "burst"}],
        "check": {},
        "environment": {},
        "ranks": {},
        "preload": {},
        "source": {"my_step.py": manifests.hash_of_work("my_step.py", text.encode())},
    }


def test_a_technique_says_all_that_one_in_cpp_can_and_is_not_run(tmp_path: Path) -> None:
    found = manifest(tmp_path, EVERYTHING)
    assert found["question"] == "What is asked?"
    assert found["expectation"] == "First line. Second line."
    assert found["predict"] == [
        {"arm": "fast_2", "case": {"size": 8}, "on": "h100", "speedup": [2, 3.5]},
        {"arm": "plain", "case": {}, "step_time_s": [1e-3, 1e-3]},
    ]
    assert found["found"] == "First line. Second line."
    assert (found["l2"], found["page_cache"]) == ("by_size", "none")
    assert found["claims"] == ["a-claim"]
    assert found["gpus"] == 1
    for trait in ("ceiling", "integrity", "launch_bound", "whole_steps", "spans_hosts"):
        assert found[trait] is True, trait
    assert found["arms"] == found["python"] == ["plain", "fast_2"]
    assert found["controls"] == ["fast_2"]
    assert found["check"] == {"meaning": "exact", "tolerance": 0.5}
    assert found["environment"] == {"fast_2": {"A_B": "1"}}
    assert found["ranks"] == {"fast_2": 2}
    assert found["preload"] == {"fast_2": "libfast.so"}
    cases = [(one["id"], one["quick"], one["regime"]) for one in found["cases"]]
    assert cases == [
        ("size:8/regime:burst", True, "burst"),
        ("size:8/regime:sustained", False, "sustained"),
        ("size:-1/regime:burst", True, "burst"),
        ("size:-1/regime:sustained", True, "sustained"),
    ]
    assert found["cases"][0]["point"] == {"size": 8, "regime": "burst"}


def test_what_it_declares_is_no_work(tmp_path: Path) -> None:
    def source(text: str) -> str:
        return str(manifest(tmp_path, text)["source"]["my_step.py"])

    text = 'X = 1\nTECHNIQUE = {\n    "arms": ["a"],\n    "question": "What?",\n}\nY = 2\n'
    assert source(text) == manifests.hash_of_work("my_step.py", b"X = 1\nY = 2\n")
    assert source(text.replace("What", "Why")) == source(text)
    assert source(text.replace("Y = 2", "Y = 3")) != source(text)


def test_its_source_is_all_that_it_imports_here(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "inner.py").write_text("import json\nimport last\nprint(json)\n")
    (tmp_path / "last.py").write_text("import my_step\nprint(my_step)\n")
    (tmp_path / "unused.py").write_text("")
    text = (
        'ARMS = ["a"]\nfrom beside import inner\nimport gpulift_worker\n'
        "def make():\n    from gpulift_work.jax_training import make_arm\n    return make_arm\n"
    )
    source = manifest(tmp_path, text)["source"]
    work = {name for name in source if name.startswith("gpulift_work/")}
    assert {"gpulift_work/jax_training.py", "gpulift_work/jax_models.py"} <= work
    assert set(source) - work == {"my_step.py", "beside/inner.py", "last.py"}
    (tmp_path / "last.py").write_text("import my_step\n# a comment\nprint(my_step)\n")
    assert manifest(tmp_path, text)["source"] == source


def test_a_module_that_is_no_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("x = 1\ndef f(:\n")
    done = asked(tmp_path, "ARMS = ['a']\nimport beside\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("beside.py: line 2: ")


def test_what_is_no_python_has_no_hash() -> None:
    assert manifests.hash_of_work("a.py", b"def make(:") == ""


def test_an_empty_pattern_makes_every_case_quick(tmp_path: Path) -> None:
    found = manifest(tmp_path, 'TECHNIQUE = {"arms": ["a"], "quick": [{}]}\n')
    assert [one["quick"] for one in found["cases"]] == [True]


def test_a_number_of_ranks_is_that_of_every_arm(tmp_path: Path) -> None:
    found = manifest(tmp_path, 'TECHNIQUE = {"arms": ["a", "b"], "ranks": 2}\n')
    assert found["ranks"] == {"a": 2, "b": 2}


@pytest.mark.parametrize("axis", ["gpus", "ranks"])
def test_there_can_be_as_many_ranks_as_an_axis_of_the_case_says(tmp_path: Path, axis: str) -> None:
    ranks = f'TECHNIQUE = {{"arms": ["a"], "ranks": {{"a": "{axis}"}}'
    found = manifest(tmp_path, f'{ranks}, "sweep": {{"{axis}": [2, 4]}}}}\n')
    assert found["ranks"] == {"a": axis}
    done = asked(tmp_path, f"{ranks}}}\n")
    assert f"'ranks' of TECHNIQUE asks for as many as '{axis}', no axis" in done.stderr
    done = asked(tmp_path, f'{ranks}, "sweep": {{"{axis}": ["two"]}}}}\n')
    assert f"the axis '{axis}' has numbers from 1 on alone" in done.stderr


def test_a_technique_may_have_arms_of_its_own_beside_what_it_calls_so(tmp_path: Path) -> None:
    text = 'TECHNIQUE = {"arms": ["a"]}\nARMS = dict(a=1)\n'
    assert manifest(tmp_path, text)["arms"] == ["a"]


def test_an_odd_escape_is_not_what_the_manifest_is_about(tmp_path: Path) -> None:
    assert manifest(tmp_path, 'ARMS = ["a"]\nPATTERN = "\\d"\n')["arms"] == ["a"]


NO_ARMS = 'names no arms: write ARMS = ["baseline", "other"] at its top'
NAMES = "is not a list of names in small letters, digits and _, the baseline first"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", NO_ARMS),
        ("ARMS: list\n", NO_ARMS),
        ("def make():\n    ARMS = ['a']\n", NO_ARMS),
        ("x = 1\ndef make(:\n", "line 2: invalid syntax"),
        ("x = (\n", "line 1: '(' was never closed"),
        ("x = '\0'\n", "null bytes"),
        ("# coding: no-such\n", "unknown encoding"),
        ("names = ['a']\nARMS = [\n    'a',\n    names[0],\n]\n", "line 4: ARMS is read without"),
        ("TECHNIQUE = {'arms': ['a'], 'gpus': 1 + 1}\n", "line 1: TECHNIQUE is read without"),
        ("TECHNIQUE = {[]: 1}\n", "line 1: TECHNIQUE is read without"),
        ("TECHNIQUE = ['a']\n", "TECHNIQUE is no dictionary"),
        ("TECHNIQUE = {}\n", "TECHNIQUE has no 'arms'"),
        ("TECHNIQUE = {'arm': ['a']}\n", "TECHNIQUE has no key 'arm'; there are question, "),
        ("TECHNIQUE = {3: ['a']}\n", "TECHNIQUE has no key 3"),
        ("ARMS = []\n", f"ARMS {NAMES}"),
        ("ARMS = 'eager'\n", f"ARMS {NAMES}"),
        ("ARMS = ['eager', 3]\n", f"ARMS {NAMES}"),
        ("ARMS = ['Eager']\n", f"ARMS {NAMES}"),
        ("ARMS = ['torch-compile']\n", f"ARMS {NAMES}"),
        ("ARMS = ['eager\\n']\n", f"ARMS {NAMES}"),
        ("ARMS = ['a', 'b', 'a']\n", "two arms are called 'a'"),
    ],
)
def test_what_is_no_technique_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    expect_refused(tmp_path, text, said)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("'question': ' '", "'question' of TECHNIQUE is not one line of text"),
        ("'question': 'a\\nb'", "'question' of TECHNIQUE is not one line of text"),
        ("'expectation': 3", "'expectation' of TECHNIQUE is not text"),
        ("'claims': 'a-claim'", "'claims' of TECHNIQUE is not a list of ids"),
        ("'gpus': -1", "'gpus' of TECHNIQUE is not a number of GPUs"),
        ("'gpus': True", "'gpus' of TECHNIQUE is not a number of GPUs"),
        ("'ceiling': 1", "'ceiling' of TECHNIQUE is not True or False"),
        ("'whole_steps': 'no'", "'whole_steps' of TECHNIQUE is not True or False"),
        ("'sweep': ['size']", "'sweep' of TECHNIQUE is not a dictionary"),
        ("'sweep': {'size': []}", "'sweep' of TECHNIQUE is not a dictionary"),
        ("'sweep': {'Size': [1]}", "'sweep' of TECHNIQUE is not a dictionary"),
        ("'sweep': {'size': 8}", "'sweep' of TECHNIQUE is not a dictionary"),
        ("'sweep': {'size': [1.5]}", "'sweep' of TECHNIQUE is not a dictionary"),
        ("'sweep': {'size': [True]}", "'sweep' of TECHNIQUE is not a dictionary"),
        (f"'sweep': {{'size': [{2**63}]}}", "'sweep' of TECHNIQUE is not a dictionary"),
        ("'sweep': {'size': ['a/b']}", "'sweep' of TECHNIQUE is not a dictionary"),
        ("'sweep': {'size': [1, '1']}", "'sweep' of TECHNIQUE is not a dictionary"),
        ("'sweep': {'regime': ['long']}", "the axis 'regime' has the values burst, sustained"),
        ("'sweep': {'gpus': ['two']}", "the axis 'gpus' has numbers from 1 on alone"),
        ("'sweep': {'gpus': [0]}", "the axis 'gpus' has numbers from 1 on alone"),
        ("'quick': {'size': 8}", "'quick' of TECHNIQUE is not a list of parts of cases"),
        ("'quick': [{'size': 8}]", "'quick' of TECHNIQUE asks for size:8, not in its sweep"),
        (
            "'sweep': {'size': [4]}, 'quick': [{'size': 8}]",
            "'quick' of TECHNIQUE asks for size:8, not in its sweep",
        ),
        ("'predict': 'a 1-2'", "'predict' of TECHNIQUE is not a list of lines such as"),
        ("'predict': [2]", "'predict' of TECHNIQUE is not a list of lines such as"),
        ("'predict': ['b 1-2']", "'predict' of TECHNIQUE names 'b', which is no arm"),
        ("'l2': 'hot'", "'l2' of TECHNIQUE is not one of none, cold, warm, by_size, by_case"),
        ("'check': 'exact'", "'check' of TECHNIQUE is not a dictionary"),
        ("'check': {'tolerance': -1}", "'check' of TECHNIQUE is not a dictionary"),
        ("'check': {'tolerance': 1e999}", "'check' of TECHNIQUE is not a dictionary"),
        ("'check': {'tolerance': '0'}", "'check' of TECHNIQUE is not a dictionary"),
        ("'check': {'meaning': 0}", "'check' of TECHNIQUE is not a dictionary"),
        ("'check': {'tolerence': 0}", "'check' of TECHNIQUE is not a dictionary"),
        ("'environment': {'a': {'A': 1}}", "'environment' of TECHNIQUE is not a dictionary"),
        ("'environment': {'a': {'A=B': '1'}}", "'environment' of TECHNIQUE is not a dictionary"),
        ("'environment': {'b': {}}", "'environment' of TECHNIQUE names 'b', which is no arm"),
        ("'controls': 'a'", "'controls' of TECHNIQUE is not a list of names of arms"),
        ("'controls': ['b']", "'controls' of TECHNIQUE names 'b', no arm beside the baseline"),
        ("'controls': ['a']", "'controls' of TECHNIQUE names 'a', no arm beside the baseline"),
        ("'ranks': 0", "'ranks' of TECHNIQUE is not a number of processes"),
        (
            "'ranks': {'a': '2'}",
            "'ranks' of TECHNIQUE asks for as many as '2', no axis of its sweep",
        ),
        ("'ranks': {'b': 2}", "'ranks' of TECHNIQUE names 'b', which is no arm"),
        ("'preload': {'a': ''}", "'preload' of TECHNIQUE is not a dictionary"),
        ("'preload': {'b': 'x.so'}", "'preload' of TECHNIQUE names 'b', which is no arm"),
    ],
)
def test_a_part_that_is_wrong_is_named_in_one_line(tmp_path: Path, part: str, said: str) -> None:
    expect_refused(tmp_path, f"TECHNIQUE = {{'arms': ['a'], {part}}}\n", said)


def expect_refused(folder: Path, text: str, said: str) -> None:
    """One line that names the script and says so."""
    script = folder / "my_step.py"
    script.write_text(text)
    with pytest.raises(manifests.ManifestError) as caught:
        manifests.manifest_of("mine/my_step", script)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{script}: ")
    assert said in line


def test_what_is_wrong_is_exit_2_and_nothing_but_its_line(tmp_path: Path) -> None:
    done = asked(tmp_path, "ARMS = 'eager'\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{tmp_path / 'my_step.py'}: ARMS {NAMES}\n"


@pytest.mark.parametrize("identity", ["my_step", "My/my_step", "my-work/my_step", "a/b/c", "a/"])
def test_an_id_that_records_cannot_hold_is_refused(tmp_path: Path, identity: str) -> None:
    script = tmp_path / "my_step.py"
    script.write_text("ARMS = ['a']\n")
    with pytest.raises(manifests.ManifestError) as caught:
        manifests.manifest_of(identity, script)
    assert str(caught.value) == (
        f"{identity}: the id of a technique is folder/file in small letters, digits and _:"
        " rename one or the other"
    )


def test_a_script_that_is_not_there_is_said(tmp_path: Path) -> None:
    script = tmp_path / "none.py"
    with pytest.raises(manifests.ManifestError, match=f"^{script}: No such file or directory$"):
        manifests.manifest_of("a/b", script)
