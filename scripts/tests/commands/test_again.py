"""`gpulift show --again`: is a record's case, measured again, as its launches predict?"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as distributions

from gpulift import cli
from gpulift.analysis import prediction
from gpulift.analysis.prediction import INCONCLUSIVE, INSIDE, OUTSIDE, Answer
from gpulift.commands import again
from gpulift.commands.verified import Verification, as_dict, table
from gpulift.engine.again import command_again
from gpulift.engine.machine import CaseInfo, TechniqueInfo
from gpulift.ground import errors
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Context, Record
from gpulift.records.parse import read_context, read_record
from gpulift.verdicts.table import FORMS
from tests import runs_made, sample
from tests.sample import Json

pytestmark = pytest.mark.world

COPY: Json = {"direction": "h2d", "bytes": 65536}
PINNED = TechniqueInfo(
    id="transfer/pinned_copy",
    question="",
    gpus=1,
    ceiling=False,
    arms=("pageable", "pinned"),
    cases=(CaseInfo("direction:h2d/bytes:65536", False, "burst"),),
)


def copies(
    count: int = 3,
    pinned_s: float = 1e-4,
    pageable_s: float = 2e-4,
    context: Json = sample.GPU_CONTEXT,
    **top: Any,
) -> tuple[Record, ...]:
    """Launches in which the copies take these times."""
    arms = [sample.arm("pageable", pageable_s), sample.arm("pinned", pinned_s)]
    made = sample.launches(count, "transfer/pinned_copy", COPY, arms, context=context, **top)
    return tuple(read_record(one) for one in made)


def context_of(raw: Json) -> Context:
    return read_context(raw, "here")


def changed(context: Json, path: str, value: object) -> Json:
    made = copy.deepcopy(context)
    inner = made
    *above, last = path.split(".")
    for key in above:
        inner = inner[key]
    inner[last] = value
    return made


def verified(then: Sequence[Record], now: Sequence[Record]) -> Verification:
    return again.held_against(then[0], then, now, Path("new"))


# --- The interval ---


def test_the_interval_is_that_of_the_formula() -> None:
    low, high = prediction.prediction_interval([0.1, 0.2, 0.3], 4)
    half = 4.302652729911275 * 0.1 * math.sqrt(1 / 3 + 1 / 4)  # t(0.975, 2) from tables
    assert (low, high) == pytest.approx((0.2 - half, 0.2 + half))


def test_equal_launches_predict_no_narrower_than_the_least_error() -> None:
    low, high = prediction.prediction_interval([0.5, 0.5, 0.5], 3)
    assert high - low == pytest.approx(2 * 4.302652729911275 * 1e-6)


def test_the_interval_holds_the_new_mean_in_95_of_100_cases() -> None:
    random = np.random.default_rng(5)
    cases = 4000
    held = 0
    for _ in range(cases):
        then, now = ([random.normal(0.7, 0.01) for _ in range(count)] for count in (3, 4))
        low, high = prediction.prediction_interval(then, 4)
        held += low <= sum(now) / 4 <= high
    least, most = (distributions.binom.ppf(p, cases, 0.95) for p in (0.0005, 0.9995))
    assert least <= held <= most


# --- The answers ---


def test_the_same_clock_is_inside() -> None:
    found = verified(copies(seed=1), copies(seed=2))
    (answer,) = found.answers
    assert (answer.arm, answer.quantity.name, answer.verdict) == ("pinned", "speedup", INSIDE)
    assert answer.low is not None
    assert answer.high is not None
    assert answer.now is not None
    assert answer.low < answer.now < answer.high
    assert answer.then == pytest.approx(2.0, rel=0.01)
    assert (answer.beyond, found.exit_code) == (0.0, errors.OK)


@pytest.mark.parametrize(("pinned_s", "side"), [(1.2e-4, "below"), (0.8e-4, "above")])
def test_another_clock_is_outside_and_how_far_is_said(pinned_s: float, side: str) -> None:
    found = verified(copies(), copies(pinned_s=pinned_s))
    (answer,) = found.answers
    assert (answer.verdict, found.exit_code) == (OUTSIDE, errors.FAILED)
    assert answer.now is not None
    end = answer.low if side == "below" else answer.high
    assert end is not None
    assert answer.beyond == pytest.approx(answer.now / end - 1)
    assert f" % {side} the interval" in as_dict(found)["arms"][0]["answer"]


def test_ceilings_are_judged_by_their_rates() -> None:
    gemm = {"flops": 1e9, "roof": "gemm/bf16"}
    link = {"bytes": 1e6, "roof": "host_link/h2d"}
    arms = [
        sample.arm("product", 1e-3, cost=gemm),
        sample.arm("copy", 1e-3, cost=link),
        sample.arm("launch", 1e-3, cost={"items": 100.0}),
    ]
    made = sample.launches(3, "ceiling/all", {"n": 1}, arms)
    then = tuple(read_record(one) for one in made)
    product, moved, launch = verified(then, then).answers
    assert (product.quantity.name, product.quantity.unit) == ("rate", "FLOP/s")
    assert product.then == pytest.approx(1e12, rel=0.01)
    assert moved.quantity.unit == "B/s"
    assert moved.then == pytest.approx(1e9, rel=0.01)
    assert launch.quantity.name == "time per item"
    assert launch.then == pytest.approx(1e-5, rel=0.01)


def test_a_ceiling_that_chose_another_size_is_compared_by_its_rate() -> None:
    def gemm(flops: float) -> tuple[Record, ...]:
        arms = [sample.arm("best", flops / 1e12, cost={"flops": flops, "roof": "gemm/bf16"})]
        made = sample.launches(3, "ceiling/gemm", {"n": 1}, arms)
        return tuple(read_record(one) for one in made)

    (answer,) = verified(gemm(1e9), gemm(2e9)).answers
    assert answer.verdict == INSIDE


def test_other_work_of_a_step_is_not_comparable() -> None:
    arms = [sample.arm("pageable", 2e-4), sample.arm("pinned", 1e-4, cost={"bytes": 7.0})]
    now = [read_record(one) for one in sample.launches(3, "transfer/pinned_copy", COPY, arms)]
    with pytest.raises(GpuliftError, match="work of arm pinned") as caught:
        verified(copies(), now)
    assert caught.value.exit_code == errors.NOT_COMPARABLE


def test_an_arm_of_one_old_launch_is_inconclusive() -> None:
    then = copies()
    arms = [sample.arm("pageable", 2e-4), sample.skipped_arm("pinned", "out of memory")]
    others = [read_record(one) for one in sample.launches(3, "transfer/pinned_copy", COPY, arms)]
    found = verified([then[0], *others[1:]], then)
    assert [one.verdict for one in found.answers] == [INCONCLUSIVE]
    assert found.exit_code == errors.INCONCLUSIVE


def of_arms(*arms: Json) -> list[Record]:
    made = sample.launches(3, "transfer/pinned_copy", COPY, arms)
    return [read_record(one) for one in made]


def test_rows_say_then_and_now_and_what_differs_or_went_wrong(
    kept: Callable[[str], None],
) -> None:
    """In letters that no terminal obeys. Nothing that was skipped here decides."""
    pageable, nasty = sample.arm("pageable", 2e-4), sample.arm("x\x1b[31m[bold]\u202e", 1e-4)
    here = changed(sample.GPU_CONTEXT, "driver", "999.0")
    here["gpu"]["card"], here["build"]["commit"] = "ffffffff", "fedcba9"
    why = "arm pinned: error 1"
    broken = sample.unmeasured("transfer/pinned_copy", COPY, "failed", why, launch=2)
    skipped = of_arms(pageable, sample.skipped_arm("pinned", "no right to lock memory"))
    made = [
        verified(copies(), copies(pinned_s=1.2e-4, context=here, seed=2)),
        verified(copies(), [*copies(2, seed=2), read_record(broken)]),
        verified(copies(), skipped),
        verified(of_arms(pageable, nasty), of_arms(pageable, nasty)),
    ]
    codes = [errors.FAILED, errors.FAILED, errors.NOTHING_RAN, errors.OK]
    assert [one.exit_code for one in made] == codes
    told = "\n\n".join(FORMS["lines"](table(one)) for one in made)
    kept(re.sub("[0-9a-f]{12}", "ID", told) + "\n")


def test_json_holds_every_arm_and_all_records() -> None:
    found = verified(copies(), copies(pinned_s=1.2e-4, seed=2))
    read = json.loads(json.dumps(as_dict(found), allow_nan=False))
    assert read["exit_code"] == errors.FAILED
    assert read["arms"][0]["verdict"] == OUTSIDE
    assert read["arms"][0]["beyond"] < 0
    assert read["records_then"] == [one.citation for one in found.then]
    assert len(read["records_now"]) == 3


def test_ends_that_no_float_holds_are_finite() -> None:
    then = [*copies(1, 1e-11, 1e7), *copies(2, 1e7, 1e-11)[1:]]
    (answer,) = prediction.answers(then, copies(1))
    assert answer.high is not None
    assert math.isfinite(answer.high)
    assert isinstance(answer, Answer)


# --- What may be measured again ---


def test_a_run_of_one_launch_is_inconclusive_and_nothing_is_measured(tmp_path: Path) -> None:
    folder = sample.write(tmp_path, [copies(1)[0].raw])  # type: ignore[list-item]
    with pytest.raises(GpuliftError, match="nothing was measured") as caught:
        again.launches_of(record_in(folder))
    assert caught.value.exit_code == errors.INCONCLUSIVE


def record_in(folder: Path, technique: str = "transfer.pinned_copy") -> Record:
    file = folder / f"{technique}.jsonl"
    line = file.read_text(encoding="utf-8").splitlines()[0]
    return read_record(json.loads(line), file, 1)


def test_launches_are_those_of_its_case_and_conditions_alone(tmp_path: Path) -> None:
    other_card = changed(sample.GPU_CONTEXT, "gpu.card", "ffffffff")
    elsewhere = sample.record(
        "transfer/pinned_copy", {**COPY, "bytes": 1}, [sample.arm("pageable", 1e-4)]
    )
    strange = [{**one.raw, "launch": 9} for one in copies(1, context=other_card)]
    folder = sample.write(tmp_path, [*(dict(one.raw) for one in copies()), elsewhere, *strange])
    found = again.launches_of(record_in(folder))
    assert [one.launch for one in found] == [0, 1, 2]
    assert {one.case_id for one in found} == {"direction:h2d/bytes:65536"}


@pytest.mark.parametrize("kind", ["skipped", "duet", "planted"])
def test_what_holds_no_plain_figure_is_refused(kind: str) -> None:
    context = changed(sample.GPU_CONTEXT, "options.plant", 0.1)
    records = {
        "skipped": sample.unmeasured("transfer/pinned_copy", COPY, "skipped", "no GPU"),
        "duet": runs_made.duet()[0],
        "planted": copies(1, context=context)[0].raw,
    }
    with pytest.raises(GpuliftError) as caught:
        again.launches_of(read_record(records[kind]))
    assert caught.value.exit_code == errors.USAGE


def refusal(
    record: Record, info: TechniqueInfo = PINNED, context: Json = sample.GPU_CONTEXT
) -> tuple[str, int]:
    with pytest.raises(GpuliftError) as caught:
        again.require_same_work(record, context_of(context), [info])
    return str(caught.value), caught.value.exit_code


def test_the_same_model_regime_case_and_arms_may_be_measured() -> None:
    other = changed(sample.GPU_CONTEXT, "gpu.card", "ffffffff")
    again.require_same_work(copies(1)[0], context_of(other), [PINNED])


def test_another_gpu_model_is_named() -> None:
    here = changed(sample.GPU_CONTEXT, "gpu.name", "NVIDIA B200")
    message, code = refusal(copies(1)[0], context=here)
    assert code == errors.NOT_COMPARABLE
    assert "gpu.name (NVIDIA H200 then, NVIDIA B200 here)" in message


def test_a_missing_technique_case_arm_and_another_regime_are_named() -> None:
    record = copies(1)[0]
    other = TechniqueInfo("a/b", "", True, False, (), ())
    today = (
        "; git checkout abc1234 has it as it was, ./gpulift list transfer/pinned_copy tells today's"
    )
    assert refusal(record, other) == (
        f"not comparable: technique transfer/pinned_copy (not in this build){today} cases",
        errors.NOT_COMPARABLE,
    )
    gone = replace(PINNED, cases=())
    assert today in refusal(record, gone)[0]
    assert refusal(record, gone, sample.CPU_CONTEXT)[1] == errors.NOT_COMPARABLE, "no driver helps"
    bench = replace(record, technique="bench/my_step")
    assert refusal(bench)[0].endswith(
        f"(not in this build); {command_again(bench)} measures it again"
    )
    changes: dict[str, dict[str, Any]] = {
        "case direction:h2d/bytes:65536 (not in this build)": {"cases": ()},
        "arm pinned (not in this build)": {"arms": ("pageable",)},
        "regime (burst then, sustained here)": {
            "cases": (CaseInfo(record.case_id, False, "sustained"),)
        },
    }
    for problem, change in changes.items():
        message, code = refusal(record, TechniqueInfo(**{**vars(PINNED), **change}))
        assert (problem in message, code) == (True, errors.NOT_COMPARABLE)


def test_without_a_gpu_a_technique_of_the_device_is_skipped_with_its_reason() -> None:
    message, code = refusal(copies(1)[0], context=sample.CPU_CONTEXT)
    assert code == errors.NOTHING_RAN
    assert "no NVIDIA driver on this machine; install the NVIDIA driver" in message


def test_a_technique_that_was_not_built_is_skipped_with_its_remedy() -> None:
    lacking = {**vars(PINNED), "unavailable": "built without LibTorch", "remedy": "./gpulift setup"}
    message, code = refusal(copies(1)[0], TechniqueInfo(**lacking))
    assert code == errors.NOTHING_RAN
    assert "built without LibTorch; ./gpulift setup" in message


def test_work_of_the_host_asks_for_the_same_processor_and_for_no_gpu() -> None:
    on_host = TechniqueInfo(**{**vars(PINNED), "gpus": 0})
    record = copies(1)[0]
    without_gpu = {key: value for key, value in sample.GPU_CONTEXT.items() if key != "gpu"}
    again.require_same_work(record, context_of(without_gpu), [on_host])
    message, code = refusal(record, on_host, sample.CPU_CONTEXT)
    assert (code, "host.cpu" in message) == (errors.NOT_COMPARABLE, True)


def test_work_of_the_host_asks_for_the_same_generation_of_a_processor() -> None:
    on_host = TechniqueInfo(**{**vars(PINNED), "gpus": 0})
    zen_4, zen_3 = (changed(sample.GPU_CONTEXT, "host.cpu_id", one) for one in ("25-17", "25-1"))
    record = replace(copies(1)[0], context=context_of(zen_4))
    again.require_same_work(record, context_of(zen_4), [on_host])
    again.require_same_work(record, context_of(sample.GPU_CONTEXT), [on_host])
    message, _ = refusal(record, on_host, zen_3)
    assert "host.cpu_id (25-17 then, 25-1 here)" in message


def test_python_arms_that_ran_on_a_gpu_ask_for_its_model() -> None:
    python = TechniqueInfo(**{**vars(PINNED), "gpus": 0, "python": ("pinned",)})
    elsewhere = changed(sample.GPU_CONTEXT, "host.cpu", "another")
    again.require_same_work(copies(1)[0], context_of(elsewhere), [python])
    message, code = refusal(copies(1)[0], python, sample.CPU_CONTEXT)
    assert (code, "gpu.name (NVIDIA H200 then, none here)" in message) == (
        errors.NOT_COMPARABLE,
        True,
    )


def test_options_are_those_of_the_record_and_nonsense_is_left_out() -> None:
    told = {"quick": True, "arm_time_s": 0.5, "precision": "; rm -rf", "seed": 7, "launches": 9}
    record = copies(1, context=changed(sample.GPU_CONTEXT, "options", told))[0]
    options = again.options_again(record, 4, 1)
    assert options.filter == f"^{PINNED.id}/{PINNED.cases[0].id}/(pageable|pinned)$"
    assert (options.quick, options.launches, options.gpu) == (True, 4, 1)
    assert (options.arm_time, options.precision, options.seed) == (0.5, None, 7)


def test_new_launches_that_were_all_skipped_or_failed(tmp_path: Path) -> None:
    record = copies(1)[0]
    for outcome, code in (("skipped", errors.NOTHING_RAN), ("failed", errors.FAILED)):
        one = sample.unmeasured("transfer/pinned_copy", COPY, outcome, "because")
        folder = sample.write(tmp_path / outcome, [one])
        with pytest.raises(GpuliftError, match="because") as caught:
            again.new_launches(record, folder)
        assert caught.value.exit_code == code


# --- The command, with a fake gpulift-bench that always measures the same ---


def old_run(folder: Path, jemalloc_s: float = 1.4e-4, count: int = 3, **context: Any) -> str:
    """Launches of the case that the fake measures; the first one's id."""
    arms = [sample.arm("glibc", 2e-4), sample.arm("jemalloc", jemalloc_s)]
    case = {"threads": 2, "sizes": "collate"}
    made = sample.launches(
        count,
        "allocator/host_malloc",
        case,
        arms,
        context={**sample.CPU_CONTEXT, **context},
        seed=3,
    )
    sample.write(folder, made)
    return record_in(folder, "allocator.host_malloc").id


