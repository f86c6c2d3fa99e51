"""Where the CPU's kernels and the registry's meaning could part: masks, layouts, aliasing, odd numbers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.codegen.cpu.lowerings import LOWERINGS, lowering_for
from genesis.ir import OPS, tensor_type
from genesis.ir.ops.samples import Operand
from genesis.ir.types import bool_, float32, int64
from tests.evaluate import evaluate


def leaf(index, *shape, dtype=float32):
    return OPS["input"](index=index, type=tensor_type(shape, dtype))


@pytest.mark.parametrize("decompose", [frozenset(), frozenset({"sdpa"})])
@pytest.mark.parametrize("boolean", [True, False])
def test_a_query_without_keys_gives_zero(boolean, decompose):
    """torch gives 0 there, not the NaN of softmax over nothing."""
    q, k, v = leaf(0, 2, 3, 8), leaf(1, 2, 2, 8), leaf(2, 2, 2, 8)
    keep = np.array([[True, False], [False, False], [True, True]])[None].repeat(2, 0)
    mask = keep if boolean else np.where(keep, 0.0, -math.inf).astype(np.float32)
    given = OPS["input"](index=3, type=tensor_type((2, 3, 2), bool_ if boolean else float32))
    feeds = {x: np.random.default_rng(i).normal(size=x.type.shape).astype(np.float32) for i, x in enumerate((q, k, v))}
    [y] = evaluate([OPS["sdpa"](q, k, v, given, causal=False, scale=1.0)], {**feeds, given: mask}, decompose)
    assert np.isfinite(y).all()
    assert (y[:, 1] == 0).all()
    np.testing.assert_allclose(y[:, 0], feeds[v][:, 0], rtol=1e-6)


def test_attention_refuses_what_torch_has_no_kernel_for():
    """Causal with a mask, a mask's gradient, two head sizes: these are decomposed."""
    q, wide, mask = tensor_type((2, 3, 8), float32), tensor_type((2, 3, 4), float32), tensor_type((2, 3, 3), float32)
    how = {"causal": True, "scale": 1.0}
    assert lowering_for("sdpa", (q, q, q, mask), how) is None
    assert lowering_for("sdpa_backward", (q, q, q, q, q, mask), {**how, "causal": False}) is None
    assert lowering_for("sdpa_backward", (wide, q, q, wide, wide), how) is None
    assert lowering_for("sdpa_backward", (q, q, q, q, q), how) is not None


TURNED = {"turned": lambda x: x.mT.contiguous().mT,
          "every second": lambda x: genesis.stack([x, x], -1).flatten(-2)[..., ::2]}
"""Operands whose rows do not lie element by element, which torch's kernel takes for such that do."""


@pytest.mark.parametrize("shape", [(2, 4, 5, 8), (4, 5, 8), (2, 1, 5, 8)], ids=["heads", "batches", "shared heads"])
@pytest.mark.parametrize("turned", TURNED)
@pytest.mark.parametrize("which", range(4), ids=["q", "k", "v", "gradient"])
def test_attention_takes_rows_as_they_lie(which: int, turned: str, shape: tuple[int, ...]) -> None:
    """The value and its gradients, when one program has both and when the backward makes the rows' sums anew."""
    draws = np.random.default_rng(0)
    arrays = [draws.standard_normal((2, 4, 5, 8) if at in (0, 3) else shape) for at in range(4)]
    lie = [TURNED[turned] if at == which else genesis.clone for at in range(4)]

    def attend(attention: Any, read_first: bool) -> list[np.ndarray]:
        given = [genesis.tensor(x, requires_grad=True) for x in arrays]
        q, k, v, g = [of(x) for of, x in zip(lie, given, strict=True)]
        genesis.eval(q, k, v, g)
        y = attention(q, k, v)
        if read_first:
            genesis.eval(y)
        grads = genesis.autograd.grad((y * g).sum(), given[:3])
        genesis.eval(y, *grads)
        return [x.numpy() for x in (y.detach(), *grads)]

    def written_out(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / 8 ** 0.5).softmax(-1) @ v
    attention = partial(genesis.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    for read_first in (False, True):
        for found, wanted in zip(attend(attention, read_first), attend(written_out, read_first), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5)])
def test_batch_norm_reads_its_weight_as_it_lies(shape: tuple[int, ...]) -> None:
    """torch 2.13's own gradient of the input is wrong for rows of channels and a weight of every second number."""
    draws = np.random.default_rng(0)
    x, g, weight = (genesis.tensor(draws.standard_normal(size), requires_grad=True) for size in (shape, shape, 4))
    found = []
    for lie in (genesis.clone, lambda w: genesis.stack([w, w * 0 + 7], -1).flatten()[::2]):
        given = lie(weight)
        genesis.eval(given)
        y = genesis.nn.functional.batch_norm(x, None, None, given, training=True)
        found.append([part.numpy() for part in genesis.autograd.grad((y * g).sum(), (x, weight))])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12)


