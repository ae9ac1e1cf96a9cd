"""What the engine must know of a technique in Python alone, read from its script, which does not
run.

The script says it in one literal, of which all but `arms` may be left out,

    TECHNIQUE = {
        "question": "What is asked?",
        "expectation": "The prediction with its arithmetic.",
        "predict": [  # the same in numbers, as gpulift_predictions.py reads them
            "axis:8 @h100: baseline 0.9-1.1 ms, other 1.8-2.2",
        ],
        "found": "Why records miss a prediction by more than 1.3 times, or that it is not known.",
        "claims": ["id-of-a-claim"],
        "gpus": 0,
        "ceiling": False,
        "integrity": False,
        "launch_bound": False,
        "whole_steps": False,
        "spans_hosts": False,  # its ranks may be on several
        "arms": ["baseline", "other", "odd"],
        "controls": ["odd"],  # arms whose gain is not the technique's own
        "l2": "by_size",  # what of a step's data the device's L2 holds as it begins: none, cold,
        "page_cache": "warm",  # warm, by_size, by_case; likewise, of files
        "sweep": {"axis": ["word", 8]},
        "quick": [{"axis": "word"}],
        "check": {"meaning": "exact bytes", "tolerance": 0.0},
        "environment": {"other": {"VARIABLE": "value"}},
        "ranks": {"other": 2},
        "preload": {"other": "libjemalloc.so.2"},
    }

or in `ARMS = ["baseline", "other"]` alone.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import gpulift_syntax
from gpulift_closure import Closure
from gpulift_predictions import predictions_in

Json = dict[str, Any]

IDENTITY = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")
NAME = re.compile(r"[a-z0-9_]+")  # of an arm or an axis
WORD = re.compile(r"[A-Za-z0-9_.+-]+")  # on an axis: part of the id of a case
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
REGIMES = ("burst", "sustained")
CACHE_STATES = ("none", "cold", "warm", "by_size", "by_case")
GPUS = "gpus"  # the axis of their number
LARGEST = 2**63 - 1
LITERALS = (ast.Constant, ast.Dict, ast.List, ast.Tuple, ast.UnaryOp, ast.USub, ast.expr_context)


class ManifestError(Exception):
    """Why a script is no technique, in one line for its author."""


def manifest_of(identity: str, script: Path) -> Json:
    """The manifest of the technique with this id, as the engine reads it; throws ManifestError."""
    if not IDENTITY.fullmatch(identity):
        raise ManifestError(
            f"{identity}: the id of a technique is folder/file in small letters, digits and _:"
            " rename one or the other"
        )
    try:
        source = script.read_bytes()
    except OSError as error:
        raise ManifestError(f"{script}: {error.strerror}") from error
    try:
        said = said_in(source)
        check_keys(said)
        check_parts(said)
    except ManifestError as error:
        raise ManifestError(f"{script}: {error}") from error
    arms = said["arms"]
    ranks = said.get("ranks", {})
    return {
        "id": identity,
        "script": True,
        "question": said.get("question", f"How do the arms of {script.name} compare?"),
        "expectation": " ".join(said.get("expectation", "").split()),
        "predict": predictions_of(said),
        "found": " ".join(said.get("found", "").split()),
        "claims": list(said.get("claims", ())),
        "gpus": said.get("gpus", 0),
        "ceiling": said.get("ceiling", False),
        "integrity": said.get("integrity", False),
        "launch_bound": said.get("launch_bound", False),
        "whole_steps": said.get("whole_steps", False),
        "spans_hosts": said.get("spans_hosts", False),
        "arms": list(arms),
        "controls": list(said.get("controls", ())),
        "python": list(arms),
        "l2": said.get("l2", ""),
        "page_cache": said.get("page_cache", ""),
        "cases": cases_of(said.get("sweep", {}), said.get("quick", ())),
        "check": said.get("check", {}),
        "environment": said.get("environment", {}),
        "ranks": ranks if isinstance(ranks, dict) else dict.fromkeys(arms, ranks),
        "preload": said.get("preload", {}),
        "source": sources_of_script(f"{identity.partition('/')[2]}.py", script),
    }


def sources_of_script(name: str, script: Path) -> dict[str, str]:
    """SHA-256 of what its arms do, by file: of the script, which stands by this name, and of what
    it reaches of modules in its folder, beside this file and of the workloads. Throws
    ManifestError."""
    here = Path(__file__).resolve().parent
    roots = [script.resolve().parent, here, here.parents[1] / "workloads" / "python"]

    def read(path: str) -> bytes | None:
        file = next((root / path for root in roots if (root / path).is_file()), None)
        return file.read_bytes() if file is not None else None

    try:
        return Closure(name, script.read_bytes(), read).sums()
    except SyntaxError as error:
        raise ManifestError(f"{error.filename}: line {error.lineno or 1}: {error.msg}") from error
    except ValueError as error:  # a zero byte
        raise ManifestError(f"is no Python script: {error}") from error


def hash_of_work(name: str, script: bytes) -> str:
    """The one of these that is of the script itself; empty where it is no Python."""
    try:
        return Closure(name, script, lambda path: None).sums()[name]
    except (SyntaxError, ValueError):
        return ""


def said_in(source: bytes) -> Json:
    """TECHNIQUE, or what ARMS alone says."""
    assigned = assignments(source)
    if "TECHNIQUE" in assigned:
        said = literal("TECHNIQUE", assigned["TECHNIQUE"])
        if not isinstance(said, dict):
            raise ManifestError("TECHNIQUE is no dictionary")
        return said
    if "ARMS" in assigned:
        return {"arms": literal("ARMS", assigned["ARMS"])}
    raise ManifestError('names no arms: write ARMS = ["baseline", "other"] at its top')


def parsed(source: bytes) -> ast.Module:
    """Its syntax tree; throws ManifestError."""
    try:
        return gpulift_syntax.parsed(source)
    except SyntaxError as error:
        raise ManifestError(f"line {error.lineno or 1}: {error.msg}") from error
    except ValueError as error:  # a zero byte
        raise ManifestError(f"is no Python script: {error}") from error


def assignments(source: bytes) -> dict[str, ast.expr]:
    """What the script assigns to names of its own, outside of functions and conditions."""
    found: dict[str, ast.expr] = {}
    for statement in parsed(source).body:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        found.update(dict.fromkeys(names, statement.value) if statement.value else {})
    return found


def literal(name: str, expression: ast.expr) -> Any:
    """Its value, without running anything."""
    try:
        return ast.literal_eval(expression)
    except (ValueError, TypeError, SyntaxError) as error:
        nodes = ast.walk(expression)
        at = next((node for node in nodes if not isinstance(node, LITERALS)), expression)
        line = getattr(at, "lineno", expression.lineno)
        raise ManifestError(
            f"line {line}: {name} is read without running the script: it may hold words, numbers,"
            " True, False, lists and dictionaries alone"
        ) from error


def check_keys(said: Json) -> None:
    """Throws ManifestError for a key that is not known or a value of another type."""
    for key, value in said.items():
        if key not in KEYS:
            raise ManifestError(f"TECHNIQUE has no key {key!r}; there are {', '.join(KEYS)}")
        holds, wanted = KEYS[key]
        if not holds(value):
            where = "ARMS" if said.keys() == {"arms"} else f"{key!r} of TECHNIQUE"
            raise ManifestError(f"{where} is not {wanted}")
    if "arms" not in said:
        raise ManifestError("TECHNIQUE has no 'arms'")


def check_arms(arms: Sequence[str], controls: Sequence[str]) -> None:
    """Throws ManifestError for a name that is there twice, or a control that is no other arm."""
    twice = next((arm for arm in arms if arms.count(arm) > 1), None)
    if twice is not None:
        raise ManifestError(f"two arms are called {twice!r}")
    odd = next((arm for arm in controls if arm not in arms[1:]), None)
    if odd is not None:
        raise ManifestError(f"'controls' of TECHNIQUE names {odd!r}, no arm beside the baseline")


def check_parts(said: Json) -> None:
    """Throws ManifestError where one part names what another does not have."""
    arms = said["arms"]
    check_arms(arms, said.get("controls", ()))
    for key in ("environment", "ranks", "preload"):
        by_arm = said.get(key, {})
        other = next((arm for arm in by_arm if arm not in arms), None) if is_dict(by_arm) else None
        if other is not None:
            raise ManifestError(f"{key!r} of TECHNIQUE names {other!r}, which is no arm")
    sweep = said.get("sweep", {})
    if any(value not in REGIMES for value in sweep.get("regime", ())):
        raise ManifestError(f"the axis 'regime' has the values {', '.join(REGIMES)} alone")
    ranks = said.get("ranks", {})
    by_axis = set(filter(is_name, ranks.values() if is_dict(ranks) else [ranks]))
    other = next((axis for axis in sorted(by_axis) if axis not in sweep), None)
    if other is not None:
        raise ManifestError(
            f"'ranks' of TECHNIQUE asks for as many as {other!r}, no axis of its sweep"
        )
    for axis in sorted({GPUS, *by_axis}):
        if not all(is_int(value) and value >= 1 for value in sweep.get(axis, ())):
            raise ManifestError(f"the axis {axis!r} has numbers from 1 on alone")
    check_points("quick", said.get("quick", ()), sweep)
    predictions_of(said)


def predictions_of(said: Json) -> list[Json]:
    """What its lines say; throws ManifestError."""
    try:
        return predictions_in(said.get("predict", ()), said.get("sweep", {}), said["arms"])
    except ValueError as error:
        raise ManifestError(f"'predict' of TECHNIQUE {error}") from error


def check_points(key: str, points: Iterable[Json], sweep: Mapping[str, Any]) -> None:
    """Throws ManifestError where the key asks for what the sweep does not have."""
    for axis, value in (item for point in points for item in point.items()):
        if value not in sweep.get(axis, ()):
            raise ManifestError(f"{key!r} of TECHNIQUE asks for {axis}:{value}, not in its sweep")


def cases_of(sweep: Mapping[str, list[Any]], quick: list[Json]) -> list[Json]:
    """All combinations of the sweep's values, in its order."""
    cases = []
    for values in itertools.product(*sweep.values()):
        point = dict(zip(sweep, values, strict=True))
        cases.append(
            {
                "id": "/".join(f"{axis}:{value}" for axis, value in point.items()),
                "point": point,
                "quick": any(pattern.items() <= point.items() for pattern in quick),
                "regime": point.get("regime", "burst"),
            }
        )
    return cases


