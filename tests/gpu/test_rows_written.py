"""One row that is written through an index: the kernel that makes it writes it where the memory lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis.engine import last_plan
from genesis.runtime.plan import Copy

from .compare import array, launches, numbers

ROWS, SIZE = 12, 8


def both(program: Callable[..., Any], *arrays: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What a program returns, and its operands after it, on the GPU and on the CPU."""
    found = []
    for device in ("cuda", "cpu"):
        operands = [genesis.tensor(a).to(device) for a in arrays]
        genesis.eval(*operands)
        results = program(*operands)
        results = list(results) if isinstance(results, tuple) else [results]
        genesis.eval(*results, *operands)
        found.append([array(x.float()) if x.dtype is genesis.bfloat16 else array(x) for x in (*results, *operands)])
    return found[0], found[1]


def agree(program: Callable[..., Any], *arrays: np.ndarray, tolerance: float = 1e-6) -> None:
    """Both devices give the same."""
    gpu, cpu = both(program, *arrays)
    for one, other in zip(gpu, cpu, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def normed(kept: Any, x: Any, at: Any) -> Any:
    return kept.index_copy_(1, at, F.rms_norm(x, (SIZE,)))


def pointwise(kept: Any, x: Any, at: Any) -> Any:
    return kept.index_copy_(1, at, x.exp() + 1)


def summed(kept: Any, x: Any, at: Any) -> Any:
    """Each element of the row is a sum: a row of the kernel's space, not an element."""
    return kept.index_copy_(1, at, (x.reshape(2, 1, SIZE, 1) * x.reshape(2, 1, 1, SIZE)).sum(-1))


@pytest.mark.parametrize("program", [normed, pointwise, summed])
def test_the_kernel_that_makes_a_row_writes_it(cuda: Any, program: Callable[..., Any]) -> None:
    arrays = numbers(2, ROWS, SIZE), numbers(2, 1, SIZE), np.array([5])
    operands = [genesis.tensor(a).to("cuda") for a in arrays]
    genesis.eval(*operands)
    genesis.eval(program(*operands))
    plan = last_plan()
    assert plan is not None and launches() <= 2, "the check of the index is one"
    assert not any(isinstance(step, Copy) for step in plan.plan.steps)
    agree(program, *arrays, tolerance=1e-5)


def test_a_row_of_products_is_written_beside_them(cuda: Any) -> None:
    """The product's kernel does not write it: nothing says there whose memory it begins with."""
    agree(lambda kept, x, w, at: kept.index_copy_(1, at, (x @ w).view(16, 1, SIZE)), numbers(16, ROWS, SIZE),
          numbers(16, 32), numbers(32, SIZE), np.array([5]), tolerance=1e-4)


@pytest.mark.parametrize("at", [0, ROWS - 1, -1, -ROWS])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_any_row_along_any_dimension(cuda: Any, at: int, dim: int) -> None:
    shape = [ROWS] * 3
    row = [1 if d == dim else ROWS for d in range(3)]

    def program(kept: Any, x: Any) -> Any:
        index = genesis.full((1,), at % ROWS if at < 0 and dim == 0 else at, dtype=genesis.int64, device=kept.device)
        kept[(slice(None),) * dim + (index,)] = x * 2
        return kept.sum()
    agree(program, numbers(*shape), numbers(*row), tolerance=1e-4)


def test_an_index_that_is_outside_is_told(cuda: Any) -> None:
    kept, x = genesis.zeros(ROWS, SIZE, device="cuda"), genesis.ones(1, SIZE, device="cuda")
    with pytest.raises(IndexError, match="out of bounds"):
        kept.index_copy_(0, genesis.tensor([ROWS]).to("cuda"), x + 1)
        genesis.eval(kept)
        genesis.cuda.synchronize()


@pytest.mark.parametrize("program", [
    lambda kept, x, at: kept.index_copy_(1, at, kept[:, 3:4] * 2),                  # made of what it is written into
    lambda kept, x, at: kept.index_copy_(1, at, kept.flip(1)[:, 3:4] + x),
    lambda kept, x, at: (kept + 1, kept.index_copy_(1, at, x + 1)),                 # the old content is asked for too
    lambda kept, x, at: (kept.clone(), kept.index_copy_(1, at, x + 1), kept * 2),   # and the new
    lambda kept, x, at: (kept.sum(1), kept.index_copy_(1, at, x.exp()), kept.sum(1)),
    lambda kept, x, at: kept.index_copy_(1, at, x + 1).index_copy_(1, at + 1, x + 2).index_copy_(1, at, x + 3),
    lambda kept, x, at: (x + kept[:, :1], kept.index_copy_(1, at, x + kept[:, :1])),
    lambda kept, x, at: kept.index_copy(1, at, x + 1),                              # out of place: kept stays
    lambda kept, x, at: genesis.zeros_like(kept).index_copy(1, at, x + 1),
    lambda kept, x, at: (kept * 2).index_copy_(1, at, x + 1),                       # into what the program makes
    lambda kept, x, at: kept.index_copy_(1, at, x[:, :, :1].expand(2, 1, SIZE)),
    lambda kept, x, at: (x + 1, kept.index_copy_(1, at, x + 1), (x + 1) * kept[:, 1:2]),
], ids=range(12))
def test_what_is_read_beside_the_write(cuda: Any, program: Callable[..., Any]) -> None:
    agree(program, numbers(2, ROWS, SIZE), numbers(2, 1, SIZE), np.array([5]), tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int32", "bool"])
def test_every_dtype(cuda: Any, dtype: str) -> None:
    def program(kept: Any, x: Any, at: Any) -> Any:
        made = kept.to(getattr(genesis, dtype))
        genesis.eval(made)
        made.index_copy_(1, at, x.to(made.dtype))
        return made.to(genesis.float64)
    agree(program, numbers(2, ROWS, SIZE), numbers(2, 1, SIZE), np.array([2]))


def test_its_gradient(cuda: Any) -> None:
    def program(kept: Any, x: Any, at: Any) -> Any:
        kept, x = kept.detach().requires_grad_(), x.detach().requires_grad_()
        return genesis.autograd.grad((kept.index_copy(1, at, x * x) ** 2).sum(), [kept, x])
    agree(lambda *operands: tuple(program(*operands)), numbers(2, ROWS, SIZE), numbers(2, 1, SIZE), np.array([5]),
          tolerance=1e-5)
