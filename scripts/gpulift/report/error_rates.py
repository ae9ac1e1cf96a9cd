"""How often the gate's verdict is wrong: the certificate of a GPU model, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from gpulift.gate import certificate as certificates
from gpulift.gate.certificate import Certificate, Detection, RuleTally, Suites
from gpulift.report import plots
from gpulift.report.drawing import Drawing
from gpulift.verdicts.decision import DECISION_METHOD, percent
from gpulift.verdicts.stats import upper_bound


@dataclass(frozen=True)
class RuleRow:
    """A decision rule: what it said where nothing was changed, and of each planted slow-down.

    `slowed` has an entry per size of the view, None where the rule was not tried on it.
    """

    rule: str
    repetition: str
    unchanged: RuleTally | None
    slowed: tuple[RuleTally | None, ...]

    @property
    def false_alarms(self) -> str:
        """How many, of how many verdicts, with the 95 % bound of their share."""
        one = self.unchanged
        if one is None:
            return "–"
        alarms = one.regressed + one.improved
        bound = 100 * upper_bound(alarms, one.trials)
        return f"{alarms} of {one.trials} (< {bound:.1f} %)"

    @property
    def seconds(self) -> str:
        """Of measuring per verdict: the least and the most over the sizes."""
        known = [one.seconds for one in (self.unchanged, *self.slowed) if one is not None]
        if not known:
            return "–"
        low, high = (f"{end:.1f}" for end in (min(known), max(known)))
        return low if low == high else f"{low} to {high}"


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
                " known. ./gpulift certify tries it on such a machine and writes one."
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

    @property
    def suites(self) -> tuple[tuple[str, Suites], ...]:
        """Suites of unchanged code, real and replayed."""
        if self.certificate is None:
            return ()
        kinds = (
            ("real suites, which decide", self.certificate.aa),
            ("replays of their launches, which support", self.certificate.replays),
        )
        return tuple((name, one) for name, one in kinds if one.suites)

    @property
    def sizes(self) -> tuple[float, ...]:
        """Slow-downs on which any rule was tried."""
        return tuple(sorted({one.size for one in self._tallies if one.size}))

    @property
    def rules(self) -> tuple[RuleRow, ...]:
        """All rules on the same launches, in the certificate's order."""
        tried = [one for one in self._tallies if one.trials]
        found = {(one.rule, one.repetition, one.size): one for one in tried}
        names = dict.fromkeys((one.rule, one.repetition) for one in self._tallies)
        return tuple(
            RuleRow(
                *name,
                found.get((*name, 0.0)),
                tuple(found.get((*name, size)) for size in self.sizes),
            )
            for name in names
        )

    @property
    def _tallies(self) -> tuple[RuleTally, ...]:
        return self.certificate.incumbents if self.certificate else ()


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
