"""Pointwise programs beyond the registry's samples: casts, broadcasts, chains, promotion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.ir.types import DTYPES, DType

from .compare import array, check, check_gradients, launches, numbers, same

FLOATS = [0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 2.5, -2.5, 3.7, 100.0, -100.0, 127.0, 1e-3]
SPECIAL = [*FLOATS, float("inf"), float("-inf"), float("nan"), 65504.0, 1e30, 1e-30, 1e-42]
INTEGERS = [0, 1, 2, 3, 7, 100, 127]
SIGNED = [*INTEGERS, -1, -2, -100, -128]


def contents(source: DType, target: DType) -> list:
    """Values to cast; those whose conversion C leaves undefined are left out."""
    if source.kind == "bool":
        return [True, False]
    if source.kind == "int":
        return INTEGERS if source.name == "uint8" else SIGNED
    if target.kind == "int":
        return [x for x in FLOATS if x > -1 or target.name != "uint8"]
    return SPECIAL


@pytest.mark.parametrize("source", DTYPES, ids=lambda dtype: dtype.name)
def test_casts_between_all_pairs(cuda, source):
    pairs = []
    for target in DTYPES:
        with np.errstate(over="ignore"):  # 1e30 is infinite in float16
            values = np.array(contents(source, target)).astype(source.numpy)
        x = genesis.tensor(values, device="cuda")
        # The second hop goes through the kernel's own representation of the dtype, not through memory.
        pairs.append((target, x.to(target), genesis.tensor(values).to(target)))
        pairs.append((target, (x.to(target) == x.to(target)).to(source), None))
    genesis.eval([x for _, x, _ in pairs])
    for target, found, want in pairs:
        if want is not None:
            assert found.dtype is target
            same(found, array(want), 0.0, f"{source.name} to {target.name}")


@pytest.mark.parametrize("wide", ["float64", "float32"])
@pytest.mark.parametrize("narrow", ["float32", "float16", "bfloat16"])
def test_a_cast_rounds_inside_a_kernel_too(cuda, wide, narrow):
    """x.half().float() is not x, though a kernel holds both as float32."""
    values = numbers(40, dtype=wide)
    wide, narrow = getattr(genesis, wide), getattr(genesis, narrow)
    check(lambda x: x.to(narrow).to(wide) - x, values, tolerance=0.0)


SHAPES = [((), ()), ((3,), ()), ((), (2, 3)), ((3, 1), (1, 4)), ((2, 1, 3), (4, 1)), ((0,), (1,)), ((2, 0, 3), (3,)),
          ((1,), (1,)), ((7,), (7,)), ((2, 3), (2, 3))]


def test_broadcasting(cuda, fuse):
    arrays = [(numbers(*a), numbers(*b, seed=1)) for a, b in SHAPES]

    def program(*xs):
        return [x * 2 - y for x, y in zip(xs[::2], xs[1::2], strict=True)]
    check(program, *(x for pair in arrays for x in pair))


def test_promotion(cuda):
    kinds = [genesis.bool, genesis.uint8, genesis.int32, genesis.float16, genesis.bfloat16, genesis.float64]

    def program(x):
        return [x.to(a) * x.to(b) + 1 for a in kinds for b in kinds]
    check(program, np.array([0, 1, 2, 3]))


def test_numbers_on_either_side(cuda):
    def program(x, i):
        return [x + 1, 2 - x, x / 3, 3 / (x + 10), x ** 2, 2.0 ** x, x % 2, x // 2, i + 1, i / 2, i * 2.5, i // 2,
                i % 3, -i, i ** 2, x > 0, i <= 1, True * x]
    check(program, numbers(5), np.array([-3, 0, 4]))


def test_where_between_numbers_and_scalars_of_the_cpu(cuda):
    """They go to the device of whichever operand is not on the CPU, the condition or a branch."""
    one, two = genesis.tensor(1.5), genesis.tensor(2)

    def program(x):
        condition = x > 0
        return [genesis.where(condition, 1.0, 0.0), genesis.where(condition, 2, True), x.where(condition, 0.5),
                genesis.where(condition, one, two), genesis.where(condition, one, 0), condition.where(condition, False),
                genesis.where(one > 1, x, 0.0), genesis.where(one > 2, x, two), genesis.where(x[0] > 0, one, two)]
    check(program, numbers(2, 3))


def test_where_of_vectors_on_two_devices_is_refused(cuda):
    x = genesis.tensor(numbers(3), device="cuda")
    for condition, branch in ((x > 0, genesis.ones(3)), (genesis.ones(3) > 0, x)):
        with pytest.raises(RuntimeError, match="where: expected all tensors on one device"):
            genesis.where(condition, branch, 0.0)


def test_the_sign_of_a_number(cuda):
    def program(x):
        return [y.copysign(number) for y in (x, x.bfloat16(), x.int()) for number in (2.0, -1e-300, -0.0, -3)]
    check_gradients(program, np.array([1.5, -2.0, 0.0, -0.0], np.float32))


def test_numbers_change_without_another_plan(cuda):
    x = genesis.tensor([1.0, 2.0], device="cuda")
    for value in (2.0, 3.5, 0.0, -0.0, float("inf"), 5):
        assert array(x * float(value)).tolist() == [value, value * 2]


def test_a_chain_is_one_kernel_only_when_fused(cuda, fuse):
    def program(x, y):
        return (x * y + 1).exp().tanh() * genesis.where(x > 0, x, -y)
    check(program, numbers(3, 5), numbers(3, 5, seed=1))
    assert launches() == 1 if fuse else launches() > 4


def test_switching_fusion_makes_another_plan(cuda, monkeypatch):
    counts = []
    for value in (True, False, True):
        monkeypatch.setattr(genesis.config, "fuse", value)
        x = genesis.tensor(numbers(4), device="cuda")
        genesis.eval((x + 1) * x)
        counts.append(launches())
    assert counts == [1, 2, 1]


def test_several_outputs_of_different_shapes(cuda, fuse):
    def program(x, y):
        z = x * y
        return z, z.sum(1), z.t() + 1, z[0], (z + 1).reshape(-1), z.mean()
    check(program, numbers(4, 6), numbers(4, 6, seed=1))


def test_in_place_ops(cuda):
    def program(x):
        y = x.clone()
        z = y[1:3]
        y.add_(1).mul_(2)
        z.zero_()
        y[:, 0] = 7
        y.clamp_(max=3)
        return y, z, x
    check(program, numbers(4, 3))


NUMBERS = {
    "a whole base": lambda lib, x: 2 ** x,
    "a whole base of a logarithm": lambda lib, x: lib.xlogy(x, 2),
    "a whole factor of a logarithm": lambda lib, x: lib.xlogy(3, x),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_whole_number_in_a_formula_is_computed_as_its_op_computes(cuda: Any, name: str) -> None:
    """The gradient of 2 ** x has log(2), of which there is none for integers: it is that of 2.0."""
    x = genesis.tensor([1.0, 2.5, 0.5], device="cuda", requires_grad=True)
    expected = torch.tensor([1.0, 2.5, 0.5], requires_grad=True)
    y, wanted = NUMBERS[name](genesis, x), NUMBERS[name](torch, expected)
    y.sum().backward()
    wanted.sum().backward()
    assert y.tolist() == pytest.approx(wanted.tolist(), rel=1e-6)
    assert x.grad.tolist() == pytest.approx(expected.grad.tolist(), rel=1e-6)
