"""Attention with masks and with heads of k and v that query heads share: the kernels' numbers beside float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.ir import Node
from genesis.ir.ops import movement
from genesis.ir.ops.attention import sdpa, sdpa_backward
from genesis.ir.ops.control import item
from genesis.ir.types import DType, bfloat16, bool_, float16, float32
from tests.codegen.cuda.programs import an_input, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.codegen.cuda.test_attention import TOLERANCE, close, compiled, stack_bytes
from tests.sweeping import each_value

MASKS: dict[str, tuple[tuple[int, ...], DType]] = {
    # name → shape to be broadcast to (2, 2, queries, keys) of (40, 70), dtype
    "keep": ((40, 70), bool_), "keep of each head": ((2, 2, 40, 70), bool_), "keep keys": ((2, 1, 1, 70), bool_),
    "keep queries": ((2, 1, 40, 1), bool_), "keep or not": ((1, 2, 1, 1), bool_),
    "add": ((40, 70), bfloat16), "add to keys": ((2, 1, 1, 70), bfloat16), "add to each head": ((2, 1, 1), bfloat16),
}


def program(q: tuple[int, ...], k: tuple[int, ...], mask: tuple[int, ...], mask_dtype: DType, causal: bool = False,
            dtype: DType = bfloat16) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Operands q, k, v, g and the mask; y with the gradients by q, k, v."""
    operands = (an_input(0, q, dtype), an_input(1, k, dtype), an_input(2, k, dtype), an_input(3, q, dtype),
                an_input(4, mask, mask_dtype))
    whole = movement.expand(operands[4], shape=(*q[:-1], k[-2]))
    y = sdpa(*operands[:3], whole, causal=causal, scale=0.3)
    back = sdpa_backward(operands[3], *operands[:3], y, whole, causal=causal, scale=0.3)
    return operands, (y, *(item(back, index=i) for i in range(3)))


def reference(data: list[torch.Tensor], mask: torch.Tensor, causal: bool = False) -> list[torch.Tensor]:
    """y, dq, dk, dv in float64; a query that sees no key gives 0."""
    q, k, v = (x.double().requires_grad_() for x in data[:3])
    shared = q.shape[-3] // k.shape[-3]
    every_k, every_v = k.repeat_interleave(shared, -3), v.repeat_interleave(shared, -3)
    scores = q @ every_k.mT * 0.3
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -torch.inf)
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask.double()
    e = (scores - scores.detach().amax(-1, keepdim=True).clamp(min=-1e30)).exp()
    y = e / e.sum(-1, keepdim=True).clamp(min=1e-300) @ every_v
    y.backward(data[3].double())
    return [y.detach(), *(x.grad for x in (q, k, v))]  # type: ignore[list-item]


def check(operands: tuple[Node, ...], outputs: tuple[Node, ...], data: list[torch.Tensor], causal: bool = False) -> Any:
    schedule = compiled(*outputs, operands=operands)
    assert kinds(schedule).count("attention") == 1 and kinds(schedule).count("attention_backward") == 2
    found = run_schedule(schedule, data, most_programs=512)
    tolerance = TOLERANCE[operands[0].dtype]
    for got, want in zip(found, reference(data, data[4], causal), strict=True):
        close(got, want, tolerance)
    return schedule


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_read_as_it_is_broadcast(name: str) -> None:
    shape, dtype = MASKS[name]
    operands, outputs = program((2, 2, 40, 16), (2, 2, 70, 16), shape, dtype)
    data = [some(x) for x in operands]
    schedule = check(operands, outputs, data)
    assert not [n for n in schedule.graph.nodes if type(n.type) is not tuple and n.shape[-2:] == (40, 70)
                and n.op.kind not in ("movement", "leaf")]


def test_a_mask_and_causal_together() -> None:
    operands, outputs = program((2, 1, 70, 16), (2, 1, 70, 16), (2, 1, 1, 70), bool_, causal=True)
    data = [some(x) for x in operands]
    data[4][..., 0] = True
    check(operands, outputs, data, causal=True)


def test_a_query_that_sees_nothing_gives_nothing() -> None:
    """Gradients too are 0 there, whether the mask keeps or adds -inf."""
    for dtype in (bool_, float32):
        operands, outputs = program((1, 1, 40, 16), (1, 1, 40, 16), (40, 40), dtype)
        data = [some(x) for x in operands]
        keep = torch.rand(40, 40) < 0.5
        keep[3], keep[37] = False, False
        data[4] = keep if dtype is bool_ else torch.zeros(40, 40).masked_fill(~keep, -torch.inf)
        check(operands, outputs, data)


def test_the_most_negative_number_is_no_infinity() -> None:
    """A row that is masked everywhere with it sees all keys alike, as in torch."""
    operands, outputs = program((1, 1, 20, 16), (1, 1, 20, 16), (20, 20), bfloat16)
    data = [some(x) for x in operands]
    data[4] = torch.zeros(20, 20, dtype=torch.bfloat16)
    data[4][5] = torch.finfo(torch.bfloat16).min
    data[4][:5, 7] = torch.finfo(torch.bfloat16).min
    found = run_schedule(compiled(*outputs, operands=operands), data, most_programs=512)
    close(found[0][0, 0, 5], data[2].double().mean(-2)[0, 0], 1e-2)
    assert all(torch.isfinite(x).all() for x in found)


