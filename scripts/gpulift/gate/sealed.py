"""The certificate of a gate: all of its evidence in one file, to be judged again anywhere.

Other than gate/certificate.py, which is of a GPU model: how often a gate on it is wrong. A chain of
hashes goes over the parts and ends in what they say.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpulift.gate.answer import family
from gpulift.gate.evidence import GATE_FILE, SERIES, Origin, read_evidence
from gpulift.gate.judge import GateResult, judge
from gpulift.gate.pairs import LAUNCH_FILE
from gpulift.ground.errors import GpuliftError, RecordError, write_error
from gpulift.ground.text import visible
from gpulift.ground.whole import temporary_folder, write_whole
from gpulift.records.decode import NotJsonError, converted, parse_line
from gpulift.records.files import record_files_below, stem_of
from gpulift.records.model import canonical
from gpulift.records.private import private_strings
from gpulift.records.read import read_file

SCHEMA = "1.0"
KEY = "gpulift_certificate"
BEGINNING = f'{{"{KEY}": '.encode()
MOST_BYTES = 1 << 26
FILE = re.compile(
    rf"gate\.json|({'|'.join(SERIES)})/stage[12]/(launch|block)-\d{{4,9}}"
    r"(/\d{1,2}-(base|head))?/(launch\.json|[\w.-]{1,200}\.jsonl)"
)
NO_TRIALS = "no trials on this machine: its two controls are all that was tried"
ALIKE = 1e-9  # two versions of a library may round the last digits otherwise
SHOWN = 20  # letters of what another wrote


@dataclass(frozen=True)
class Part:
    """A file of the evidence, a line each, and the chain's hash up to it."""

    file: str
    lines: tuple[dict[str, Any], ...]
    sha256: str


@dataclass(frozen=True)
class Sealed:
    """The file; `says` is for who reads it, and must follow from the parts."""

    gpulift_certificate: str
    made_at: str
    says: dict[str, Any]
    parts: tuple[Part, ...]
    sha256: str

    @property
    def broken(self) -> str:
        """The first part whose hash is another than the chain's; empty where it is whole."""
        links = _chain([(one.file, one.lines) for one in self.parts], self.made_at, self.says)
        stated = [*((one.file, one.sha256) for one in self.parts), ("what it says", self.sha256)]
        pairs = zip(links, stated, strict=True)
        return next((name for link, (name, hash) in pairs if link != hash), "")


def require_public(origin: Origin) -> None:
    """Refuses what no certificate may hold, before anything is measured for it."""
    for word in origin.words:
        if found := next(private_strings(word), None):
            raise GpuliftError(
                f"--certificate: {visible(word)!r} has {found[1]}, and others read it: name files"
                " from the repository's folder, and hosts by a variable"
            )


def says(result: GateResult) -> dict[str, Any]:
    """What follows from the evidence, for people."""
    setup = result.setup
    return {
        **{name: one for name, one in asdict(setup.origin).items()},
        "method": setup.method,
        "seed": setup.seed,
        "equal": [asdict(one) for one in setup.equal],
        "error_rates": [family(result.plan), setup.certificate or NO_TRIALS],
        "controls": [
            {"name": one.name, "state": one.state, "said": one.said} for one in result.controls
        ],
        "rows": [_row(one) for one in result.rows],
        "exit_code": result.exit_code,
    }