TRUTHS = ("eq", "ne", "lt", "le", "gt", "ge", "signbit", "logical_not", "logical_and", "logical_or", "logical_xor")
"""Ops whose result is bool: it lies in an operand's memory only where that is bool too."""

IN_PLACE = [(name, position) for name, row in LOWERINGS.items() for position in row.in_place]


@pytest.mark.parametrize(("name", "position"), IN_PLACE)
def test_in_place_gives_the_same(name, position):
    """The result may lie in the memory of the operands that the row names, along every axis."""
    op = OPS[name]
    wanted = ("bool",) if name in TRUTHS else op.samples.kinds
    dtype = next(d for d in (float32, int64, bool_) if d.kind in wanted)
    for case in op.samples.cases:
        if all(isinstance(x, Operand) for x in case.operands) and len(case.operands) > position:
            check_in_place(op, case, position, dtype)


def check_in_place(op, case, position, dtype):
    random = np.random.default_rng(7)
    arrays = [np.asarray(x.values.draw(random, x.shape, dtype)) for x in case.operands]
    types = [tensor_type(a.shape, dtype if x.values.dtype is None else x.values.dtype)
             for a, x in zip(arrays, case.operands, strict=True)]
    node = op(*(OPS["input"](index=i, type=t) for i, t in enumerate(types)), **case.attributes)
    assert node.type is types[position]
    apart, together = ([torch.from_numpy(a.copy()) for a in arrays] for _ in range(2))
    out = torch.empty_like(apart[position])
    LOWERINGS[op.name].function((out,), *apart, **node.attributes)
    LOWERINGS[op.name].function((together[position],), *together, **node.attributes)
    assert torch.equal(out, together[position])


def test_adamw_updates_in_place_and_apart():
    """With the results in the operands' own memory, and elsewhere with the operands left alone."""
    torch.manual_seed(0)
    numbers = (0.01, 0.9, 0.99, 1e-8, 0.1, 1 - 0.9**2, 1 - 0.99**2)
    p, g, m, v = torch.randn(6), torch.randn(6), torch.randn(6), torch.rand(6)
    expected = p.clone().requires_grad_()
    expected.grad = g.clone()
    adam = torch.optim.AdamW([expected], lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    adam.state[expected] = {"step": torch.tensor(1.0), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
    adam.step()
    before = [x.clone() for x in (p, m, v)]
    outs = tuple(torch.empty(6) for _ in range(3))
    run = LOWERINGS["adamw"].function
    run(outs, *numbers, p, g, m, v, count=1, decoupled=True)
    assert all(torch.equal(x, y) for x, y in zip((p, m, v), before, strict=True))
    run((p, m, v), *numbers, p, g, m, v, count=1, decoupled=True)
    assert all(torch.equal(x, y) for x, y in zip((p, m, v), outs, strict=True))
    torch.testing.assert_close(p, expected.detach(), rtol=4e-7, atol=1e-7)  # two roundings apart


def test_adamw_with_a_rate_of_zero_changes_only_the_moments():
    numbers = (0.0, 0.9, 0.99, 1e-8, 0.1, 0.1, 0.01)
    p, g, m, v = torch.ones(3), torch.ones(3), torch.zeros(3), torch.zeros(3)
    LOWERINGS["adamw"].function((p, m, v), *numbers, p, g, m, v, count=1, decoupled=True)
    assert torch.equal(p, torch.ones(3))
    assert (m > 0).all() and (v > 0).all()


def test_low_precision_rows_add_up_in_float32():
    """1 + 1000 · 2^-9 in bfloat16: each addition alone would round to 1."""
    out = torch.empty(1, dtype=torch.bfloat16)
    LOWERINGS["index_add"].function((out,), torch.ones(1, dtype=torch.bfloat16), torch.zeros(1024, dtype=torch.int64),
                                    torch.full((1024,), 2.0**-9, dtype=torch.bfloat16), axis=0)
    assert out.item() == 3.0


def test_reshape_tells_whether_it_copied():
    from genesis.codegen.cpu.lowerings import shares_memory
    x = torch.arange(6.0).view(2, 3)
    reshape = LOWERINGS["reshape"].function
    assert shares_memory(x, reshape(x, shape=(6,)))
    assert not shares_memory(x, reshape(x.t(), shape=(6,)))


def test_numbers_on_the_left():
    """Numbers on the left of ops that torch has only for tensors there."""
    x = leaf(0, 3)
    [y] = evaluate([OPS["remainder"](7.0, x)], {x: np.array([2, -2, 4], np.float32)})
    assert y.tolist() == [1.0, -1.0, 3.0]
    [y] = evaluate([OPS["maximum"](0.5, x)], {x: np.array([0.25, np.nan, 4], np.float32)})
    np.testing.assert_array_equal(y, np.array([0.5, np.nan, 4], np.float32))
