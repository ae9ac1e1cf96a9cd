"""How often the gate's verdict is wrong: the certificate of a GPU model, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from gpulift.gate import certificate as certificates
from gpulift.gate.certificate import Certificate, Detection
from gpulift.report import plots
from gpulift.report.drawing import Drawing
from gpulift.verdicts.decision import DECISION_METHOD, percent


@dataclass(frozen=True)
class CertificateView:
    """The certificate of one model, or None; `curve` is the share of slow-downs found by size."""

    machine: str
    certificate: Certificate | None
    curve: Drawing | None

    @property
    def sentence(self) -> str:
        """The two rates in a sentence, or that nothing is known and what to do."""
        if self.certificate is None:
            return (
                f"No certificate for {self.machine}: how often a gate is wrong on this model is not"
                " known. In a checkout, python -m proof.certify tries it on such a machine."
            )
        return certificates.sentence(self.certificate)

    @property
    def marks(self) -> tuple[str, ...]:
        """Why it does not hold for the verdicts of this version, or may not be cited."""
        one = self.certificate
        found = []
        if one is not None and not one.citable:
            found.append(f"not citable: {one.caveat}")
        if one is not None and one.method != DECISION_METHOD:
            found.append(f"of decision method {one.method}, and this is {DECISION_METHOD}")
        return tuple(found)


def views(models: Iterable[str], known: Mapping[str, Certificate]) -> list[CertificateView]:
    """A view per model, each once; without a certificate where none is known."""
    return [_view(one, known.get(one), i) for i, one in enumerate(dict.fromkeys(models))]


def _view(machine: str, found: Certificate | None, number: int) -> CertificateView:
    if found is None or not found.detection:
        return CertificateView(machine, found, None)
    alt = f"Planted slow-downs that the gate found on {machine}: {_finding(found.detection)}."
    curve = Drawing(f"detection-{number}", alt, partial(plots.detection, found.detection))
    return CertificateView(machine, found, curve)


def _finding(lines: Iterable[Detection]) -> str:
    """The found shares in words, by what bounds the rows."""
    parts: dict[str, list[str]] = {}
    for one in lines:
        said = f"{percent(one.size)} in {one.found} of {one.trials}"
        parts.setdefault(one.bound_by, []).append(said)
    return "; ".join(f"bound by {kind}, {', '.join(said)}" for kind, said in parts.items())
