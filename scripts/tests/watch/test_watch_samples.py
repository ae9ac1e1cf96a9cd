"""Samples of a watch: merged, in words, as rules, gauges and a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpulift.watch import cards, gauges, rules, words
from gpulift.watch.job import Reading
from gpulift.watch.observer import Overhead
from gpulift.watch.samples import History, Sample, merged
from tests.fake_nvml import FakeNvml

JOB = {
    "cpu_cores": 1.5,
    "cpu_wait_cores": 0.25,
    "first_thread_asleep": 0.04,
    "processes": 3.0,
    "threads": 9.0,
    "memory_bytes": 2.0**29,
    "disk_read_bytes_per_s": 12.5e6,
    "disk_written_bytes_per_s": 0.0,
    "network_received_bytes_per_s": 2e3,
    "network_sent_bytes_per_s": 0.0,
}


def gpu_cards() -> list[cards.Card]:
    return cards.open_cards(FakeNvml(), None)


def sample(time_s: float = 1.0, gpus: int = 2, **job: float) -> Sample:
    """A second of a job on some of the made-up cards."""
    made = gpu_cards()[:gpus]
    for card in made:
        card.reading()
    return Sample(time_s, 1.0, JOB | job, tuple(card.reading() for card in made))


def last(peak_bytes: int = 0, peak_limit_bytes: int = 0) -> Reading:
    """What a job had used at its end."""
    none = (0, 0)
    sums = (0.0, 0, 0, 0, peak_bytes, peak_limit_bytes, 0.0, 0.0, 0.0)
    return Reading(4.0, 0.0, *sums, none, none)


# --- Merging ---


def test_two_samples_become_one_of_their_means_over_time() -> None:
    long = Sample(3.0, 3.0, {"cpu_cores": 1.0}, ({"power_w": 100.0},))
    short = Sample(4.0, 1.0, {"cpu_cores": 2.0}, ({"power_w": 200.0},))
    both = merged(long, short)
    assert (both.time_s, both.interval_s) == (4.0, 4.0)
    assert both.job == {"cpu_cores": 1.25}
    assert both.gpus == ({"power_w": 125.0},)


def test_what_only_one_sample_knows_is_kept() -> None:
    both = merged(Sample(1.0, 1.0, {}, ()), Sample(2.0, 1.0, {"cpu_cores": 2.0}, ()))
    assert both.job == {"cpu_cores": 2.0}


@pytest.mark.parametrize("count", [1, 4, 5, 12, 1000])
def test_a_long_history_is_bounded_and_its_means_stay(count: int) -> None:
    history = History(most=4)
    for number in range(count):
        history.add(Sample(number + 1.0, 1.0, {"cpu_cores": float(number)}, ()))
        assert len(history.samples) <= 4
    whole = history.whole
    assert whole is not None
    assert whole.time_s == whole.interval_s == count
    assert whole.job["cpu_cores"] == pytest.approx((count - 1) / 2)


def test_a_job_that_ended_before_a_sample_has_no_means() -> None:
    assert History().whole is None
    assert list(words.summary(History(), last(), 2, [], [])) == []


# --- Words ---


def test_a_line_has_the_job_and_each_card() -> None:
    line = words.line(sample(), 2, gpu_cards())
    job, gpu, older = line.split("; GPU ")
    assert job == (
        "1.0 s: 1.50 of 2 cores, 0.25 threads wait for one, first thread asleep 4 %;"
        " 512 MiB in 3 processes; disk 12.5 MB/s read, 0 B/s written"
    )
    assert gpu == (
        "0: SM 95 %, tensor 92 %, DRAM 24 %, utilisation 100 %, memory 12.0 GiB of 80.0 GiB,"
        " 612 W, 1755 MHz, PCIe 15.7 MB/s received, 3.15 MB/s sent, NVLink 7.34 MB/s received,"
        " sw_power_cap"
    )
    assert older.startswith("1: utilisation 25 %, memory")


def test_what_the_kernel_does_not_tell_is_a_dash_or_left_out() -> None:
    known = {"cpu_cores": 0.5, "processes": 1.0, "threads": 1.0, "memory_bytes": 1024.0}
    line = words.line(Sample(1.0, 1.0, known, ()), 2, [])
    assert line == "1.0 s: 0.50 of 2 cores; 1.00 KiB in 1 process; disk –"


def test_the_summary_has_totals_and_the_energy_of_cards_that_tell_it() -> None:
    history = History()
    for number in range(4):
        history.add(sample(number + 1.0, memory_bytes=number * 2.0**20))
    lines = list(words.summary(history, last(), 2, gpu_cards(), [1500.0, None]))
    assert lines[0] == "4.0 s: 6.00 s of CPU time"
    assert "memory: at most 3.00 MiB" in lines
    assert "disk: 47.7 MiB read, 0 B written" in lines
    assert lines[-2].endswith(", 1500 J")
    assert not lines[-1].endswith("J")


@pytest.mark.parametrize(
    ("used", "waited", "says"),
    [
        (0.2, 0.8, "in 80 % of their time: they were not free"),
        (1.8, 0.6, "in 25 % of their time: more of them could run than it has cores"),
        (1.8, 0.1, ""),
        (0.0, 0.0, ""),
    ],
)
def test_a_job_that_waits_for_processors_is_told_so(used: float, waited: float, says: str) -> None:
    history = History()
    history.add(sample(cpu_cores=used, cpu_wait_cores=waited))
    lines = list(words.summary(history, last(), 2, gpu_cards(), [None, None]))
    said = [one for one in lines if one.startswith("its threads waited for a processor")]
    assert [one.endswith(says) for one in said] == [True] * bool(says)


@pytest.mark.parametrize(
    ("samples", "peak", "limit", "says"),
    [
        (2, 2 << 20, 0, "at most 4.00 MiB"),
        (2, 8 << 20, 0, "at most 8.00 MiB in one process"),
        (2, 2 << 20, 9 << 20, "4.00 MiB when it was looked at, and less than 9.00 MiB"),
        (3, 2 << 20, 9 << 20, "at most 4.00 MiB"),  # it was looked at often enough
    ],
)
def test_the_most_memory_is_that_of_samples_or_what_the_kernel_kept(
    samples: int, peak: int, limit: int, says: str
) -> None:
    history = History()
    for number in range(samples):
        history.add(sample(number + 1.0, memory_bytes=4.0 * 2**20))
    assert f"memory: {says}" in words.summary(
        history, last(peak, limit), 2, gpu_cards(), [None] * 2
    )


def test_memory_that_nobody_looked_at_is_not_zero() -> None:
    history = History()
    history.add(Sample(0.1, 0.1, {"cpu_cores": 1.0, "processes": 0.0}))
    said = list(words.summary(history, last(0, 9 << 20), 2, [], []))
    assert "memory: less than 9.00 MiB" in said
    assert words.line(history.samples[0], 2, []).startswith("0.1 s: 1.00 of 2 cores; 0 processes; ")
    assert rules.means(history.samples[0], 2, 2.0**30).host_memory is None


def test_the_overhead_is_said_with_its_share_of_a_core() -> None:
    said = words.overhead(Overhead(61, 0.122, 0.3, 60.0))
    assert (
        said
        == "the watch itself: 300 ms of CPU time, 0.5 % of a core; 2.00 ms for each of 61 readings"
    )


# --- Rules ---


@pytest.mark.parametrize(
    ("means", "says"),
    [
        (rules.Means(0.2, 0.9, 0.7, 0.9), ["waits for data"]),
        (rules.Means(0.2, 0.1, 0.7, 0.9), ["not optimised"]),
        (rules.Means(0.2, 0.6, 0.7, 0.9), []),  # neither high nor low
        (rules.Means(0.9, 0.1, 0.1, 0.9), ["more workers", "not yet efficiency"]),
        (rules.Means(0.6, 0.6, 0.7, 0.1), ["larger batch"]),
    ],
)
def test_the_rules_that_apply_come_with_their_limits(means: rules.Means, says: list[str]) -> None:
    applying = [rule for rule in rules.RULES if rule.applies(means)]
    assert len(applying) == len(says)
    said = rules.paragraph(means, None, Path("nowhere"))
    assert all(words in said for words in says)
    assert said.count("its limit: ") == len(says)
    assert ("None of the articles' rules applies" in said) == (not says)
    assert "low is below 50 % and high 80 % or more" in said


def test_without_a_gpu_nothing_is_said_of_rules() -> None:
    assert rules.paragraph(rules.Means(None, 0.1, 0.1, None), None, Path("nowhere")) == ""


def test_means_are_shares_of_what_there_is() -> None:
    found = rules.means(sample(), 2, 2.0**30)
    assert found == rules.Means(gpu=0.625, cpu=0.75, host_memory=0.5, gpu_memory=0.15)


def test_techniques_with_records_on_the_model_are_named_with_the_command(tmp_path: Path) -> None:
    for name in ("input.decode.jsonl", "launch.cuda_graph.jsonl.zst", "transfer.pinned_copy.jsonl"):
        file = tmp_path / "nvidia-h100" / "2026-11-21-abc1234" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    said = rules.paragraph(rules.Means(0.2, 0.9, 0.7, 0.9), "nvidia-h100", tmp_path)
    assert "Measured on nvidia-h100: input/decode, transfer/pinned_copy." in said
    assert "`./gpulift report results/nvidia-h100 --filter '^(input|transfer)/'`" in said
    other = rules.paragraph(rules.Means(0.2, 0.9, 0.7, 0.9), "nvidia-b200", tmp_path)
    assert "No technique of input, transfer has records on nvidia-b200" in other


# --- Gauges ---


def test_gauges_are_read_by_prometheus_with_the_cards_labels() -> None:
    content = gauges.gauges(sample(), gpu_cards())
    found = {one.name: one.samples for one in text_string_to_metric_families(content)}
    assert found["gpulift_watch_job_cpu_cores"][0].value == 1.5
    power = found["gpulift_watch_gpu_power_w"]
    assert [one.labels["gpu"] for one in power] == ["0", "1"]
    assert power[0].labels["name"] == "NVIDIA H100 80GB HBM3"
    assert len(found["gpulift_watch_gpu_sm_activity"]) == 1


def test_a_gauge_file_is_whole_and_keeps_the_last_sample_not_up(tmp_path: Path) -> None:
    target = gauges.GaugeFile(tmp_path / "job.prom")
    target.write("one 1\n")
    last = gauges.gauges(sample(), gpu_cards())
    target.write(last)
    assert [file.read_text() for file in tmp_path.iterdir()] == [last]
    target.close()
    (kept,) = (file.read_text() for file in tmp_path.iterdir())
    assert last.count("gpulift_watch_up 1.0") == kept.count("gpulift_watch_up 0.0") == 1
    assert kept.replace("up 0.0", "up 1.0") == last


def test_a_gauge_file_that_was_never_written_removes_nothing(tmp_path: Path) -> None:
    theirs = tmp_path / "notes.txt"
    theirs.write_text("theirs", encoding="utf-8")
    gauges.GaugeFile(theirs).close()
    assert theirs.read_text(encoding="utf-8") == "theirs"


def test_a_file_of_gauges_is_known_by_its_beginning() -> None:
    assert gauges.gauges(sample(), gpu_cards()).encode().startswith(gauges.BEGINNING)
