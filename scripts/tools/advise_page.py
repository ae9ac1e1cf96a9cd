"""certificates/advise.md: what `advise` said of training scripts with a planted fault.

`python -m tools.advise_page` makes it of certificates/advise/*.json, which `python -m proof.advise`
measures. A test holds it against them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpulift.advise import advice as said
from gpulift.ground.errors import RecordError
from gpulift.ground.text import counted, interval
from gpulift.verdicts.stats import upper_bound
from proof.advice import (
    COSTS_NOTHING,
    MISSED,
    NAMED,
    NOT_MEASURED,
    AdviceCertificate,
    Planted,
    Span,
    read_certificate,
    told_to_differ,
)
from tools.page import write_page

PAGE, FOLDER = "certificates/advise.md", "certificates/advise"
OUTCOMES = (NAMED, MISSED, COSTS_NOTHING)
HEAD = """\
# What `advise` says of scripts with a planted fault

Of {costly} planted faults whose cost shows {named} named, of {others} others {named_others}; of
what was named {agree} of {priced} prices agree, {bounds} of which are upper bounds. Of {idle}
changes that do nothing {false} told to help: below {below:.1f} % are, with 95 % confidence (Clopper
and Pearson, one-sided).

Five training scripts are advised as they are, and with one fault each. What a fault *costs* was
timed: the script with it against the script without it, in processes that take turns, as if the
script had been mended by hand; it *shows* where its 95 % interval is above 1. A fault is *named*
where a row says that its absence helps, or a note tells of it; the price *agrees* where both 95 %
intervals overlap, or an upper bound is above.
Changes that can do nothing in a script are tried beside them. Here are [the
scripts](../../scripts/proof/advised), and [what `advise`
does](../../scripts/gpulift/advise/README.md).
"""
OF_MACHINE = """
## {machine}, {size} models{as_they_are}

`python -m proof.advise OUT.json --size {size}{same}` (in `scripts/`) measured this on {date} with
torch {torch}, of commit {commit}; {idle} judged rows are of changes that do nothing{false}.{apart}
"""
APART = "\nNot measured ({reason}): {faults}."
COUNTS = ("fault", "named", "missed", "cost does not show", "prices that agree")
COLUMNS = ("script", "fault", "costs", "told by", "price", "agrees")


def page(results: Path) -> str:
    """The content. Raises RecordError where a certificate is none, or there is none."""
    files = sorted((results / FOLDER).glob("*.json"))
    if not files:
        raise RecordError(f"{results / FOLDER}: no certificate: python -m proof.advise makes one")
    read = [read_certificate(file) for file in files]
    return _head([one for each in read for one in each.planted], read) + "".join(
        map(_of_machine, read)
    )


def _head(planted: Sequence[Planted], read: Sequence[AdviceCertificate]) -> str:
    timed = [one for one in planted if one.outcome != NOT_MEASURED and one.size]
    costly = [one.outcome == NAMED for one in timed if one.size and one.size.above_1]
    named = [one for one in timed if one.outcome == NAMED]
    judged = [one for one in named if one.agrees is not None]
    rows = sum(one.idle.rows for one in read)
    false = sum(len(one.idle.false_helps) for one in read)
    return HEAD.format(
        costly=len(costly),
        named=_counted(sum(costly)),
        others=len(timed) - len(costly),
        named_others=len(named) - sum(costly),
        agree=sum(one.agrees is True for one in judged),
        priced=len(judged),
        bounds=sum(one.verdict == said.UPPER_BOUND for one in judged if one.agrees),
        idle=rows,
        false=_counted(false),
        below=100 * upper_bound(false, rows),
    )


def _of_machine(certificate: AdviceCertificate) -> str:
    facts, planted, idle = certificate.facts, certificate.planted, certificate.idle
    head = OF_MACHINE.format(
        machine=facts.machine,
        size=facts.size,
        as_they_are="" if planted else ", as they are",
        same="" if planted else " --same N",
        date=facts.date,
        torch=" and ".join(certificate.torch),
        commit=facts.commit + (" with changes" if facts.dirty else ""),
        idle=idle.rows,
        false="".join(f"; told to help: `{one}`" for one in idle.false_helps)
        + "".join(f"; told to have another result: `{one}`" for one in told_to_differ(certificate)),
        apart="".join(_apart(planted)),
    )
    told = [one for one in planted if one.outcome != NOT_MEASURED]
    tables = ("\n", *_counts(told), "\n", *_rows(told)) if told else ()
    return head + "".join(tables)


def _apart(planted: Sequence[Planted]) -> Iterator[str]:
    """What was not measured, by its reason."""
    for reason in dict.fromkeys(one.reason for one in planted if one.outcome == NOT_MEASURED):
        faults = Counter(one.fault for one in planted if one.reason == reason)
        told = (f"`{fault}` in {counted(count, 'script')}" for fault, count in faults.items())
        yield APART.format(reason=reason, faults=", ".join(told))


def _counts(planted: Sequence[Planted]) -> Iterator[str]:
    """How each fault was told, over scripts."""
    yield from _columns(COUNTS)
    for fault in dict.fromkeys(one.fault for one in planted):
        of_fault = [one for one in planted if one.fault == fault]
        outcomes = Counter(one.outcome for one in of_fault)
        agreeing = sum(one.agrees is True and one.outcome == NAMED for one in of_fault)
        yield _line([f"`{fault}`", *(outcomes[one] or "" for one in OUTCOMES), agreeing or ""])


def _rows(planted: Sequence[Planted]) -> Iterator[str]:
    yield from _columns(COLUMNS)
    for one in planted:
        told = f"`{one.row}`: {one.verdict}" if one.verdict else one.row
        told = f"missed: {told}" if one.outcome == MISSED else told
        agrees = {True: "yes", False: "no", None: ""}[one.agrees]
        cells = (f"`{one.script}`", f"`{one.fault}`", _span(one.size), told, _span(one.price))
        yield _line([*cells, agrees])


def _counted(count: int) -> str:
    return f"{count or 'none'} {'were' if count > 1 else 'was'}"


def _span(span: Span | None) -> str:
    return "" if span is None else interval(said.Span(*span).estimate)


def _columns(names: Sequence[str]) -> Iterator[str]:
    yield _line(names)
    yield _line(["---"] * len(names))


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |\n"


if __name__ == "__main__":
    write_page(PAGE, page)
