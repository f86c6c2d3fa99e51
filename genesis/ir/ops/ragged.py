"""Products of ragged groups: the rows of one matrix are sorted by group, and each group has a matrix of its own.

This is what a layer of experts computes (Shazeer et al. 2017; Gale et al. 2022, MegaBlocks): `ends` says where the rows
of each group end, and stays on the device. Rows past the last end belong to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import cast, eq, ge, where_
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import Case, ascending, case, cases, np, reals
from genesis.ir.types import TensorType, int32, int64

if TYPE_CHECKING:
    from numpy import ndarray


def _checked(a: TensorType, b: TensorType, ends: TensorType, groups: int) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"dtypes {a.dtype!r} and {b.dtype!r} differ")
    if len({x.device for x in (a, b, ends)}) > 1:
        raise RuntimeError(f"operands are on several devices, {a.device}, {b.device} and {ends.device}")
    if ends.dtype is not int32 or ends.ndim != 1:
        raise RuntimeError(f"ends must be a vector of int32, not {ends}")
    if groups >= 0 and ends.shape[0] != groups:
        raise RuntimeError(f"{ends.shape[0]} ends do not fit {groups} groups")


def _rows_type(a: TensorType, b: TensorType, ends: TensorType) -> TensorType:
    if a.ndim != 2 or b.ndim != 3 or a.shape[1] != b.shape[1]:
        raise RuntimeError(f"rows of {a.shape} cannot be multiplied by the groups' matrices {b.shape}")
    _checked(a, b, ends, b.shape[0])
    return a.with_shape((a.shape[0], b.shape[2]))


def _sums_type(a: TensorType, b: TensorType, ends: TensorType) -> TensorType:
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[0]:
        raise RuntimeError(f"{a.shape} and {b.shape} have no common rows")
    _checked(a, b, ends, -1)
    return a.with_shape((ends.shape[0], a.shape[1], b.shape[1]))


def _members(x: Node, ends: Node) -> Node:
    """x once for each group, (groups, rows, columns): zero but in the rows of the group."""
    groups, (rows, columns) = ends.type.shape[0], x.type.shape
    shape, device = (groups, rows), x.type.device
    row = iota(shape=shape, axis=1, dtype=int64, device=device)
    limits = expand(reshape(cast(ends, dtype=int64), shape=(groups, 1)), shape=shape)
    passed = sum(cast(ge(row, limits), dtype=int64), axes=(0,))
    group = iota(shape=shape, axis=0, dtype=int64, device=device)
    here = eq(expand(reshape(passed, shape=(1, rows)), shape=shape), group)
    whole = (groups, rows, columns)
    return where_(expand(reshape(here, shape=(groups, rows, 1)), shape=whole),
                  expand(reshape(x, shape=(1, rows, columns)), shape=whole), 0.0)


def _rows(a: Node, b: Node, ends: Node) -> Node:
    return sum(matmul(_members(a, ends), b), axes=(0,))


def _sums(a: Node, b: Node, ends: Node) -> Node:
    groups, (rows, columns) = ends.type.shape[0], b.type.shape
    every = expand(reshape(b, shape=(1, rows, columns)), shape=(groups, rows, columns))
    return matmul(swap_last(_members(a, ends)), every)


def _spans(ends: ndarray) -> list[slice]:
    return [slice(int(start), int(end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _rows_reference(a: ndarray, b: ndarray, ends: ndarray) -> ndarray:
    found = np.zeros((a.shape[0], b.shape[2]), a.dtype)
    for group, at in enumerate(_spans(ends)):
        found[at] = a[at] @ b[group]
    return found


def _sums_reference(a: ndarray, b: ndarray, ends: ndarray) -> ndarray:
    return np.stack([a[at].T @ b[at] for at in _spans(ends)])


def _case(sums: bool, rows: int, inner: int, columns: int, groups: int) -> Case:
    """Ends anywhere among the rows: some groups are empty, and some rows are no group's."""
    other = reals().of(rows, columns) if sums else reals().of(groups, inner, columns)
    return case(reals().of(rows, inner), other, ascending(0, rows, int32).of(groups))


_SIZES = ((9, 4, 5, 3), (37, 18, 20, 4), (3, 2, 2, 6), (20, 16, 17, 1))

ragged_matmul: Op = Op(
    "ragged_matmul", "contract", _rows_type, ulp=4, autocast="low", opaque=Opaque("matmul", views=(0, 1)),
    doc="Row i of a (M, K) times b[g] of b (G, K, N), where g is the group that row i is of; `ends` (G) are where the "
        "rows of each group end. Rows past the last end give zeros.",
    vjp=lambda g, a, b, ends, y: (ragged_matmul(g, swap_last(b), ends), ragged_matmul_sums(a, g, ends), None),
    decompose=_rows, samples=cases(*(_case(False, *sizes) for sizes in _SIZES), scale=4), reference=_rows_reference)

ragged_matmul_sums: Op = Op(
    "ragged_matmul_sums", "contract", _sums_type, ulp=4, autocast="low", opaque=Opaque("matmul", views=(0, 1)),
    doc="aᵀ·b over the rows of each group: a (M, K) and b (M, N) give (G, K, N).",
    vjp=lambda g, a, b, ends, y: (ragged_matmul(b, swap_last(g), ends), ragged_matmul(a, g, ends), None),
    decompose=_sums, samples=cases(*(_case(True, *sizes) for sizes in _SIZES), scale=4), reference=_sums_reference)
