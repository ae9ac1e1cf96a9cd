"""attention/linear: each arm is the layer that it says, and a layer that is wrong is found."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.autograd import Function  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

TOY = {"tokens": 256}
CPU = torch.device("cpu")
LIBRARY = "transformers.models.qwen3_next.modeling_qwen3_next"
BY_TORCH = ["full", "fallback"]


class ChunkGatedDeltaRule(Function):
    """What is computed in a library, as autograd sees it."""

    @staticmethod
    def forward(_ctx: Any, output: Any) -> Any:
        return output.clone()

    @staticmethod
    def backward(_ctx: Any, *gradient: Any) -> Any:
        return gradient[0]


class CausalConv1d(ChunkGatedDeltaRule):
    """The other package's."""


@pytest.fixture(name="package")
def packages_that_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """package(name, **functions): a module of that name; the layer is loaded anew beside it."""

    def install(name: str, **functions: Any) -> None:
        module = ModuleType(name)
        module.__version__ = "1.2.3"  # type: ignore[attr-defined]
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, name, module)

    for root in ("fla", "causal_conv1d", LIBRARY):
        monkeypatch.setitem(sys.modules, root, None)
    monkeypatch.delitem(sys.modules, LIBRARY)
    return install


def install_fla(install: Any, **functions: Any) -> None:
    """As its packages lie: the root does not name what is in them."""
    for name in ("fla", "fla.ops"):
        install(name, __path__=[])
    install("fla.ops.gated_delta_rule", **functions)


def work_of(technique: ModuleType, arm: str, seed: int = 7) -> Any:
    return technique.Pass(arm, technique.TOY, seed, CPU)


@pytest.mark.parametrize("compared", [4096, 128])
@pytest.mark.parametrize("arm", BY_TORCH)
def test_output_and_gradients_are_those_in_fp64(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, arm: str, compared: int
) -> None:
    """Where tokens follow that are not compared, too."""
    monkeypatch.setattr(technique, "CHECKED", compared)
    assert 0 < work_of(technique, arm).error() < technique.FP32_TOLERANCE


def rule(change: Callable[[dict[str, Any]], None]) -> Callable[[Any, Any], None]:
    """The rule with other gates."""

    def damage(work: Any, monkeypatch: Any) -> None:
        library = sys.modules[LIBRARY]
        right = library.torch_chunk_gated_delta_rule

        def wrong(*parts: Any, **gates: Any) -> Any:
            change(gates)
            return right(*parts, **gates)

        monkeypatch.setattr(library, "torch_chunk_gated_delta_rule", wrong)

    return damage


def skip_the_convolution(_work: Any, monkeypatch: Any) -> None:
    def skipped(mixed: Any, *_: Any, **__: Any) -> Any:
        return torch.nn.functional.silu(mixed)

    monkeypatch.setattr(sys.modules[LIBRARY], "causal_conv1d_fn", skipped)


def turn_nothing(work: Any, _monkeypatch: Any) -> None:
    cosine, sine = work.rotation
    work.places = (torch.ones_like(cosine), torch.zeros_like(sine)), None


DAMAGES: dict[str, tuple[str, Callable[[Any, Any], None]]] = {
    "never_forgets": ("fallback", rule(lambda gates: gates.update(g=0 * gates["g"]))),
    "forgets_faster": ("fallback", rule(lambda gates: gates.update(g=1.5 * gates["g"]))),
    "learns_all": ("fallback", rule(lambda gates: gates.update(beta=0 * gates["beta"] + 1))),
    "long_keys": ("fallback", rule(lambda gates: gates.update(use_qk_l2norm_in_kernel=False))),
    "no_convolution": ("fallback", skip_the_convolution),
    "one_gradient": (
        "fallback",
        lambda work, _: work.layer.A_log.register_hook(lambda gradient: 1.2 * gradient),
    ),
    "no_mask": ("full", lambda work, _: setattr(work.layer, "is_causal", False)),
    "no_rotation": ("full", turn_nothing),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_layer_that_is_wrong_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arm, damage = DAMAGES[name]
    work = work_of(technique, arm)
    damage(work, monkeypatch)
    assert work.error() > 2 * technique.TECHNIQUE["check"]["tolerance"]  # of BF16


def test_what_is_no_number_behind_the_compared_tokens_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "CHECKED", 64)
    work = work_of(technique, "fallback")
    right = work.take

    def wrong(gradient: Any) -> Any:
        output = right(gradient).detach()
        output[0, -1, 0] = torch.nan
        return output

    monkeypatch.setattr(work, "take", wrong)
    assert work.error() != work.error()


