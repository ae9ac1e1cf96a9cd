"""Checks committed certificates: each is what the trials beside it give, and nothing private."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpulift.certify.issue import Trial, issue, read_trials
from gpulift.gate.certificate import (
    FOLDER,
    SCHEMA,
    SINCE_1_2,
    TRIALS_SUFFIX,
    Certificate,
    file_of,
    read_certificate,
)
from gpulift.ground.errors import GpuliftError
from gpulift.records.private import private_strings
from gpulift.verdicts.decision import DECISION_METHOD

NAMED = 3  # of the differences
# Other versions of numpy and scipy differ in the last digits.
RELATIVE = 1e-9
ABSOLUTE = 1e-12


@dataclass(frozen=True)
class CheckedCertificates:
    """How many there are, and what was said of them, a line each; a note is no complaint."""

    certificates: int
    complaints: tuple[str, ...]
    notes: tuple[str, ...]


def check_certificates(results: Path) -> CheckedCertificates:
    """All certificates among the results, with their trials."""
    above = results / FOLDER
    files = sorted(file for file in above.rglob("*") if file.is_file())
    certificates = [file for file in files if file.parent == above and file.suffix == ".json"]
    complaints = [
        f"{file}: neither a certificate nor trials that a certificate is made of"
        for file in files
        if file not in certificates and not _belongs(file, above)
    ]
    notes: list[str] = []
    for file in certificates:
        trials = [one for one in files if one.parent == above / file.stem and _belongs(one, above)]
        try:
            complaints += _complaints(file, trials, notes)
        except GpuliftError as error:
            complaints.append(str(error))
    return CheckedCertificates(len(certificates), tuple(complaints), tuple(notes))


def differences(held: Any, made: Any, path: str = "") -> Iterator[str]:
    """Where two values of JSON differ, by path; numbers may differ in their last digits."""
    if isinstance(held, Mapping) and isinstance(made, Mapping):
        for key in dict.fromkeys([*held, *made]):
            inner = f"{path}.{key}" if path else key
            if key not in held or key not in made:
                yield f"{inner} is only in {'what the trials give' if key in made else 'it'}"
            else:
                yield from differences(held[key], made[key], inner)
    elif isinstance(held, list | tuple) and isinstance(made, list | tuple):
        if len(held) != len(made):
            yield f"{path} has {len(held)} entries, the trials give {len(made)}"
            return
        for index, (one, other) in enumerate(zip(held, made, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif not _same(held, made):
        yield f"{path} is {held!r}, the trials give {made!r}"


def _belongs(file: Path, above: Path) -> bool:
    """Whether a file is one of trials, beside a certificate."""
    own_folder = file.parent.parent == above
    return (
        own_folder
        and file.suffix == TRIALS_SUFFIX
        and file_of(above.parent, file.parent.name).is_file()
    )


def _complaints(file: Path, files: Sequence[Path], notes: list[str]) -> Iterator[str]:
    certificate = read_certificate(file)
    if certificate.machine != file.stem:
        yield f"{file}: is of {certificate.machine}, so that it is not found under this name"
    if not certificate.citable:
        yield f"{file}: is not citable: {certificate.caveat}"
    for key, meaning in private_strings(_json(certificate)):
        yield f"{file}: {key} looks like {meaning}"
    trials: list[Trial] = []
    for one in files:
        found, warnings = read_trials(one)
        yield from warnings
        for trial in found:
            for key, meaning in private_strings(_json(trial)):
                yield f"{one}: trial {trial.id}: {key} looks like {meaning}"
        trials += found
    others = [one for one in trials if one.decision_method != certificate.method]
    if others:
        methods = ", ".join(sorted({one.decision_method for one in others}))
        notes.append(
            f"{file}: note: {len(others)} trials beside it are of decision method {methods}"
            " and have no part in it"
        )
    own = [one for one in trials if one.decision_method == certificate.method]
    yield from _trial_complaints(file, certificate, own, notes)


def _trial_complaints(
    file: Path, certificate: Certificate, trials: Sequence[Trial], notes: list[str]
) -> Iterator[str]:
    held = {trial.id for trial in trials}
    named = {note.id for note in certificate.trials}
    if named - held:
        yield f"{file}: names trials that no file beside it holds: {_some(named - held)}"
    if held - named:
        yield (
            f"{file}: does not name trials that are beside it: {_some(held - named)};"
            f" gpulift certify --reissue {file.parent / file.stem}/*{TRIALS_SUFFIX} takes them in"
        )
    if certificate.method != DECISION_METHOD:
        notes.append(
            f"{file}: note: of decision method {certificate.method}, and this is"
            f" {DECISION_METHOD}: whether its trials give it was not checked"
        )
    elif held == named:
        yield from _content_complaints(file, certificate, trials)


def _content_complaints(
    file: Path, certificate: Certificate, trials: Sequence[Trial]
) -> Iterator[str]:
    try:
        made = issue(trials)
    except GpuliftError as error:
        yield f"{file}: {error}"
        return
    unknown = () if certificate.schema == SCHEMA else ("schema", *SINCE_1_2)
    held, given = (
        {key: value for key, value in _json(one).items() if key not in unknown}
        for one in (certificate, made)
    )
    found = list(differences(held, given))
    if found:
        more = f"; {len(found) - NAMED} more" if len(found) > NAMED else ""
        yield f"{file}: is not what its trials give: {'; '.join(found[:NAMED])}{more}"


def _json(made: Certificate | Trial) -> dict[str, Any]:
    return asdict(made)


def _same(held: Any, made: Any) -> bool:
    if isinstance(held, float) and isinstance(made, float):
        return math.isclose(held, made, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(held == made)


def _some(ids: set[str]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return f"{', '.join(sorted(ids)[:NAMED])}{more}"
