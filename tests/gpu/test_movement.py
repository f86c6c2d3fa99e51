"""Views and movement on CUDA: index maps in kernels, copies, writes into parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import genesis

from .compare import check, check_gradients, integers, numbers, same

VIEWS = {
    "reshape": lambda x: x.reshape(6, 4),
    "reshape after permute": lambda x: x.permute(2, 0, 1).reshape(-1),
    "flatten and back": lambda x: x.permute(1, 0, 2).reshape(24).reshape(2, 12),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, 2),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "new dimension": lambda x: x.unsqueeze(1).expand(2, 3, 3, 4),
    "slice": lambda x: x[:, 1:, 1:3],
    "steps": lambda x: x[::2, ::2, 1::2],
    "empty slice": lambda x: x[:, 2:2],
    "one element": lambda x: x[1, 2, 3],
    "pad": lambda x: genesis.nn.functional.pad(x, (1, 2, 0, 3), value=1.5),
    "flip": lambda x: x.flip(0, 2),
    "cat": lambda x: genesis.cat([x, x * 2, x[:, :1]], 1),
    "stack": lambda x: genesis.stack([x, -x], -1),
    "split": lambda x: x.split(3, -1),
    "chunk and unbind": lambda x: (*x.chunk(2, 1), *x.unbind(0)),
    "repeat": lambda x: x.repeat(2, 1, 2),
    "movedim": lambda x: x.movedim(0, 2),
    "squeeze": lambda x: x[:1].squeeze(0),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-1),
    "views of views": lambda x: x.permute(2, 1, 0)[1:, ::2].flip(1).reshape(3, -1).t()[1:3],
    "a padded slice of a cat": lambda x: genesis.nn.functional.pad(genesis.cat([x, x], 0)[1:3, :, ::3], (2, 1)),
}


def test_alone(cuda, fuse):
    check(lambda x: [view(x) for view in VIEWS.values()], numbers(2, 3, 4), tolerance=0.0)


def test_between_pointwise_ops(cuda, fuse):
    def program(x):
        return [y * 3 - 1 for y in flat(view(x * 2 + 1) for view in VIEWS.values())]
    check(program, numbers(2, 3, 4))


def flat(found: Iterable[Any]) -> list[Any]:
    """The tensors of results that are tensors or tuples."""
    return [y for x in found for y in (x if isinstance(x, (tuple, list)) else (x,))]


def test_into_a_reduction(cuda):
    check(lambda x: [y.sum(-1) for y in flat(view(x * 2) for view in VIEWS.values()) if y.ndim], numbers(2, 3, 4))


def test_gradients(cuda):
    check_gradients(lambda x: flat(view(x * x) for view in VIEWS.values()), numbers(2, 3, 4))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16, np.float64])
def test_other_dtypes(cuda, dtype):
    check(lambda x: [x.permute(1, 0), x[::2, 1:], x.flip(0), genesis.cat([x, x], 1), x.reshape(-1)],
          integers(0, 2, 3, 4).astype(dtype))


def test_contiguous_and_clone(cuda):
    def program(x):
        y = x.t().contiguous()
        z = x.t().clone()
        z += 1
        return y, z, x
    check(program, numbers(3, 4))


def test_assignment_into_parts(cuda, fuse):
    def program(x, y):
        a = x.clone()
        a[1:3] = y[:2]
        b = x.clone()
        b[::2, 1] = 9.0
        c = x.clone()
        c.t()[1:, 2] = 0.5
        d = x.clone()
        d[:, 1:4:2] += d[:, :2]
        e = x.clone()
        e[:] = e.flip(0)
        f = x.clone()
        f[1:] = f[:-1]
        return a, b, c, d, e, f
    check(program, numbers(4, 5), numbers(4, 5, seed=1), tolerance=0.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_assignment_overlapping_its_source_in_stored_memory(cuda, device):
    """The buffer is in memory before: the update must not overwrite what it still reads."""
    expected = numbers(5, 5)
    x = genesis.tensor(expected, device=device)
    x[1:] = x[:-1]
    expected[1:] = expected[:-1].copy()
    same(x, expected, 0.0)
    x[:] = x.flip(0)
    expected[:] = expected[::-1].copy()
    same(x, expected, 0.0)
    x.t()[:] = x.clone()
    expected.T[:] = expected.copy()
    same(x, expected, 0.0)


def test_concat_of_parts_of_dead_memory(cuda):
    check(lambda x, y: genesis.cat([x[1:], y[:0], y.flip(1)]) * 2, numbers(3, 4), numbers(2, 4))


def test_an_empty_part_has_an_empty_gradient(cuda: Any) -> None:
    """As in torch: it is part of the result. Where others have more dimensions, (0,) stands for no part."""
    for device in ("cpu", "cuda"):
        empty, one, row = (genesis.ones(n, device=device, requires_grad=True) for n in (0, 1, 3))
        genesis.cat([empty, one, row, empty]).sum().backward()
        assert [x.grad.tolist() for x in (empty, one, row)] == [[], [1.0], [1.0] * 3]
        assert genesis.cat([empty, genesis.ones(2, 3, device=device)]).tolist() == [[1.0] * 3] * 2


def test_empty_tensors(cuda):
    def program(x):
        return x.t(), x + 1, x.reshape(0), genesis.cat([x, x]), x.sum(0), x.sum(1), x.sum(), x.flip(0)
    check(program, numbers(0, 3))
