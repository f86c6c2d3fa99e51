"""Softmax, norms, activations, losses, attention: values and gradients are the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

import genesis
from genesis.nn import functional as F

from .compare import check_gradients, integers, numbers

X = numbers(3, 5)
QKV = [numbers(1, 2, 5, 3, seed=i) for i in range(3)]
PROGRAMS = {
    "softmax": (lambda x: [x.softmax(-1), x.softmax(0)], X),
    "log_softmax": (lambda x: [x.log_softmax(-1), x.log_softmax(0)], X),
    "logsumexp": (lambda x: x.logsumexp(1), X),
    "layer_norm": (lambda x, w, b: [F.layer_norm(x, (5,), w, b), F.layer_norm(x, (5,))], X, numbers(5),
                   numbers(5, seed=1)),
    "layer_norm over two": (lambda x: F.layer_norm(x, (3, 5)), numbers(2, 3, 5)),
    "rms_norm": (lambda x, w: [F.rms_norm(x, (5,), w), F.rms_norm(x, (5,))], X, numbers(5)),
    "gelu": (lambda x: [F.gelu(x), F.gelu(x, approximate="tanh")], X),
    "activations": (lambda x: [F.silu(x), F.relu(x), x.sigmoid(), x.tanh()], X),
    "cross_entropy": (lambda x, t: [F.cross_entropy(x, t), F.cross_entropy(x, t, reduction="none")], X,
                      integers(0, 5, 3)),
    "cross_entropy with a hole": (lambda x, t: F.cross_entropy(x, t, ignore_index=-100), X, np.array([1, -100, 4])),
    "mse_loss": (lambda x, y: F.mse_loss(x, y), X, numbers(3, 5, seed=1)),
    "linear": (lambda x, w, b: F.linear(x, w, b), X, numbers(4, 5), numbers(4)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *QKV),
    "causal attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *QKV),
    "masked attention": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), *QKV,
                         np.tril(np.ones((5, 5), bool))),
    "a residual block": (lambda x, w, g: [x + F.gelu(F.linear(F.rms_norm(x, (5,), g), w))], X, numbers(5, 5),
                         numbers(5)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_and_backward(cuda, fuse, name):
    """A few roundings a value: exp, sums and products in another order than torch's own kernels."""
    program, *arrays = PROGRAMS[name]
    check_gradients(program, *arrays, tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(cuda, dtype):
    """In bfloat16 torch's kernels round between the steps of a backward, these do not: 4 roundings of 2⁻⁸."""
    dtype = getattr(genesis, dtype)
    w = numbers(5)

    def program(x):
        y = x.to(dtype)
        weight = genesis.tensor(w, dtype=dtype, device=x.device)
        return [y.softmax(-1), y.log_softmax(-1), F.layer_norm(y, (5,), weight, weight), F.rms_norm(y, (5,), weight),
                F.gelu(y), F.silu(y)]
    check_gradients(program, X, tolerance={"float64": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}[dtype.name])


def test_second_derivatives(cuda):
    found = []
    for device in ("cpu", "cuda"):
        x = genesis.tensor(X, device=device, requires_grad=True)
        loss = (x.softmax(-1) * x).square().sum() + F.silu(x).exp().sum()
        (first,) = genesis.autograd.grad(loss, [x], create_graph=True)
        first.square().sum().backward()
        found.append(np.array(x.grad.tolist()))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_long_rows(cuda):
    """Rows longer than a block: the kernels walk."""
    x = numbers(2, 9000)
    w = numbers(9000)
    check_gradients(lambda x, w: [x.softmax(-1) * 100, F.layer_norm(x, (9000,), w), F.rms_norm(x, (9000,), w)], x, w,
                    tolerance=5e-5)
