"""Elements of rows by one index for all of them: each row is brought to where any element is as near as its neighbour.

`take` reads an element of memory at a time. Where an index asks for most of a row's sectors, in any order, a warp's 32
elements lie in as many lines of the cache; a row in shared memory has its own words for all of them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.indexing import take
from genesis.ir.ops.samples import ANY, case, cases, integers, reals
from genesis.ir.sym_int import hint, most
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from numpy import ndarray

ROW_BYTES: Final = (2 << 10, 64 << 10)
"""Bytes of a row: fewer are some lines of the cache, and of more than that no row has room in a program."""

FEWEST_ROWS: Final = 66
"""Minimum rows: half of an H200's multiprocessors (15,360 elements of each of 205 rows of 15,364 bfloat16 26.1 µs there
where they lie, torch.compile 18: a warp's elements are in some 28 lines of the cache, looked up one after another)."""


def may_share(x: TensorType) -> bool:
    """Whether a kernel brings x's rows, along its last axis, to shared memory.

    There is room for one, and its elements have 2 or 4 bytes.
    """
    return x.dtype.itemsize in (2, 4) and most(x.shape[-1]) * x.dtype.itemsize <= ROW_BYTES[1]


def fits_shared(x: TensorType, index: TensorType) -> bool:
    """Whether elements of x's rows, along its last axis, are rather taken from rows in shared memory."""
    from genesis.ir.gpu_figures import H200
    if index.ndim != 1 or x.ndim < 2 or not may_share(x):
        return False
    row, rows = hint(x.shape[-1]) * x.dtype.itemsize, prod(map(hint, x.shape[:-1]))
    # with an element for each of a row's sectors nearly two thirds of the row are read anyway
    return row >= ROW_BYTES[0] and rows >= FEWEST_ROWS and hint(index.numel) * H200.sector >= row


def _type(index: TensorType, x: TensorType) -> TensorType:
    if index.ndim != 1 or index.dtype.kind != "int" or x.ndim != 2:
        raise RuntimeError(f"{index} does not take elements of rows of {x}")
    return x.with_shape((x.shape[0], index.shape[0]))


def _taken(index: Node, x: Node) -> Node:
    return take(x, index, axis=1)


def _reference(index: ndarray, x: ndarray) -> ndarray:
    return x[:, index]


taken_in_rows = Op("taken_in_rows", "index", _type, decompose=_taken, differentiable=False,
                   opaque=Opaque("scatter", elementwise=1),
                   doc="result[i, p] = x[i, index[p]], of rows that are in shared memory meanwhile.",
                   samples=cases(case(integers(0, 16).of(5), reals().of(3, 16)), kinds=ANY), reference=_reference)

__all__ = ["FEWEST_ROWS", "ROW_BYTES", "fits_shared", "may_share", "taken_in_rows"]
