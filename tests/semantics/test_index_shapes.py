"""What reads and writes by index takes numbers, rows of one and empty indices where torch does, and refuses where torch
does: every combination of a few shapes of the base, the index and the source."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

import genesis
from tests.sweeping import sweep_but

Shape = tuple[int, ...]
SHAPES: tuple[Shape, ...] = ((), (1,), (2,), (1, 1), (2, 3))
INDICES: tuple[Shape, ...] = ((), (1,), (2,), (0,), (1, 1))


def mask_assigned(base: Any, mask: Any, source: Any) -> Any:
    base[mask == 0] = source
    return base


def assigned(base: Any, index: Any, source: Any) -> Any:
    base[index] = source
    return base


WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index_add": lambda x, i, y: x.index_add(0, i, y), "index_add_": lambda x, i, y: x.index_add_(0, i, y),
    "index_copy": lambda x, i, y: x.index_copy(0, i, y), "index_copy_": lambda x, i, y: x.index_copy_(0, i, y),
    "index_fill": lambda x, i, y: x.index_fill(0, i, y), "index_fill_": lambda x, i, y: x.index_fill_(0, i, y),
    "index_put": lambda x, i, y: x.index_put((i,), y), "index_put_": lambda x, i, y: x.index_put_((i,), y),
    "index_put accumulate": lambda x, i, y: x.index_put((i,), y, accumulate=True),
    "index_put mask": lambda x, i, y: x.index_put((i == 0,), y),
    "index_reduce prod": lambda x, i, y: x.index_reduce(0, i, y, "prod"),
    "index_reduce_ mean": lambda x, i, y: x.index_reduce_(0, i, y, "mean"),
    "scatter": lambda x, i, y: x.scatter(0, i, y), "scatter_": lambda x, i, y: x.scatter_(0, i, y),
    "scatter add": lambda x, i, y: x.scatter_(0, i, y, reduce="add"),
    "scatter multiply": lambda x, i, y: x.scatter_(0, i, y, reduce="multiply"),
    "scatter_add": lambda x, i, y: x.scatter_add(0, i, y),
    "scatter_reduce mean": lambda x, i, y: x.scatter_reduce(0, i, y, "mean"),
    "scatter_reduce_ amax": lambda x, i, y: x.scatter_reduce_(0, i, y, "amax"),
    "put": lambda x, i, y: x.put(i, y), "put_ accumulate": lambda x, i, y: x.put_(i, y, accumulate=True),
    "masked_scatter": lambda x, i, y: x.masked_scatter(i == 0, y),
    "masked_scatter_": lambda x, i, y: x.masked_scatter_(i == 0, y),
    "masked_fill": lambda x, i, y: x.masked_fill(i == 0, y), "masked_fill_": lambda x, i, y: x.masked_fill_(i == 0, y),
    "x[i] = y": assigned, "x[mask] = y": mask_assigned,
}

READS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, i: x.gather(-1, i), "take": lambda x, i: x.take(i),
    "index_select": lambda x, i: x.index_select(0, i), "x[i]": lambda x, i: x[i], "x[mask]": lambda x, i: x[i == 0],
    "masked_select": lambda x, i: x.masked_select(i == 0), "take_along_dim": lambda x, i: x.take_along_dim(i, 0),
    "index_fill": lambda x, i: x.index_fill(0, i, 7.0), "scatter": lambda x, i: x.scatter(0, i, 7.0),
    "scatter multiply": lambda x, i: x.scatter(0, i, 7.0, reduce="multiply"),
}


def numbers(library: Any, shape: Shape, first: float) -> Any:
    return library.tensor([first + k for k in range(math.prod(shape))]).reshape(shape)


def zeros(library: Any, shape: Shape) -> Any:
    return library.zeros(shape, dtype=library.int64)


def outcome(call: Callable[[Any], Any], library: Any) -> Any:
    """Shape and values of the result; "an error" where there is none."""
    try:
        found = call(library)
        return tuple(found.shape), found.tolist()
    except (RuntimeError, IndexError):
        return "an error"


@pytest.mark.filterwarnings("ignore:The reduce argument", "ignore:index_reduce")
@pytest.mark.parametrize(("name", "half"), sweep_but(  # a function and its in-place form are one op
    lambda name, half: half == len(name) % 2 and not (name.endswith("_") and name[:-1] in WRITES), WRITES, [0, 1]))
def test_writes(name: str, half: int) -> None:
    """Every other combination of shapes: the two halves are all of them."""
    write, found, wanted = WRITES[name], {}, {}
    for base, index, source in list(product(SHAPES, INDICES, SHAPES))[half::2]:
        if name == "index_put mask" and not index:  # torch fails an assertion of its own
            continue

        def call(library: Any, shapes: tuple[Shape, ...] = (base, index, source)) -> Any:
            return write(numbers(library, shapes[0], 1.5), zeros(library, shapes[1]), numbers(library, shapes[2], 11.5))
        found[base, index, source], wanted[base, index, source] = outcome(call, genesis), outcome(call, torch)
    assert found == wanted
    assert len({str(x) for x in wanted.values()}) > 2


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("name", READS)
def test_reads(name: str) -> None:
    read = READS[name]
    for shapes in product(SHAPES, INDICES):
        def call(library: Any, shapes: tuple[Shape, ...] = shapes) -> Any:
            return read(numbers(library, shapes[0], 1.5), zeros(library, shapes[1]))
        assert outcome(call, genesis) == outcome(call, torch), shapes


def test_gradients_through_numbers_and_empty_indices() -> None:
    def gradients(library: Any) -> list[Any]:
        found = []
        for base, index, source in (((), (), ()), ((1,), (1,), (1,)), ((2, 3), (2, 1), (2, 1))):
            x, y = (numbers(library, shape, 2.5).requires_grad_() for shape in (base, source))
            ids = zeros(library, index)
            for result in (x.scatter(0, ids, y), x.scatter_add(0, ids, y), x.scatter_reduce(0, ids, y, "sum")):
                found += [g.tolist() for g in library.autograd.grad((result * result).sum(), (x, y))]
        return found
    assert gradients(genesis) == gradients(torch)
    x, y = genesis.ones((), requires_grad=True), genesis.ones(2, requires_grad=True)  # torch refuses its own gradient
    x.scatter_add(0, genesis.tensor([0]), y).backward()
    x.scatter(0, genesis.zeros(0, dtype=genesis.int64), y).backward()
    assert x.grad.tolist() == 2.0 and y.grad.tolist() == [1.0, 0.0]


def test_a_mask_of_more_than_the_source_has() -> None:
    """As with torch on the CPU, also where the result is part of a larger program."""
    x, mask = genesis.zeros(3), genesis.tensor([True, False, True])
    assert x.masked_scatter(mask, genesis.tensor([7.0, 8.0])).tolist() == [7.0, 0.0, 8.0]
    with pytest.raises(RuntimeError, match="masked_scatter: number of elements of source < number of ones in mask"):
        (x.masked_scatter(mask, genesis.tensor([7.0])) * 2).tolist()
