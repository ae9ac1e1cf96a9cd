"""What NCCL says that it took is told from its log, and settings of other arms are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

nccl = pytest.importorskip("gpulift_work.nccl")

from gpulift_worker import Skip  # noqa: E402

SETTINGS = {"ll": {"NCCL_PROTO": "LL"}, "quiet": {"TORCH_NOTHING": "1"}}
LINE = "host:1:2 [0] NCCL INFO "
GATHER = f"{LINE}AllGather: 64 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}\n"
RING = f"{LINE}AllReduce: 4096 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..23}}\n"
MAPPED = (
    f"{LINE}AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 "
    "nthreads 512 nWorks 1\n"
)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (GATHER + RING, "RING SIMPLE, 24 channels"),
        (RING + MAPPED, "AllReduce_AGxLL_R, 8 channels"),
        (GATHER, "not told"),
        (f"{GATHER}{LINE}Init CE, rank 0 baseUCSymReadyPtr (nil)\n", "copy engines"),
    ],
)
def test_the_last_call_of_its_kind_tells(text: str, taken: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert nccl.choice_in(log, "AllReduce") == "not told", "of another rank"
    log.write_text(text)
    assert nccl.choice_in(log, "AllReduce") == taken


def test_transports_of_all_channels_are_told_without_their_numbers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert nccl.transport_in(log) == "not told"
    ways = ("NET/IB/0/GDRDMA", "NET/IB/1", "P2P/CUMEM/read")
    log.write_text("".join(f"{LINE}Channel 00/0 : 1[0] -> 0[0] [send] via {way}\n" for way in ways))
    assert nccl.transport_in(log) == "NET/IB, P2P/CUMEM/read"


def test_an_arm_has_its_own_variables_and_none_of_nccls_that_are_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NCCL_PROTO", "TORCH_NOTHING"):
        monkeypatch.delenv(name, raising=False)
    nccl.require_settings("default", SETTINGS)
    with pytest.raises(RuntimeError, match="ll was started without NCCL_PROTO=LL"):
        nccl.require_settings("ll", SETTINGS)
    monkeypatch.setenv("TORCH_NOTHING", "1")
    nccl.require_settings("default", SETTINGS)
    monkeypatch.setenv("NCCL_PROTO", "LL")
    nccl.require_settings("ll", SETTINGS)
    with pytest.raises(Skip, match="NCCL_PROTO is set"):
        nccl.require_settings("quiet", SETTINGS)