def is_dict(value: Any) -> TypeGuard[dict[Any, Any]]:
    """Whether it is a dictionary."""
    return isinstance(value, dict)


def is_int(value: Any) -> TypeGuard[int]:
    """Whether it is a number that the engine can hold; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST


def is_text(value: Any) -> bool:
    """Whether it is one line, or nothing."""
    return isinstance(value, str) and len(value.splitlines()) <= 1


def is_prose(value: Any) -> bool:
    """Whether it is text."""
    return isinstance(value, str)


def is_name(value: Any) -> bool:
    """Whether arms and axes may be called so."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def is_question(value: Any) -> bool:
    """Whether it is a line that says something."""
    return is_text(value) and value.strip() != ""


def is_count(value: Any) -> bool:
    """Whether so many can be there."""
    return is_int(value) and value >= 0


def is_flag(value: Any) -> bool:
    """Whether it is True or False."""
    return isinstance(value, bool)


def is_list(value: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether it is a list of such."""
    return isinstance(value, list | tuple) and all(map(holds, value))


def is_lines(value: Any) -> bool:
    """Whether it is a list of lines, such as ids."""
    return is_list(value, is_question)


def is_arms(value: Any) -> bool:
    """Whether it is a list of names with a baseline."""
    return is_list(value, is_name) and len(value) > 0


def is_controls(value: Any) -> bool:
    """Whether it is a list of names."""
    return is_list(value, is_name)


def is_axis_value(value: Any) -> bool:
    """Whether it is a number or a word."""
    return is_int(value) or (isinstance(value, str) and WORD.fullmatch(value) is not None)


def is_sweep(value: Any) -> bool:
    """Whether it has values, and none twice, for each axis."""
    return is_dict(value) and all(
        is_name(axis) and is_list(values, is_axis_value) and are_different(values)
        for axis, values in value.items()
    )


def are_different(values: Sequence[Any]) -> bool:
    """Whether there are some, and the id of a case tells which it has."""
    return 0 < len(values) == len(set(map(str, values)))


def is_point(value: Any) -> bool:
    """Whether it is a part of a point."""
    return is_dict(value) and all(map(is_axis_value, value.values()))


def is_quick(value: Any) -> bool:
    """Whether it is a list of parts of points."""
    return is_list(value, is_point)


def is_cache_state(value: Any) -> bool:
    """Whether it tells how warm a cache is."""
    return value in CACHE_STATES


def is_check(value: Any) -> bool:
    """Whether it says what the same result means."""
    if not is_dict(value) or not value.keys() <= {"meaning", "tolerance"}:
        return False
    tolerance = value.get("tolerance", 0.0)
    number = is_int(tolerance) or isinstance(tolerance, float)
    return is_text(value.get("meaning", "")) and number and 0 <= tolerance < math.inf


def is_environment(value: Any) -> bool:
    """Whether it has variables by the names of arms."""
    return is_dict(value) and all(map(is_variables, value.values()))


def is_variables(value: Any) -> bool:
    """Whether they can be set."""
    return is_dict(value) and all(
        isinstance(name, str) and VARIABLE.fullmatch(name) and is_text(text)
        for name, text in value.items()
    )


def is_ranks(value: Any) -> bool:
    """Whether it is a number of processes or an axis of such, or has one by the names of arms."""
    numbers = value.values() if is_dict(value) else [value]
    return all(is_name(number) or (is_int(number) and number >= 1) for number in numbers)


def is_preload(value: Any) -> bool:
    """Whether it has libraries by the names of arms."""
    return is_dict(value) and all(map(is_question, value.values()))


Check = tuple[Callable[[Any], bool], str]
KEYS: dict[str, Check] = {
    "question": (is_question, "one line of text"),
    "expectation": (is_prose, "text"),
    "predict": (is_lines, 'a list of lines such as ["axis:8 @h100: other 1.8-2.2"]'),
    "found": (is_prose, "text"),
    "claims": (is_lines, "a list of ids"),
    "gpus": (is_count, "a number of GPUs"),
    "ceiling": (is_flag, "True or False"),
    "integrity": (is_flag, "True or False"),
    "launch_bound": (is_flag, "True or False"),
    "whole_steps": (is_flag, "True or False"),
    "spans_hosts": (is_flag, "True or False"),
    "arms": (is_arms, "a list of names in small letters, digits and _, the baseline first"),
    "controls": (is_controls, "a list of names of arms"),
    "l2": (is_cache_state, f"one of {', '.join(CACHE_STATES)}"),
    "page_cache": (is_cache_state, f"one of {', '.join(CACHE_STATES)}"),
    "sweep": (
        is_sweep,
        "a dictionary with a list of different numbers or words (letters, digits and _ . + -) for"
        " each axis, which is named in small letters, digits and _",
    ),
    "quick": (is_quick, 'a list of parts of cases, such as [{"axis": "word"}]'),
    "check": (is_check, 'a dictionary such as {"meaning": "exact bytes", "tolerance": 0.0}'),
    "environment": (is_environment, 'a dictionary such as {"arm": {"VARIABLE": "value"}}'),
    "ranks": (is_ranks, 'a number of processes, an axis of such, or one by arm: {"arm": 2}'),
    "preload": (is_preload, 'a dictionary such as {"arm": "libjemalloc.so.2"}'),
}