@pytest.mark.parametrize(("jemalloc_s", "code"), [(1.4e-4, 0), (1.9e-4, 1)])
def test_the_case_is_measured_again_and_judged(
    root: Path, capfd: pytest.CaptureFixture[str], jemalloc_s: float, code: int
) -> None:
    old = root / "results" / "cpu-amd-epyc-7b13" / "old"
    wanted = old_run(old, jemalloc_s)
    assert cli.main(["show", "--again", wanted]) == code
    said = capfd.readouterr()
    case = "^allocator/host_malloc/threads:2/sizes:collate/(glibc|jemalloc)$"
    assert f"--benchmark_filter={case}" in said.err
    assert "--launches 3 --arm-time 0.3 --precision 0.0025" in said.err
    assert ("jemalloc" in said.out, "glibc " in said.out) == (True, False)
    word = "outside" if code else "inside"
    assert f": 1 row: 1 {word}\n{word:<13}jemalloc: " in said.out
    assert len(list(old.parent.glob("*/run.json"))) == 1, "new records lie where `run` puts them"


def test_json_launches_and_out(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = old_run(root / "old", count=5)
    out = root / "new"
    options = ["--results", str(root / "old"), "--out", str(out), "--json"]
    assert cli.main(["show", "--again", wanted, *options]) == 0
    first = capfd.readouterr()
    assert "--launches 5" in first.err
    assert json.loads(first.out)["folder"] == str(out)
    assert cli.main(["show", "--again", wanted, *options[:2], "--launches", "2"]) == 0
    assert "--launches 2" in capfd.readouterr().err
    assert cli.main(["show", "--again", wanted, *options[:2], "--launches", "0"]) == errors.USAGE


def test_the_commands_refusals(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = old_run(root / "one", count=1)
    assert cli.main(["show", "--again", one, "--results", str(root / "one")]) == errors.INCONCLUSIVE
    other = changed(sample.CPU_CONTEXT, "host.cpu", "Intel Xeon")["host"]
    far = old_run(root / "far", host=other)
    assert (
        cli.main(["show", "--again", far, "--results", str(root / "far")]) == errors.NOT_COMPARABLE
    )
    assert "host.cpu (Intel Xeon then, AMD EPYC 7B13 here)" in capfd.readouterr().err
    assert cli.main(["show", "--again", "0123456789ab"]) == errors.USAGE
    assert not list((root / "results").glob("cpu*")), "nothing was measured"


def test_a_run_that_breaks_off_gives_no_answer(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = old_run(root / "old")
    monkeypatch.setenv("FAKE_BENCH", "crash")
    assert cli.main(["show", "--again", wanted, "--results", str(root / "old")]) == errors.FAILED
    said = capfd.readouterr()
    assert "SIGSEGV" in said.err
    assert "inside" not in said.out
