"""Every row of the pointwise table, against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.lowerings import POINTWISE
from genesis.ir import OPS, Graph, literal
from genesis.ir.ops import leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.types import bfloat16, bool_, dtype_named, float16, float32, float64, int8, int32, int64, uint8
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import philox, torch_dtype
from tests.codegen.cuda.programs import GPU, TOLERANCE, an_input, check, inputs, kinds
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.25, 1e-3, 20.0, math.inf, -math.inf, math.nan]
INTEGERS = [0, 1, -1, 2, 3, -3, 7, -7, 5, 100, -100, 4]
COLUMN = {"f64": (float64,), "f32": (float32,), "low": (bfloat16, float16), "int": (int64, int32, int8, uint8),
          "bool": (bool_,)}
ARITY = {name: 3 if name == "where" else 2 for name in (
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "atan2", "maximum", "minimum",
    "bitwise_and", "bitwise_or", "bitwise_xor", "hypot", "logaddexp", "logaddexp2", "gcd", "left_shift", "right_shift",
    "eq", "ne", "lt", "le", "gt", "ge", "where")}
CASES = [(name, dtype.name) for name, row in POINTWISE.items() for column, template in row.items() if template
         for dtype in COLUMN[column] if not (name == "neg" and dtype is bool_)]


def values(dtype, arity: int) -> list[torch.Tensor]:
    """All pairs of the interesting values (or each of them once)."""
    plain = SPECIAL if dtype.kind == "float" else INTEGERS if dtype.kind == "int" else [False, True]
    row = torch.tensor(plain).to(torch_dtype(dtype))
    if arity == 1:
        return [row]
    return [row.repeat_interleave(len(row)), row.repeat(len(row))]


@pytest.mark.parametrize(("name", "dtype_name"), CASES)
def test_op_gives_what_torch_gives(name: str, dtype_name: str) -> None:
    dtype = dtype_named(dtype_name)
    data = values(dtype, min(ARITY.get(name, 1), 2))
    if dtype.kind == "int" and name in ("floor_divide", "remainder", "fmod"):
        keep = data[1] != 0  # a machine's division by zero is undefined
        data = [x[keep] for x in data]
    if name in ("pow", "left_shift", "right_shift") and dtype.kind == "int":
        keep = (data[1] >= 0) & (data[1] < 8)
        data = [x[keep] for x in data]
    if name == "atan2":  # numpy's and torch's agree, but not on which NaN
        data = [x[~torch.isnan(data[0] + data[1])] for x in data]
    if name in ("i0", "i1"):  # torch's own gives NaN at infinity
        data = [x[~torch.isinf(x)] for x in data]
    operands = [an_input(i, tuple(x.shape), dtype) for i, x in enumerate(data)]
    if name == "where":
        condition = an_input(2, tuple(data[0].shape), bool_)
        data.append(torch.arange(len(data[0])) % 3 == 0)
        check((*operands, condition), p.where(condition, *operands), data=data)
        return
    loose = 4 * TOLERANCE.get(dtype_name, 0) if name in ("pow", "tan") else None
    check(operands, OPS[name](*operands), data=data, tolerance=loose)


@pytest.mark.parametrize("dtype", [bfloat16, float16, float32, float64], ids=str)
def test_the_negative_of_zero_is_minus_zero(dtype) -> None:
    x = an_input(0, (2,), dtype)
    data = torch.tensor([0.0, -0.0]).to(torch_dtype(dtype))
    [found] = run_schedule(fuse(_graph((x,), p.neg(x))), [data])
    assert found.signbit().tolist() == [True, False]


@pytest.mark.parametrize("source", [float64, float32, bfloat16, float16, int64, int32, int8, uint8, bool_])
@pytest.mark.parametrize("target", [float64, float32, bfloat16, float16, int64, int32, int8, uint8, bool_])
def test_cast(source, target) -> None:
    plain = [0, 1, 2, 3, 100, 0.5, 1.75, 0.1] if source.kind == "float" else [0, 1, 2, 3, 100]
    if target.name != "uint8" and source.name not in ("uint8", "bool"):
        plain += [-1, -2, -100]
    x = an_input(0, (len(plain),), source)
    check([x], p.cast(x, dtype=target), data=[torch.tensor(plain).to(torch_dtype(source))], tolerance=0)


def test_a_cast_to_bfloat16_rounds_to_nearest_even_inside_a_group() -> None:
    x, = inputs((4,))
    data = torch.tensor([1.00390625, 1.01171875, 0.1, -3.14159])
    check([x], p.cast(p.cast(x * 1.0, dtype=bfloat16), dtype=float32) - x, data=[data], tolerance=0)


def test_low_precision_is_float32_between_load_and_store() -> None:
    x, = inputs((8,), dtype=bfloat16)
    y = (x + 1.0) - 1.0
    data = torch.full((8,), 0.001, dtype=torch.bfloat16)
    schedule = fuse(Graph((x,), (y,)))
    assert kinds(schedule) == ["loop"]
    found, = run_schedule(schedule, [data])
    torch.testing.assert_close(found, data, rtol=2**-8, atol=0)  # of the last rounding; in bfloat16 0.001 + 1 is 1
    text = emit(schedule.groups[0]).source
    assert text.count("tl.bfloat16") == 1 and ".to(tl.float32)" in text


def test_numbers_are_loaded_and_not_baked_in() -> None:
    x, y = inputs((5,), (5,))
    lr = leaves.scalar(index=0, type=literal(0.5).type)
    schedule = check([x, y], x - y * lr, numbers=[0.25])
    kernel = emit(schedule.groups[0])
    assert "tl.load(number0)" in kernel.source and kernel.signature["number0"] == "*fp64"


def test_float64_numbers_keep_their_bits() -> None:
    x, = inputs((3,), dtype=float64)
    check([x], x * 0.1, tolerance=0)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (7,), (3, 0, 2), (1031,), (2, 3, 5, 7)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    x, y = inputs(shape, shape)
    check([x, y], p.exp(x) * y + 1.0, p.sin(x))


def test_random_bits_are_those_of_the_paper() -> None:
    """Known answer of Random123: key and counter all zero, then all ones."""
    assert [int(philox(0, 0, 1, word)[0]) & 0xFFFFFFFF for word in range(4)] == [
        0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    seed, draw = leaves.scalar(index=0, type=literal(1).type), leaves.scalar(index=1, type=literal(1).type)
    for words, word in ((1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)):
        bits = OPS["random_bits"](seed, draw, shape=(3, 50), word=word, words=words, device=GPU)
        check([], bits, numbers=[-0x123456789ABCDEF, 2**33 + 5], tolerance=0)


@pytest.mark.parametrize(("words", "word"), [(1, 0), (2, 0), (2, 1)])
def test_random_bits_are_the_same_through_views_and_in_rows(words: int, word: int) -> None:
    """Neighbours share a counter only where the block runs through them in order."""
    seed, draw = literal(3), literal(4)
    bits = OPS["random_bits"](seed, draw, shape=(6, 32), word=word, words=words, device=GPU)
    straight = check([], bits, tolerance=0)
    assert "g_random_run" in emit(straight.groups[0]).source
    part = movement.slice(bits, starts=(0, 1), stops=(6, 31), steps=(1, 1))
    turned = check([], movement.permute(bits, axes=(1, 0)), part, tolerance=0)
    assert "g_random_bits" in emit(turned.groups[0]).source
    rows = p.cast(p.right_shift(bits, literal(8)), dtype=float32)
    check([], OPS["sum"](rows, axes=(1,)), rows)
    check([], OPS["sum"](rows, axes=(0,)), rows)


def test_dropout_is_one_kernel_and_its_mask_is_numpys() -> None:
    x, = inputs((4, 33))
    threshold = leaves.scalar(index=0, type=literal(1).type)
    scale = leaves.scalar(index=1, type=literal(0.5).type)
    seed, draw = leaves.scalar(index=2, type=literal(1).type), leaves.scalar(index=3, type=literal(1).type)
    schedule = check([x], OPS["dropout"](x, threshold, scale, seed, draw), numbers=[-10**9, 1 / 0.7, 7, 9])
    assert kinds(schedule) == ["loop"]


def test_views_cost_no_kernel() -> None:
    x, y = inputs((4, 6), (6, 4))
    turned = movement.permute(y, axes=(1, 0))
    padded = movement.pad(movement.slice(x + turned, starts=(0, 1), stops=(4, 6), steps=(1, 2)),
                          low=(1, 0), high=(0, 1), value=2)
    joined = movement.concat(movement.flip(padded, axes=(0,)), padded, axis=1)
    assert kinds(check([x, y], joined)) == ["loop"]


def test_a_write_to_a_region() -> None:
    x, v = inputs((5, 6), (2, 3))
    check([x, v], movement.assign(x, p.exp(v), starts=(1, 0), stops=(5, 6), steps=(2, 2)))


def test_a_kernel_names_the_users_line() -> None:
    from genesis.ir import located
    x, = inputs((8,))
    with located("model.py:12 forward"):
        y = p.tanh(x * 2.0)
    from genesis.ir import Graph
    text = emit(fuse(Graph((x,), (y,))).groups[0]).source
    assert "# model.py:12 forward" in text and "def mul_tanh(" in text


def test_exact_division_and_square_root_reach_the_binary() -> None:
    x, y = inputs((4096,), (4096,))
    schedule = fuse(_graph((x, y), p.sqrt(x) / y))
    assert np.frombuffer(compile_cubin(emit(schedule.groups[0])), np.uint8).size > 1000


def _graph(operands, *outputs):
    from genesis.ir import Graph
    return Graph(tuple(operands), tuple(outputs))


@pytest.mark.parametrize(("size", "wide"), [(2**31 - 2**25, False), (2**31 - 4095, True), (2**31 - 1, True)])
def test_lanes_behind_the_last_element_are_counted_in_64_bits_where_32_would_end(size, wide) -> None:
    x = an_input(0, (size,), int8)
    [group] = fuse(_graph((x,), p.neg(x))).groups
    assert ("x = tl.program_id(0).to(tl.int64)" in emit(group).source) == wide