@each_value
@pytest.mark.parametrize(("heads", "shared", "masked", "dtype"), [*itertools.product(
    [1, 2], [1, 2, 3], [True], [bfloat16, float16]), (2, 2, True, float32)])
def test_shared_heads(heads: int, shared: int, masked: bool, dtype: DType) -> None:
    operands, outputs = program((2, heads * shared, 35, 16), (2, heads, 50, 16), (2, 1, 1, 50), bool_, dtype=dtype)
    schedule = check(operands, outputs, [some(x) for x in operands])
    made = [n for group in schedule.groups for n in group.outputs if group.kind == "attention_backward"]
    assert sorted(n.shape for n in made) == sorted([(2, heads * shared, 35, 16), *[(2, heads, 50, 16)] * 2])


@pytest.mark.parametrize("causal", [True, False])
def test_shared_heads_without_a_mask(causal: bool) -> None:
    q, k = an_input(0, (2, 6, 40, 16), bfloat16), an_input(1, (2, 2, 40, 16), bfloat16)
    v, g = an_input(2, k.shape, bfloat16), an_input(3, q.shape, bfloat16)
    y = sdpa(q, k, v, causal=causal, scale=0.3)
    back = sdpa_backward(g, q, k, v, y, causal=causal, scale=0.3)
    data = [some(x) for x in (q, k, v, g)]
    schedule = compiled(y, *(item(back, index=i) for i in range(3)), operands=(q, k, v, g))
    found = run_schedule(schedule, data, most_programs=512)
    for got, want in zip(found, reference(data, torch.ones(40, 40, dtype=torch.bool), causal), strict=True):
        close(got, want, TOLERANCE[bfloat16])


@pytest.mark.parametrize("head", [16, 64, 128, 256])
def test_float32_rounds_as_float32(head: int) -> None:
    operands, outputs = program((1, 1, 40, head), (1, 1, 40, head), (40, 40), float32, dtype=float32)
    schedule = check(operands, outputs, [some(x) for x in operands])
    kernels = [emit(group) for group in schedule.groups if group.kind.startswith("attention")]
    assert all('input_precision="ieee"' in kernel.source for kernel in kernels)


def test_the_gradient_of_a_mask_is_made_only_where_it_is_wanted() -> None:
    operands, outputs = program((1, 2, 20, 16), (1, 2, 30, 16), (1, 2, 20, 30), bfloat16)
    q, k, v, g, mask = operands
    back = sdpa_backward(g, q, k, v, outputs[0], mask, causal=False, scale=0.3)
    data = [some(x) for x in operands]
    got, = run_schedule(compiled(item(back, index=3), operands=operands), data, most_programs=512)
    leaf = data[4].double().requires_grad_()
    y = ((data[0].double() @ data[1].double().mT * 0.3 + leaf).softmax(-1) @ data[2].double())
    y.backward(data[3].double())
    close(got, leaf.grad, 3e-2)  # type: ignore[arg-type]


@pytest.mark.parametrize(("head", "dtype"), [
    pytest.param(64, bool_, marks=pytest.mark.slow), (128, bfloat16)])
def test_kernels_compile_for_hopper(head: int, dtype: DType) -> None:
    operands, outputs = program((4, 16, 1024, head), (4, 4, 1024, head), (4, 1, 1024, 1024), dtype)
    kernels = [emit(group) for group in compiled(*outputs, operands=operands).groups
               if group.kind.startswith("attention")]
    assert len(kernels) == 3
    for kernel in kernels:
        assert stack_bytes(compile_cubin(kernel)) <= 256, kernel.name


@pytest.mark.parametrize("keys", [320, 300])
def test_tiles_before_the_first_key_that_is_seen_and_behind_the_last_are_not_read(keys: int) -> None:
    """Infinite values lie there: read, they would make NaN of a weight of 0. A row of the batch sees nothing."""
    operands = tuple(an_input(i, (4, 1, 3, 16) if not i else (4, 1, keys, 16), bfloat16) for i in range(3))
    mask = an_input(3, (4, 1, 1, keys), bool_)
    y = sdpa(*operands, movement.expand(mask, shape=(4, 1, 3, keys)), causal=False, scale=0.3)
    data = [some(x) for x in (*operands, mask)]
    data[3][:] = False
    for row, (first, last) in enumerate([(70, 100), (130, keys), (0, 64)]):
        data[3][row, :, :, first:last:3] = True
        data[3][row, :, :, [first, last - 1]] = True
        data[2][row, :, :first // 64 * 64] = torch.inf
        data[2][row, :, -(-last // 64) * 64:] = torch.inf
    schedule = compiled(y, operands=(*operands, mask))
    found, = run_schedule(schedule, data)
    kept = data[2].masked_fill(torch.isinf(data[2]), 0)
    want, *_ = reference([*data[:2], kept, torch.ones_like(data[0])], data[3])
    close(found, want, TOLERANCE[bfloat16])
    assert not found[3].any()
