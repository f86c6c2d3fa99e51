"""Values and gradients where formulas are at their edge: NaN, infinities, zeros of both signs, ties, empty batches.

Each is torch's, which is called beside.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis
from genesis.nn import functional as F

nan, inf = math.nan, math.inf
POINTS = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 6.0, 20.0, -20.0, 100.0, -100.0, 0.7]
PAIRS = [(a, b) for a in POINTS[:13] for b in POINTS[:13]]
TF = torch.nn.functional


def results(library: Any, call: Callable, *data: list) -> list:
    """The value and the operands' gradients, flat."""
    tensors = [library.tensor(x, requires_grad=True) for x in data]
    y = call(library, *tensors)
    y.sum().backward()
    return [x.reshape(-1).tolist() for x in (y, *(t.grad for t in tensors))]


def agree(call: Callable, *data: list, rtol: float = 1e-5) -> None:
    """float32 formulas of ours and of torch's round differently; where they are exact they agree exactly."""
    for ours, theirs in zip(results(genesis, call, *data), results(torch, call, *data), strict=True):
        assert ours == pytest.approx(theirs, rel=rtol, abs=1e-30, nan_ok=True)


def functional(library: Any) -> Any:
    return F if library is genesis else TF


ACTIVATIONS = ("relu relu6 elu selu celu leaky_relu gelu silu mish softplus softsign tanhshrink hardtanh hardsigmoid "
               "hardswish hardshrink softshrink logsigmoid sigmoid tanh")


@pytest.mark.parametrize("name", ACTIVATIONS.split())
def test_activations(name: str) -> None:
    agree(lambda L, x: getattr(functional(L), name)(x), POINTS, rtol=1e-4)


UNARY = ("abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc erfinv exp exp2 expm1 floor frac lgamma "
         "log log10 log1p log2 nan_to_num neg reciprocal round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh "
         "trunc relu angle")


@pytest.mark.parametrize("name", UNARY.split())
def test_unary(name: str) -> None:
    agree(lambda L, x: getattr(L, name)(x), POINTS, rtol=1e-3)  # tan and lgamma near poles: torch's sleef


@pytest.mark.parametrize(("name", "points"), [
    ("i0e", POINTS), ("i1e", POINTS[1:]), ("log_ndtr", POINTS),
    ("ndtri", [nan, inf, -inf, 0.0, 0.5, 1.0, 0.7, 2.0, -1.0]),
    ("entr", [0.0, 0.5, 1.0, 2.0, -1.0, -2.0])])
def test_special_functions(name: str, points: list) -> None:
    agree(lambda L, x: getattr(L.special, name)(x), points, rtol=1e-3)


def test_xlog1py() -> None:
    agree(lambda L, x, y: L.special.xlog1py(x, y), [0.0, 0.0, 0.0, 0.0, 2.0], [-2.0, nan, 0.5, 3.0, 1.0])


BINARY = ("add sub mul div pow atan2 maximum minimum fmax fmin remainder hypot logaddexp xlogy copysign nextafter "
          "float_power")


@pytest.mark.parametrize("name", BINARY.split())
def test_binary(name: str) -> None:
    xs, ys = [a for a, _ in PAIRS], [b for _, b in PAIRS]
    if name == "nextafter":
        agree(lambda L, x, y: L.nextafter(x, y), xs, ys)
        return
    agree(lambda L, x, y: getattr(L, name)(x, y), xs, ys, rtol=1e-4)


@pytest.mark.parametrize("base", [0, 0.0, -0.0, 2.0, -2.0, inf, nan, 1])
def test_a_power_of_a_number(base: float) -> None:
    agree(lambda L, x: base**x, POINTS, rtol=1e-4)
    agree(lambda L, x: L.tensor(float(base)) ** x, POINTS, rtol=1e-4)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, nan, inf, -inf])
def test_a_power_with_a_number(exponent: float) -> None:
    agree(lambda L, x: x**exponent, POINTS, rtol=1e-4)


TIES = [[2.0, 1.0, 2.0, 3.0, 2.0], [3.0, 3.0, 1.0, 3.0], [0.0, -0.0, 0.0], [inf, inf, -inf, -inf], [5.0],
        [nan, 1.0, nan], [2.0, nan, 2.0, nan, 2.0, 1.0], [nan, nan],
        *[[float(random.Random(n).randint(0, 4)) for _ in range(n)] for n in (17, 40, 101)]]


@pytest.mark.parametrize("values", TIES, ids=lambda x: str(len(x)))
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_the_gradient_of_the_median_goes_to_all_that_equal_it(name: str, values: list) -> None:
    agree(lambda L, x: getattr(L, name)(x), values)
    if len(values) % 2 == 0:
        agree(lambda L, x: getattr(x.reshape(2, -1), name)(), values)
        agree(lambda L, x: getattr(L, name)(x.reshape(2, -1)) ** 2, values)


