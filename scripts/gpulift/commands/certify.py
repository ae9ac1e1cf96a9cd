"""`gpulift certify`: how often the gate is wrong on this machine, shown by trials."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gpulift.certify.issue import SIZES, Trial, issue, line_of, read_trials
from gpulift.certify.trials import TRIALS_FILE, Session, measure_trials
from gpulift.commands import shared as commands
from gpulift.commands.shared import Gpu
from gpulift.engine import machine, runs
from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.runs import Wanted
from gpulift.gate.builds import Build, find_build, own_build, resolve
from gpulift.gate.certificate import (
    FOLDER,
    TRIALS_SUFFIX,
    Certificate,
    file_of,
    read_certificate,
    sentence,
    write_certificate,
)
from gpulift.gate.evidence import Row
from gpulift.gate.measure import Budget
from gpulift.gate.setup import choose_rows
from gpulift.ground import terminal
from gpulift.ground.arguments import Filter, Json, named, one_filter, require_above_0, time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import (
    NOT_COMPARABLE,
    NOTHING_RAN,
    GpuliftError,
    RecordError,
    write_error,
)
from gpulift.ground.whole import write_whole
from gpulift.records.decode import NotJsonError
from gpulift.records.model import Context
from gpulift.verdicts.comparability import require_same_but_commit
from gpulift.verdicts.decision import ARM_TIME_S, DECISION_METHOD, GatePlan, percent
from gpulift.verdicts.stats import upper_bound

RAW_FOLDER = Path(".gate") / "certify"
ALL_SIZES = ",".join(f"{100 * size:g}" for size in SIZES)
BUILDS = 2  # are timed in a launch
NAMED = 3  # files that an error names
MEASURED_WITH = ("time", "out", "seed", "base", "sizes", "unchanged", "arm_time", "gpu", "filter")


def certify(
    context: typer.Context,
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILTER]", help="The same as --filter. With --reissue: files of trials."
        ),
    ] = None,
    filter: Filter = None,
    time: Annotated[
        str,
        typer.Option(
            help="How long to measure: 90s, 20m, 2h. A trial begins when it fits with the"
            " confirmation of its noisiest row. A confirmation that takes longer goes on after the"
            " time, or alarms would be left out: of each row, at most"
            f" {GatePlan(1).looks[-1]} launches."
        ),
    ] = "20m",
    reissue: Annotated[
        bool, typer.Option("--reissue", help="From these files of trials; nothing is measured.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FOLDER",
            help="Folder for raw records and their trials; one with trials is gone on with. The"
            " trials are copied to results/certificates, where the certificate is written.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of orders, data and plants.")] = 1,
    base: Annotated[
        str | None,
        typer.Option(
            help="Git reference or build folder: a second build of this commit, for this one to"
            " meet; by default it meets a copy of itself."
        ),
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="Slow-downs to plant, in per cent; none: unchanged code alone.")
    ] = ALL_SIZES,
    unchanged: Annotated[
        bool, typer.Option(help="Suites of unchanged code, between the planted ones.")
    ] = True,
    arm_time: Annotated[
        float, typer.Option(help="Seconds per build, row and launch.")
    ] = ARM_TIME_S,
    gpu: Gpu = None,
    as_json: Json = False,
) -> None:
    """Try the gate on unchanged and on slowed-down code for a while; write this GPU's certificate.

    Trials of earlier sessions and other cards of the model count too, where they go together."""
    if reissue:
        _require_none_to_measure(context)
        _reissue([named(name) for name in given or ()], as_json)
        return
    filter = one_filter(*(given or ()), filter)
    require_above_0("--arm-time", arm_time)
    limit_s, planted = time_s("--time", time), sizes_of(sizes)
    if not (unchanged or planted):
        raise GpuliftError("--sizes none --no-unchanged leaves no trial: drop one of them")
    here, infos = commands.examine(gpu)
    rows = measurable_rows(infos, here, filter)
    bench = machine.find_bench()
    want = runs.wanted(here, {}, bench)
    second = second_build(base, here, gpu) if base is not None else None
    if second:
        there = machine.catalogue(second.bench)
        choose_rows(there, infos, filter, all_cases=False)  # refuses what one of them lacks
        want = replace(want, build=f"{runs.fingerprint(bench)}+{runs.fingerprint(second.bench)}")
    folder = _folder(out, want)
    budget = Budget(limit_s, BUILDS * arm_time)
    first_look_s = budget.estimate_s(len(rows) * GatePlan(1).screen_launches)
    say(
        f"{len(rows)} rows for {limit_s:.0f} s, the first look at all in {first_look_s:.0f} s at"
        f" best; trials and raw records go to {folder}"
    )
    trials = measure_trials(
        Session(
            folder,
            bench,
            want,
            tuple(rows),
            arm_time,
            seed,
            gpu,
            budget,
            say,
            planted,
            unchanged,
            base=second.modules if second else None,
        )
    )
    kept = _keep_trials(trials)
    _say_written(f"raw records: {folder}", as_json)
    _say_written(f"trials: {kept}", as_json)
    _publish(issue(_joined(trials, kept)), as_json)


def _require_none_to_measure(context: typer.Context) -> None:
    """Refuses what --reissue would have to ignore, as a folder for what it writes."""
    names = {name: f"--{name.replace('_', '-')}" for name in MEASURED_WITH}
    if given := commands.options_given(context, names):
        raise GpuliftError(
            "--reissue measures nothing, and writes the certificate to results/certificates: leave"
            f" out {', '.join(given)}"
        )


def second_build(reference: str, context: Context, gpu: int | None) -> Build:
    """Another build of this commit. Refuses (exit code 4) what differs in more than its folder."""
    commit = context.build.commit
    if context.build.doubt:
        raise GpuliftError(
            f"--base {reference}: this build was {context.build.doubt}, so that no other is known"
            " to be the same code",
            NOT_COMPARABLE,
        )
    if not Path(reference).is_dir():  # before it is built, which takes minutes
        asked = resolve(reference, machine.checkout_root())
        if not asked.startswith(commit):
            raise GpuliftError(
                f"--base {reference}: is commit {asked[: len(commit)]}, and this build is of"
                f" {commit}: name one of the same commit",
                NOT_COMPARABLE,
            )
    own, other = own_build(gpu), find_build(reference, gpu, say)
    if own.folder.resolve() == other.folder.resolve():
        raise GpuliftError(f"--base {reference}: is this build; leave --base out, or name another")
    require_same_but_commit(other.context, own.context)
    if own.stem != other.stem or own.abi_tag != other.abi_tag:  # the stem tells of changes too
        raise GpuliftError(
            f"--base {reference}: {own.name} and {other.name} are not the same code: build both"
            " from one commit without changes",
            NOT_COMPARABLE,
        )
    say(f"{own.name} meets the one in {other.folder}")
    return other


def sizes_of(text: str) -> tuple[float, ...]:
    """Fractions of 0.5,2 (per cent), in rising order; nothing of "none"."""
    if text == "none":
        return ()
    known = {f"{100 * size:g}": size for size in SIZES}
    try:
        return tuple(sorted({known[one.strip()] for one in text.split(",")}))
    except KeyError as error:
        raise GpuliftError(
            f"--sizes {text}: {error.args[0] or 'an empty size'} is none of {ALL_SIZES}"
        ) from None


def measurable_rows(infos: list[TechniqueInfo], context: Context, filter: str | None) -> list[Row]:
    """The quick rows that are selected and can be measured here (exit code 77 without one)."""
    chosen = choose_rows(infos, infos, filter, all_cases=False, more=", which are all it tries")
    not_here = {info.id: info.not_here(context) for info in infos}
    rows = [row for row in chosen if not not_here[row.technique]]
    if not rows:
        why = not_here[chosen[0].technique]
        raise GpuliftError(f"no selected row can be measured here: {why}", NOTHING_RAN)
    if len(rows) < len(chosen):
        reasons = dict.fromkeys(why for row in chosen if (why := not_here[row.technique]))
        say(f"{len(chosen) - len(rows)} of {len(chosen)} rows are left out: {'; '.join(reasons)}")
    return rows


def false_alarm_table(certificate: Certificate) -> Table:
    """Suites of unchanged code, real and replayed."""
    columns = ("suites of", "suites", "with an alarm", "95 % bound")
    table = terminal.titled("Unchanged code", columns=columns)
    for name, one in (
        ("real trials, which decide", certificate.aa),
        ("replays of their launches, which support", certificate.replays),
    ):
        if one.suites:
            table.add_row(name, str(one.suites), str(one.alarms), f"< {100 * one.upper:.2f} %")
    return table


def detection_table(certificate: Certificate) -> Table:
    """What of the planted slow-downs was found."""
    columns = ("size", "as measured (median, range)", "bound by", "trials", "found", "95 % bound")
    table = terminal.titled("Planted slow-downs", columns=columns)
    for one in certificate.detection:
        low, high = percent(one.verified_low), percent(one.verified_high)
        table.add_row(
            percent(one.size),
            f"{percent(one.verified_median)} ({low} to {high})",
            one.bound_by,
            str(one.trials),
            str(one.found),
            f"> {100 * one.lower:.1f} %",
        )
    return table


def incumbent_table(certificate: Certificate) -> Table:
    """Rules of other tools on the same launches."""
    verdicts = ("verdicts", "slower", "faster")
    columns = ("rule", "repetition", "slow-down", *verdicts, "bound", "seconds")
    table = terminal.titled("Rules on the same launches", columns=columns)
    for one in certificate.incumbents:
        alarms = one.regressed + one.improved
        bound = "" if one.size else f"alarms < {100 * upper_bound(alarms, one.trials):.1f} %"
        table.add_row(
            one.rule,
            one.repetition,
            percent(one.size) if one.size else "none",
            str(one.trials),
            str(one.regressed),
            str(one.improved),
            bound,
            f"{one.seconds:.1f}",
        )
    return table


def _reissue(files: list[Path], as_json: bool) -> None:
    if not files:
        raise GpuliftError("--reissue needs files of trials")
    trials: list[Trial] = []
    for file in files:
        found, warnings = _trials_of(file)
        for warning in warnings:
            say(f"warning: {warning}")
        trials += found
    own = [one for one in trials if one.decision_method == DECISION_METHOD]
    if own and len(own) < len(trials):
        others = sorted({one.decision_method for one in trials} - {DECISION_METHOD})
        say(
            f"warning: {len(trials) - len(own)} of {len(trials)} trials are left out: of decision"
            f" method {', '.join(others)}, and this is {DECISION_METHOD}"
        )
    _require_all_of_model(own)
    _publish(issue(own or trials), as_json)


def _require_all_of_model(trials: list[Trial]) -> None:
    """Refuses to have the certificate forget trials that lie beside it and go with these."""
    if not trials:
        return
    above = machine.own_results() / FOLDER / trials[0].machine
    named = {one.id for one in trials}
    lacking = [
        file.name
        for file in sorted(above.glob(f"*{TRIALS_SUFFIX}"))
        for one in read_trials(file)[0]
        if _goes_with(one, trials[0]) and one.id not in named
    ]
    if lacking:
        files = [*dict.fromkeys(lacking)]
        listed = ", ".join(files[:NAMED]) + (", ..." if len(files) > NAMED else "")
        raise GpuliftError(
            f"--reissue would forget {len(lacking)} trials in {above}: name these files, too, or"
            f" take them away: {listed}"
        )


def _trials_of(file: Path) -> tuple[list[Trial], list[str]]:
    try:
        return read_trials(file)
    except NotJsonError as error:
        raise GpuliftError(f"{error}: files of trials end with {TRIALS_SUFFIX}") from None


def _joined(trials: list[Trial], own: Path) -> list[Trial]:
    """These trials and those kept beside them that go together with them; what does not is counted.

    Trials of uncommitted changes never count among committed ones.
    """
    others = [file for file in own.parent.glob(f"*{TRIALS_SUFFIX}") if file != own]
    held = [one for file in sorted(others) for one in read_trials(file)[0]]
    fitting = [one for one in held if _goes_with(one, trials[0])]
    if len(fitting) < len(held):
        say(
            f"{own.parent}: {len(held) - len(fitting)} of {len(held)} other trials are left out: of"
            " another method or arm time, or of uncommitted changes"
        )
    return [*trials, *fitting]


def _goes_with(one: Trial, other: Trial) -> bool:
    return (one.method, one.decision_method, one.arm_time_s, one.dirty) == (
        other.method,
        other.decision_method,
        other.arm_time_s,
        other.dirty,
    )


def _holds_citable(file: Path) -> bool:
    try:
        return file.exists() and read_certificate(file).citable
    except RecordError:  # of another version, so that no gate can read it
        return False


def _publish(certificate: Certificate, as_json: bool) -> None:
    file = file_of(machine.own_results(), certificate.machine)
    if not certificate.citable and _holds_citable(file):
        say(f"{file} is citable and stays as it is: these trials are {certificate.caveat}")
    else:
        write_certificate(certificate, file)
        caveat = "" if certificate.citable else f", not citable: {certificate.caveat}"
        _say_written(f"certificate: {file}{caveat}", as_json)
    if as_json:
        unsteady_rows = [asdict(one) for one in certificate.unsteady]
        commands.print_json({**asdict(certificate), "unsteady": unsteady_rows})
        return
    screen = terminal.console()
    screen.print(false_alarm_table(certificate))
    if certificate.detection:
        screen.print(detection_table(certificate))
    screen.print(incumbent_table(certificate))
    for row, floor in certificate.floors.items():
        reason = certificate.floor_reasons[row]
        screen.print(f"floor {row}: {percent(floor)} ({reason})", soft_wrap=True)
    if unsteady := certificate.unsteady:
        screen.print(
            f"unsteady rows, which most of their trials left inconclusive: {len(unsteady)}; a gate"
            " looks at them once, or longer where a filter names them:",
            soft_wrap=True,
        )
    for noisy in unsteady:
        screen.print(
            f"inconclusive {noisy.row}: {noisy.inconclusive} of {noisy.trials}", soft_wrap=True
        )
    for one in certificate.missed:
        screen.print(f"missed {percent(one.size)} in {one.row}: {one.verdict}", soft_wrap=True)
    for alarm in certificate.alarms:
        screen.print(f"alarm {alarm.row}: {alarm.verdict}, {percent(alarm.change)}", soft_wrap=True)
    for error in certificate.errors:
        screen.print(f"not measured {error.row}: {error.reason}", soft_wrap=True)
    link = certificate.autocorrelation
    screen.print(
        f"autocorrelation of successive launches {link.value:+.2f}, standard error"
        f" {link.standard_error:.2f}, {link.pairs} pairs",
        soft_wrap=True,
    )
    screen.print(sentence(certificate), soft_wrap=True)


def _say_written(what: str, as_json: bool) -> None:
    """On stdout, which with --json holds the certificate alone."""
    if as_json:
        say(what)
    else:
        typer.echo(what)


def _keep_trials(trials: list[Trial]) -> Path:
    """Beside the certificates; the same session goes to the same file again."""
    first = trials[0]
    stem = f"{first.started_at[:10]}-{first.commit}{'-dirty' if first.dirty else ''}"
    above = machine.own_results() / FOLDER / first.machine
    file, number = above / f"{stem}{TRIALS_SUFFIX}", 1
    while file.exists() and read_trials(file)[0][:1] != [first]:
        number += 1
        file = above / f"{stem}-{number}{TRIALS_SUFFIX}"
    write_whole("".join(line_of(trial) + "\n" for trial in trials), file)
    return file


def _folder(out: Path | None, want: Wanted) -> Path:
    """The folder of the session, which exists then."""
    if out is None:
        date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        above = machine.own_folder() / RAW_FOLDER
        return runs.make_new(above, f"{date}-{want.slug}-{want.stem}")
    try:
        held = {one.name for one in out.iterdir()} if out.is_dir() else set()
        if held and TRIALS_FILE not in held and not any(name.startswith("trial-") for name in held):
            raise GpuliftError(f"--out {out}: holds something else; name another folder")
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(out, error) from None
    return out
