"""input/tensor_creation: all arms make the same tensor, and which of them alias is checked."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

creation = load(__file__)
MANIFEST = manifest(__file__)
CPU = torch.device("cpu")
GPU = 0 if torch.cuda.is_available() else None
ON_HOST = {"to": "host", "bytes": 65536}


@pytest.mark.skipif(GPU is None, reason="no GPU")
@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_every_arm_makes_the_tensor_on_a_gpu_too(name: str) -> None:
    arm = creation.make(name, {**ON_HOST, "to": "device"}, 7, GPU)
    arm.step()
    arm.synchronize()
    assert arm.error() == 0
    assert (arm.items, arm.item) == (1, "tensor")


@pytest.mark.parametrize("name", creation.CREATE)
def test_only_two_arms_share_the_arrays_memory(name: str) -> None:
    one = creation.Creation(name, 100, CPU)
    one.step()
    one.require_aliasing()
    address = one.array.__array_interface__["data"][0]
    assert (one._tensor.data_ptr() == address) == (name in creation.SHARING)


def test_a_copy_that_calls_itself_shared_and_the_reverse_fail() -> None:
    copied = creation.Creation("as_tensor", 100, CPU)
    copied._create = lambda: torch.tensor(copied.array)
    copied.step()
    with pytest.raises(RuntimeError, match="the tensor does not share the array's memory"):
        copied.wrong_values()
    shared = creation.Creation("tensor", 100, CPU)
    shared._create = lambda: torch.from_numpy(shared.array)
    shared.step()
    with pytest.raises(RuntimeError, match="the tensor shares the array's memory"):
        shared.wrong_values()


def test_wrong_values_another_type_and_no_tensor_do_not_pass() -> None:
    one = creation.Creation("tensor", 100, CPU)
    with pytest.raises(RuntimeError, match="no tensor was made"):
        one.wrong_values()
    one.step()
    one._tensor[3:5] += 1
    assert one.wrong_values() == 2
    one._tensor = one._tensor.double()
    with pytest.raises(ValueError, match=r"the tensor is torch\.float64 on cpu"):
        one.wrong_values()


def test_what_cannot_be_or_would_take_too_long_is_skipped() -> None:
    with pytest.raises(Skip, match="no GPU") as skipped:
        creation.make("tensor", {**ON_HOST, "to": "device"}, 7, None)
    assert skipped.value.remedy == "use a GPU"
    with pytest.raises(Skip, match="wanted on the host"):
        creation.make("on_device", ON_HOST, 7, GPU)
    with pytest.raises(Skip, match="a list of 9633792 numbers"):
        creation.make("tensor_of_list", {**ON_HOST, "bytes": 38535168}, 7, None)


@pytest.mark.parametrize(("name", "faults"), [("tensor", True), ("as_tensor", False)])
def test_a_large_copy_lies_in_new_pages_in_each_step(name: str, faults: bool) -> None:
    arm = creation.make(name, {**ON_HOST, "bytes": 38535168}, 7, GPU)
    if "glibc" not in arm.notes["malloc"]:
        pytest.skip(arm.notes["malloc"])
    assert (arm.metrics()["faults_per_step"] >= 1) == faults


def test_every_value_fits_into_fp32() -> None:
    largest = max(int(case["point"]["bytes"]) for case in MANIFEST["cases"])
    assert largest // creation.VALUE_BYTES < 2**24
    assert list(creation.CREATE) == MANIFEST["arms"]