def test_heads_remember_for_more_than_a_token(technique: ModuleType) -> None:
    layer = work_of(technique, "fallback").layer
    steps = torch.nn.functional.softplus(layer.dt_bias)
    low, high = technique.STEPS_OF_TIME
    assert low <= steps.min() < steps.max() <= high
    assert layer.dt_bias.requires_grad


def test_the_packages_rule_is_given_heads_gates_and_the_norm(
    technique: ModuleType, package: Any
) -> None:
    """As flash-linear-attention 0.6 takes them, in the names that are its own."""
    given: dict[str, Any] = {}

    def chunk_gated_delta_rule(
        q: Any, k: Any, v: Any, g: Any, beta: Any, use_qk_l2norm_in_kernel: bool = False
    ) -> Any:
        given.update(q=q.shape, k=k.shape, v=v.shape, g=g.dtype, norm=use_qk_l2norm_in_kernel)
        by_torch = sys.modules[LIBRARY].torch_chunk_gated_delta_rule.__wrapped__
        found, _ = by_torch(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)
        return ChunkGatedDeltaRule.apply(found), None

    install_fla(package, chunk_gated_delta_rule=chunk_gated_delta_rule)
    work = work_of(technique, "fla")
    assert work.error() < technique.FP32_TOLERANCE
    assert given.pop("q") == given["k"]
    assert given.pop("k")[2] in (2, 4)  # before 5.23 transformers repeats those of keys itself
    assert given == {"v": (1, 256, 4, 32), "g": torch.float32, "norm": True}
    assert work.operations() == "ChunkGatedDeltaRuleBackward, ConvolutionBackward0"