def _row(one: Any) -> dict[str, Any]:
    verdict = one.verdict
    made = {"row": one.row.id, "verdict": verdict.verdict, "least": one.margins.least}
    if verdict.difference is not None:
        ratio = verdict.difference.ratio
        made |= {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
        made |= {"launches": ratio.launches}
    return made | ({"reason": verdict.reason} if verdict.reason else {})


def write(gate: Path, file: Path) -> str:
    """Writes the certificate of a gate, unless a control did not pass; what was done, in words."""
    held = [(name, _public(lines)) for name, lines in _evidence(gate)]
    with temporary_folder() as folder:
        _unpack(held, folder)
        result = judge(read_evidence(folder))
    if bad := next((one for one in result.controls if not one.passed), None):
        return f"no certificate: control {bad.name} {bad.state}"
    if not (result.setup.origin.base and result.setup.origin.head):
        return "no certificate: the evidence does not tell both commits"
    require_public(result.setup.origin)
    made_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    told = says(result)
    *links, last = _chain(held, made_at, told)
    document = {
        KEY: SCHEMA,
        "made_at": made_at,
        "says": told,
        "parts": [
            {"file": name, "lines": lines, "sha256": link}
            for (name, lines), link in zip(held, links, strict=True)
        ],
        "sha256": last,
    }
    content = json.dumps(document, allow_nan=False) + "\n"
    if len(content) > MOST_BYTES:
        return f"no certificate: it would have more than {MOST_BYTES >> 20} MiB; select fewer rows"
    write_whole(content, file)
    return f"certificate: {file}"


def read(file: Path) -> Sealed:
    """Raises RecordError (usage) for what is none."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise RecordError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise RecordError(f"{file}: has more than {MOST_BYTES >> 20} MiB, as no certificate has")
    try:
        raw = parse_line(content, str(file))
    except NotJsonError:
        raise RecordError(f"{file}: is no JSON: it was cut, or is no certificate") from None
    schema = raw.get(KEY)
    if schema is None:
        raise RecordError(f"{file}: is no certificate of a gate: it has no {KEY}")
    if schema != SCHEMA:
        told = visible(str(schema)[:SHOWN])
        raise RecordError(f"{file}: is a certificate {told}; this gpulift reads {SCHEMA} alone")
    sealed = converted(raw, Sealed, str(file), closed=True)
    names = [one.file for one in sealed.parts]
    for one in sealed.parts:
        sound = FILE.fullmatch(one.file) and names.count(one.file) == 1
        if not sound or (one.file.endswith(".json") and len(one.lines) != 1):
            told = visible(one.file[: 2 * SHOWN])
            raise RecordError(f"{file}: the part {told!r} is as no gate writes it")
    return sealed


@contextmanager
def evidence_of(sealed: Sealed, file: Path) -> Iterator[Path]:
    """The folder that it was made of; errors of what is read there name the file."""
    with temporary_folder() as folder:
        try:
            _unpack([(one.file, one.lines) for one in sealed.parts], folder)
            yield folder
        except RecursionError:
            raise RecordError(f"{file}: is nested too deeply") from None
        except GpuliftError as error:
            told = str(error).replace(str(folder), str(file))
            raise GpuliftError(told, error.exit_code) from None


def difference(stated: Any, found: Any, path: str = "") -> str:
    """The first key in which two documents of JSON differ; empty where none does."""
    if isinstance(stated, Mapping) and isinstance(found, Mapping):
        keys = [key for key in {**found, **stated} if key not in stated or key not in found]
        inner = [(f"{path}.{key}", stated[key], found[key]) for key in found if key not in keys]
        return next((f"{path}.{key}" for key in keys), "") or _first_of(inner)
    if isinstance(stated, Sequence) and isinstance(found, Sequence) and not _texts(stated, found):
        if len(stated) != len(found):
            return path
        pairs = enumerate(zip(stated, found, strict=True))
        return _first_of([(f"{path}[{index}]", one, two) for index, (one, two) in pairs])
    if isinstance(stated, float) and isinstance(found, float):
        return "" if math.isclose(stated, found, rel_tol=ALIKE) else path
    return "" if stated == found else path


def _first_of(inner: Sequence[tuple[str, Any, Any]]) -> str:
    return next((found for path, a, b in inner if (found := difference(a, b, path))), "")


def _texts(*values: Any) -> bool:
    return any(isinstance(one, str) for one in values)


def _chain(
    parts: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], made_at: str, told: Mapping[str, Any]
) -> list[str]:
    links = [""]
    for content in (*parts, (SCHEMA, made_at, told)):
        links.append(hashlib.sha256((links[-1] + canonical(content)).encode()).hexdigest())
    return links[1:]


def _evidence(gate: Path) -> Iterator[tuple[str, list[Any]]]:
    """The set-up and when it ended; then the launches, in order."""
    raw = dict(parse_line((gate / GATE_FILE).read_bytes(), str(gate / GATE_FILE)))
    if (result := raw.get("result")) is not None:
        raw["result"] = {key: result[key] for key in ("ended_at",) if key in result}
    yield GATE_FILE, [raw]
    files = {file: file for one in SERIES for file in (gate / one).rglob(LAUNCH_FILE)}
    for file in sorted(files):
        yield str(file.relative_to(gate)), [dict(parse_line(file.read_bytes(), str(file)))]
    for file in sorted(one for name in SERIES for one in record_files_below(gate / name)):
        lines = [record.raw for record in read_file(file).records]
        yield str(file.with_name(f"{stem_of(file)}.jsonl").relative_to(gate)), lines


def _public(value: Any) -> Any:
    """Without what is of this machine alone, in names and texts alike."""
    if isinstance(value, str):
        found = next(private_strings(value), None)
        return f"({found[1]})" if found else value
    if isinstance(value, Mapping):
        return {_public(key): _public(one) for key, one in value.items()}
    return [_public(one) for one in value] if isinstance(value, (list, tuple)) else value


def _unpack(parts: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], folder: Path) -> None:
    for name, lines in parts:
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
        except OSError as error:
            raise write_error(file, error) from None
