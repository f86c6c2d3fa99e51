"""Basic and advanced indexing against torch: reading, writing, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_programs import check, same

import genesis

I1 = np.array([2, 0, 1])
I2 = np.array([[1, -1], [0, 2]])
KEYS = {
    "int": lambda t: 1,
    "negative int": lambda t: -1,
    "ints": lambda t: (1, -2, 0),
    "slice": lambda t: slice(1, None),
    "slice with step": lambda t: (slice(None, None, 2), slice(1, 4, 2)),
    "empty slice": lambda t: slice(2, 1),
    "ellipsis": lambda t: (..., 1),
    "ellipsis in the middle": lambda t: (0, ..., slice(1, 3)),
    "none": lambda t: (None, 1, None, slice(None), None),
    "everything": lambda t: (),
    "only ellipsis": lambda t: ...,
    "list": lambda t: [2, 0, 0],
    "index": lambda t: t(I1),
    "index of two dimensions": lambda t: t(I2),
    "index on the second": lambda t: (slice(None), t(I1)),
    "index on the last": lambda t: (..., t(I2)),
    "two indices": lambda t: (t(I1), t(I1)),
    "two indices broadcast": lambda t: (t(I1[:, None]), t(I1)),
    "two indices apart": lambda t: (t(I1), slice(None), t(I1)),
    "two indices apart, broadcast": lambda t: (t(I2), slice(1, 3), t(I1[:2])),
    "three indices": lambda t: (t(I1), t(I1), t(I1)),
    "int beside an index": lambda t: (1, t(I1)),
    "index beside an int": lambda t: (t(I1), 1),
    "index, slice, int": lambda t: (t(I1), slice(None), 2),
    "int, slice, index": lambda t: (0, slice(1, 3), t(I1)),
    "slice, index, int": lambda t: (slice(None), t(I1), 1),
    "index after none": lambda t: (None, t(I1)),
    "indices around none": lambda t: (t(I1), None, t(I1)),
    "mask of one dimension": lambda t: t(np.array([True, False, True])),
    "mask of two dimensions": lambda t: t(np.arange(12).reshape(3, 4) % 3 == 0),
    "mask of all": lambda t: t(np.arange(60).reshape(3, 4, 5) % 7 == 0),
    "mask on the last": lambda t: (..., t(np.array([True, False, False, True, True]))),
    "mask beside an index": lambda t: (t(np.array([True, False, True])), t(np.array([3, 0]))),
    "empty mask": lambda t: t(np.zeros(3, bool)),
    "empty index": lambda t: t(np.zeros(0, np.int64)),
    "true": lambda t: True,
    "false": lambda t: False,
    "index of no dimension": lambda t: t(np.array(2)),
    "int32 index": lambda t: t(I1.astype(np.int32)),
    "list in a tuple": lambda t: ([0, 1], [2, 3]),
    "range": lambda t: range(2),
}
SHAPE = (3, 4, 5)


def base(T, requires_grad=False):
    """3 × 4 × 5 numbers."""
    x = T.arange(60).float().view(SHAPE) / 7
    return x.clone().requires_grad_() if requires_grad else x


@pytest.mark.parametrize("name", KEYS)
def test_reading(name):
    key = KEYS[name]
    same(base(genesis)[key(genesis.tensor)], base(torch)[key(torch.tensor)])


@pytest.mark.parametrize("name", KEYS)
def test_reading_a_view(name):
    """The same through a transposed view of a larger tensor."""
    def run(T):
        x = (T.arange(5 * 4 * 4).float().view(5, 4, 4)).permute(2, 1, 0)[:3]
        return x[KEYS[name](T.tensor)]
    same(run(genesis), run(torch))


@pytest.mark.parametrize("name", KEYS)
def test_gradient_of_reading(name):
    """Elements that are read several times get the sum."""
    def run(T):
        x = base(T, True)
        y = x[KEYS[name](T.tensor)]
        (y * y).sum().backward()
        return x.grad
    same(run(genesis), run(torch))


@pytest.mark.parametrize("name", KEYS)
def test_writing_a_number(name):
    def run(T):
        x = base(T)
        x[KEYS[name](T.tensor)] = -1
        return x
    same(run(genesis), run(torch))


@pytest.mark.parametrize("name", [k for k in KEYS if k not in ("list", "index of two dimensions", "index on the last",
                                                               "two indices apart, broadcast", "false")])
def test_writing_a_tensor_and_its_gradients(name):
    """Indices without repeats, where the result is defined; with False torch does not even record the write."""
    def run(T):
        x, w = base(T, True), T.ones(1, requires_grad=True)
        y = x * 2
        shape = y[KEYS[name](T.tensor)].shape
        count = int(np.prod(shape))
        v = (T.arange(count).float().view(shape) + 100) * w
        y[KEYS[name](T.tensor)] = v
        (y * y).sum().backward()
        return y, x.grad, w.grad
    same(run(genesis), run(torch))


@pytest.mark.parametrize("name", ["slice", "index", "index on the second", "mask of two dimensions", "two indices"])
def test_updating_in_place(name):
    def run(T):
        x = base(T)
        x[KEYS[name](T.tensor)] *= 3
        x[KEYS[name](T.tensor)] += 1
        return x
    same(run(genesis), run(torch))


@pytest.mark.parametrize("name", ["int", "slice", "index", "mask of two dimensions", "two indices apart",
                                  "index on the last"])
def test_writing_through_a_view(name):
    """The base of the view changes."""
    def run(T):
        whole = T.arange(5 * 4 * 4).float().view(5, 4, 4)
        view = whole.permute(2, 1, 0)[:3]
        view[KEYS[name](T.tensor)] = -5
        return whole, view
    same(run(genesis), run(torch))


def _functions(T, nn, optim, np):
    x = T.arange(12).float().view(3, 4).requires_grad_()
    i = T.tensor([[0, 3, 1, 0], [2, 2, 0, 1]])
    m = T.tensor([[True, False, True, False]])
    g = x.gather(1, i[:, :3])
    s = T.zeros(3, 4).scatter(0, T.tensor([[0, 2, 1, 0]]), x[:1])
    a = T.zeros(2, 4).scatter_add(1, i, x[:2])
    n = x.index_select(1, T.tensor([3, 0, 0]))
    f = x.masked_fill(m, -9.0)
    k = x.masked_select(m)
    w = T.where(m, x, x * x)
    e = nn.functional.embedding(T.tensor([[0, 2], [2, 2]]), x)
    d = T.zeros(4, 4).index_add(0, T.tensor([1, 1, 3]), x)
    sum((y * y).sum() for y in (g, s, a, n, f, k, w, e, d)).backward()
    return g, s, a, n, f, k, w, e, d, x.grad


def _more_writes(T, nn, optim, np):
    x = T.zeros(3, 4)
    x.masked_fill_(T.tensor([[True], [False], [True]]), 2)
    x.scatter_add_(1, T.tensor([[0, 0], [1, 2], [3, 3]]), T.ones(3, 2))
    x.index_add_(0, T.tensor([0, 0]), T.ones(2, 4))
    x[T.tensor([0, 1])] = x[T.tensor([1, 0])]
    x[x > 2] -= 1
    x[x == 0] = T.tensor(-1.0)
    return x, T.nonzero(x > 1), (x > 1).nonzero(as_tuple=True), T.where(x > 1)


def _indices_change_after_use(T, nn, optim, np):
    x = T.arange(10).float()
    i = T.tensor([1, 2, 3])
    y = x[i]
    i.add_(4)
    z = x[i]
    x.mul_(10)
    return y, z, x[i]


def _index_kinds(T, nn, optim, np):
    x = T.arange(6).view(2, 3)
    i = T.tensor(1)
    return (x[i], x[i, i], x[np.int64(1)], x[np.array([0, 1])], x[[True, False]], [int(v) for v in x[0]], len(x),
            list(x), 4 in x, x.tolist())


def _corners(T, nn, optim, np):
    x = T.arange(120).view(2, 3, 4, 5)
    i, j = T.tensor([0, 2]), T.tensor([1, 4])
    mask = T.tensor([[True, False, True], [False, True, False]])
    apart = x.clone()
    apart[:, i, :, j] = T.arange(16).view(2, 2, 4)
    legacy = x[T.tensor([1, 0], dtype=T.uint8)]
    return (x[:, i, :, j], apart, x[mask, T.tensor([0, 3, 1])], x[mask, 1], x[[]], x[[], 1], x[:, []], legacy,
            x.float().index_add(1, T.tensor([2, 0]), T.ones(2, 2, 4, 5), alpha=-3),
            x[0, 0].scatter(0, T.tensor([[1, 0]]), T.arange(12).view(3, 4)))


def _fill_values(T, nn, optim, np):
    """Numbers lose their fraction; what the dtype has no number for is refused."""
    found, mask = [], T.tensor([True, False, True])
    for dtype in (T.int64, T.int8, T.uint8, T.bool):
        for value in (0.5, -2.7, 300, -1, True, 1e30, float("nan"), T.tensor(2.7)):
            try:
                found.append(T.zeros(3, dtype=dtype).masked_fill(mask, value))
            except RuntimeError:
                found.append("refused")
    return found


@pytest.mark.parametrize("program", [_functions, _more_writes, _indices_change_after_use, _index_kinds,
                                     _corners, _fill_values],
                         ids=lambda f: f.__name__.strip("_"))
@pytest.mark.filterwarnings("ignore:indexing with dtype")
def test_program(program):
    check(program)


@pytest.mark.parametrize("method", ["scatter_", "scatter_add_"])
def test_a_number_is_written_like_a_row_of_one(method: str) -> None:
    x = genesis.tensor(1.0)
    genesis.eval(x)  # what overwrites memory is prepared otherwise than what makes a value
    want = getattr(torch.tensor(1.0), method)(0, torch.tensor(0), torch.tensor(2.0)).item()
    assert getattr(x, method)(0, genesis.tensor(0), genesis.tensor(2.0)).item() == want
    with pytest.raises(IndexError, match="index 1 is out of bounds for dimension 0 with size 1"):
        getattr(x, method)(0, genesis.tensor(1), genesis.tensor(2.0)).item()