def test_the_other_packages_convolution_is_given_taps_by_channel(
    technique: ModuleType, package: Any
) -> None:
    given = []

    def causal_conv1d_fn(x: Any, weight: Any, bias: Any = None, activation: Any = None) -> Any:
        given.append((x.shape, weight.shape, bias, activation))
        by_torch = sys.modules[LIBRARY].causal_conv1d_fn.__wrapped__
        return CausalConv1d.apply(by_torch(x, weight, bias, activation))

    def chunk_gated_delta_rule(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
        by_torch = sys.modules[LIBRARY].torch_chunk_gated_delta_rule.__wrapped__
        found, _ = by_torch(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)
        return ChunkGatedDeltaRule.apply(found), None

    install_fla(package, chunk_gated_delta_rule=chunk_gated_delta_rule)
    package("causal_conv1d", causal_conv1d_fn=causal_conv1d_fn)
    work = work_of(technique, "fla_conv1d")
    assert work.error() < technique.FP32_TOLERANCE
    assert given == [((1, 256, 256), (256, 4), None, "silu")]
    assert work.operations() == "ChunkGatedDeltaRuleBackward, CausalConv1dBackward"


def test_the_fallback_is_torchs_where_the_packages_are_installed(
    technique: ModuleType, package: Any
) -> None:
    install_fla(package, chunk_gated_delta_rule=None)
    package("causal_conv1d", causal_conv1d_fn=None)
    arm = technique.make("fallback", TOY, 7, None)
    assert arm.notes["fallback_runs"] == "LinalgSolveTriangularBackward0, ConvolutionBackward0"
    assert arm.versions.keys() == {"transformers"}


def test_a_package_that_does_not_load_is_no_fallback_without_a_word(
    technique: ModuleType, package: Any
) -> None:
    install_fla(package)
    work = work_of(technique, "fla")
    work.step()
    with pytest.raises(technique.Failed, match="fla did not run through ChunkGatedDeltaRule"):
        work.operations()


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ("Please upgrade Triton to >= 3.7.1 or install tilelang: `pip install tilelang`", "Skip"),
        ("an illegal memory access was encountered", "RuntimeError"),
    ],
)
def test_a_kernel_that_the_package_refuses_is_a_skip(
    technique: ModuleType, package: Any, said: str, raised: str
) -> None:
    """As it does in the backward pass, by Triton 3.6 on a Hopper card."""

    class Refused(ChunkGatedDeltaRule):
        @staticmethod
        def backward(_ctx: Any, *_: Any) -> Any:
            raise RuntimeError(said)

    def chunk_gated_delta_rule(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
        return Refused.apply(v), None

    install_fla(package, chunk_gated_delta_rule=chunk_gated_delta_rule)
    with pytest.raises((technique.Skip, RuntimeError), match=r"Triton|illegal") as found:
        technique.take_first_step(work_of(technique, "fla"))
    assert found.type.__name__ == raised
    if raised == "Skip":
        assert found.value.remedy.startswith("pip install tilelang")


def test_what_the_package_takes_by_itself_is_among_the_versions(
    technique: ModuleType, package: Any
) -> None:
    package("tilelang")
    assert technique.versions_of("fla", *technique.TAKEN) == {"tilelang": "1.2.3"}


@pytest.mark.parametrize(
    ("arm", "installed", "reason", "remedy"),
    [
        ("fla", [], "flash-linear-attention is not installed: no module fla", "pip install fla"),
        ("fla_conv1d", ["fla"], "causal-conv1d is not installed", "it has no wheels; with nvcc"),
    ],
)
def test_a_package_that_is_missing_is_a_skip(
    technique: ModuleType, package: Any, arm: str, installed: list[str], reason: str, remedy: str
) -> None:
    for _ in installed:
        install_fla(package)
    with pytest.raises(technique.Skip, match=reason) as skipped:
        technique.layers_with(technique.NEEDED[arm])
    assert skipped.value.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("arm", "tokens", "reason"),
    [
        ("fla", 256, "the kernels of this layer need a GPU"),
        ("fla_conv1d", 2048, "the kernels of this layer need a GPU"),
        ("full", 2048, "a layer of Qwen3-Next takes minutes on a processor"),
        ("fallback", 65536, "a layer of Qwen3-Next takes minutes on a processor"),
    ],
)
def test_a_processor_takes_the_toy_by_torch(
    technique: ModuleType, arm: str, tokens: int, reason: str
) -> None:
    with pytest.raises(technique.Skip, match=reason):
        technique.make(arm, {"tokens": tokens}, 7, None)


def test_an_arm_says_its_work_and_what_it_runs_through(technique: ModuleType) -> None:
    arm = technique.make("full", TOY, 7, None)
    assert (arm.items, arm.item, arm.roof) == (256, "token", "")
    assert arm.notes["full_runs"] == "ScaledDotProductFlashAttentionForCpuBackward0"
    assert arm.tolerance == technique.FP32_TOLERANCE
    assert arm.flops == technique.make("full", TOY, 8, None).flops


def test_work_of_attention_is_what_torch_counts_but_for_masked_scores(
    technique: ModuleType,
) -> None:
    work = work_of(technique, "full")
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work.step()
    masked = 6 * technique.TOY**2 * 4 * 32
    assert counter.get_total_flops() == work.flops() + masked


def test_work_of_the_rule_is_three_times_what_the_recurrence_counts_forward(
    technique: ModuleType,
) -> None:
    work = work_of(technique, "fallback")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        technique.exact_rule(work.layer, work.given)
    learnt = 2 * technique.TOY * 4 * 32 * 32  # an outer product, which torch counts for none
    assert 3 * (counter.get_total_flops() + learnt) == work.flops()


def test_arms_of_the_rule_have_the_same_weights_and_states_of_a_seed(
    technique: ModuleType,
) -> None:
    first, again, other = (work_of(technique, "fallback", seed) for seed in (7, 7, 8))
    for one, same in zip(first.layer.parameters(), again.layer.parameters(), strict=True):
        assert torch.equal(one, same)
    assert torch.equal(first.given, again.given)
    assert not torch.equal(first.given, other.given)