@pytest.mark.parametrize("values", TIES, ids=lambda x: str(len(x)))
@pytest.mark.parametrize("name", ["median", "nanmedian", "max", "min", "kthvalue", "cummax", "cummin"])
def test_the_place_of_one_of_equals(name: str, values: list) -> None:
    def call(library: Any, x: Any) -> Any:
        found = library.kthvalue(x, (len(values) + 1) // 2, 0) if name == "kthvalue" else getattr(library, name)(x, 0)
        return found[0] * 3 + found[1]
    agree(call, values)


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
def test_ties_share_the_gradient_of_an_extremum(name: str) -> None:
    for values in TIES:
        if not any(map(math.isnan, values)):
            agree(lambda L, x: getattr(L, name)(x), values)


def test_the_second_gradient_of_the_median() -> None:
    def second(library: Any) -> list:
        x = library.tensor([1.0, 2.0, 2.0], requires_grad=True)
        first, = library.autograd.grad((library.median(x) ** 3), x, create_graph=True)
        return library.autograd.grad((first * library.tensor([1.0, 2.0, 4.0])).sum(), x)[0].tolist()
    assert second(genesis) == pytest.approx(second(torch))


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_the_median_of_nothing_has_a_gradient(name: str) -> None:
    for library in (genesis, torch):
        x = library.zeros(0, requires_grad=True)
        y = getattr(library, name)(x)
        y.backward()
        assert math.isnan(y.item()) and x.grad.shape == (0,)


# Norms

@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0])
def test_the_eps_of_rms_norm_is_that_of_the_dtype_that_computes(dtype: str, scale: float) -> None:
    def value(library: Any, module: bool) -> list:
        kind = getattr(library, dtype)
        x = library.tensor([[1.0, 2.0, 3.0]], dtype=kind) * scale
        y = library.nn.RMSNorm(3, dtype=kind)(x) if module else functional(library).rms_norm(x, (3,))
        return y.double().reshape(-1).tolist()
    ulp = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-22, "float64": 2**-51}[dtype]
    for module in (False, True):
        assert value(genesis, module) == pytest.approx(value(torch, module), rel=ulp)


EMPTY = [(1, (0, 3)), (1, (0, 3, 4)), (1, (2, 3, 0)), (2, (0, 3, 2, 2)), (2, (2, 3, 0, 2)), (3, (0, 3, 2, 2, 2))]


@pytest.mark.parametrize(("dims", "shape"), EMPTY)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_of_an_empty_batch(dims: int, shape: tuple, training: bool, momentum: float | None) -> None:
    def run(library: Any) -> list:
        m = getattr(library.nn, f"BatchNorm{dims}d")(3, momentum=momentum).train(training)
        x = library.zeros(*shape, requires_grad=True)
        y = m(x)
        y.sum().backward()
        return [tuple(y.shape), tuple(x.grad.shape), m.weight.grad.tolist(), m.bias.grad.tolist(),
                m.running_mean.tolist(), m.running_var.tolist(), m.num_batches_tracked.item()]
    assert run(genesis) == run(torch)


def test_instance_norm_of_nothing_follows_nothing() -> None:
    m = genesis.nn.InstanceNorm1d(3, track_running_stats=True)
    m(genesis.zeros(2, 3, 0))
    assert m.running_mean.tolist() == [0.0] * 3 and m.running_var.tolist() == [1.0] * 3


def test_batch_norm_and_relu_of_nan() -> None:
    def run(library: Any) -> list:
        m = library.nn.BatchNorm1d(2)
        x = library.tensor([[1.0, 2.0], [nan, 3.0], [4.0, 5.0]], requires_grad=True)
        y = m(x).relu()
        y.sum().backward()
        return [value for t in (y, x.grad, m.weight.grad, m.bias.grad) for value in t.reshape(-1).tolist()]
    assert run(genesis) == pytest.approx(run(torch), rel=1e-4, abs=1e-6, nan_ok=True)


def test_attention_of_an_empty_batch() -> None:
    m = genesis.nn.MultiheadAttention(4, 2, batch_first=True)
    x = genesis.zeros(0, 3, 4)
    y, weights = m(x, x, x)
    assert y.shape == (0, 3, 4) and weights.shape == (0, 3, 3)


# Padding

@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(("shape", "sides"), [
    ((2, 2, 3, 3), (-1, -2, 0, 0)), ((2, 2, 3, 3), (1, 1, -1, -2)), ((2, 2, 3, 3), (-3, 0, 1, 1)),
    ((2, 2, 3, 4), (-2, -2, 1, 0)), ((0, 2, 3), (1, 1)), ((2, 2, 3), (-1, -1)), ((2, 2, 3), (-1, -2)),
    ((1, 0, 4), (1, 1)), ((0, 4), (1, 1)), ((1, 0, 4, 4), (1, 1, 1, 1)), ((0, 4, 4), (1, 1, 1, 1)), ((1, 2, 0), (1, 1)),
    ((2, 2, 3, 3), (-1, -2, -1, -2)), ((2, 2, 3), (-2, -2))])
def test_padding_to_nothing(mode: str, shape: tuple, sides: tuple) -> None:
    def run(library: Any) -> Any:
        try:
            return tuple(functional(library).pad(library.zeros(*shape), sides, mode=mode).shape)
        except RuntimeError:
            return "an error"
    assert run(genesis) == run(torch)
