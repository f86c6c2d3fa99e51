"""Matrix products: mm, bmm and addmm into the result's memory."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, Outs, smaller
from genesis.runtime.plan import Direct


def _not_bool(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    return types[0].dtype.kind != "bool"


def _batch(x: Tensor) -> Tensor:
    """(..., rows, columns) as (batches, rows, columns)."""
    if x.ndim == 3:
        return x
    count = 1
    for size in x.shape[:-2]:
        count *= size
    return x.reshape(count, *x.shape[-2:])


def _matmul(outs: Outs, a: Tensor, b: Tensor) -> Any:
    out = outs[0]
    if a.ndim == 2 and a.shape[0] == b.shape[1] == 1 and a.dtype in _DOT:  # ten times as fast as the product
        return torch.dot(a[0], b[:, 0], out=None if out is None else out[0, 0]).view(1, 1)
    if a.ndim == 2:
        matrix, vector = (b.t(), a) if a.shape[0] == 1 else (a, b)
        if _one_by_one(matrix, vector):
            out = a.new_empty(a.shape[0], b.shape[1]) if out is None else out
            _dots(matrix, vector, out)
            return out
        return torch.mm(a, b, out=out)
    made = torch.bmm(_batch(a), _batch(b), out=None if out is None else _batch(out))
    return made.view((*a.shape[:-1], b.shape[-1]))


_DOT = (torch.float32, torch.float64)


FEW_ROWS: Final = 16
"""Most rows of a product whose time is that of reading its matrix."""

READ_ALONE: Final = 1 << 19
"""Elements of a float32 matrix from which on oneDNN reads it faster than BLAS does for few rows: 23 GB/s against 14 for
one row of 512 on an AMD EPYC (torch 2.13). A call of it takes 10 µs more, which smaller ones do not give back."""

_read_alone = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
"""oneDNN's product with a transposed matrix, which torch's own compiler calls; None where torch was built without."""


ONE_BY_ONE: Final = 1 << 16
"""Elements of a matrix from which on a dot product a row is faster: half the time of BLAS where the matrix comes from
memory, and 1 µs more where it is in the cache (256 × 256, torch 2.13, AMD EPYC, one thread)."""

SHORTEST_DOT, LONGEST_DOT = 128, 10_000
"""Elements of a row: of shorter ones the calls take longer than the reading (64: 49 µs for BLAS's 37), longer ones
numpy's BLAS shares out among threads of its own."""

_vecdot = getattr(np, "vecdot", None)
"""Dot products of a matrix's rows with a vector; None where numpy is older than 2."""


def _one_by_one(matrix: Tensor, vector: Tensor) -> bool:
    """Whether a product with one vector is a dot product a row. One thread reads a matrix so at the rate of a sum over
    it, twice that of BLAS: 16.8 MB in 0.51 ms against 1.14, and 0.67 with oneDNN (torch 2.13, AMD EPYC)."""
    return (vector.numel() == matrix.shape[1] and matrix.numel() >= ONE_BY_ONE and _vecdot is not None
            and SHORTEST_DOT <= vector.numel() <= LONGEST_DOT and matrix.dtype in _DOT and matrix.is_contiguous()
            and vector.is_contiguous() and torch.get_num_threads() == 1)


def _dots(matrix: Tensor, vector: Tensor, out: Tensor) -> None:
    """(rows, size), size elements → rows elements."""
    assert _vecdot is not None
    with np.errstate(all="ignore"):
        _vecdot(matrix.numpy(), vector.view(-1).numpy(), out=out.view(-1).numpy())


def _few_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Few rows, and operands that oneDNN's function takes: it reads any bias as if its elements lay side by side."""
    return (weight.dtype is torch.float32 and 0 < x.numel() <= FEW_ROWS * weight.shape[1]
            and weight.is_contiguous() and (bias is None or bias.is_contiguous()))


def _linear(outs: Outs, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    out = outs[0]
    if _one_by_one(weight, x):
        _dots(weight, x, out)
        if bias is not None:
            out.add_(bias)
        return
    if weight.numel() >= READ_ALONE and _read_alone is not None and _few_rows(x, weight, bias):
        out.copy_(_read_alone(x, weight, bias, "none", [], ""))
        return
    if x.ndim == 2:
        torch._C._nn.linear(x, weight, bias, out=out)  # addmm or mm, with the weight transposed in C
        return
    out_features, in_features = weight.shape
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    x, out = x.reshape(rows, in_features), out.view(rows, out_features)
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)


def _spans(ends: Tensor) -> list[tuple[int, int]]:
    """(first row, row after the last) of each group."""
    stops = ends.tolist()
    return list(zip([0, *stops[:-1]], stops, strict=True))


def _ragged_matmul(outs: Outs, a: Tensor, b: Tensor, ends: Tensor) -> None:
    out, stop = outs[0], 0
    for group, (start, stop) in enumerate(_spans(ends)):
        torch.mm(a[start:stop], b[group], out=out[start:stop])
    out[stop:] = 0


def _ragged_matmul_sums(outs: Outs, a: Tensor, b: Tensor, ends: Tensor) -> None:
    for group, (start, stop) in enumerate(_spans(ends)):
        torch.mm(a[start:stop].t(), b[start:stop], out=outs[0][group])


def _is_small_linear(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """Whether `_linear` asks for nothing but torch's function."""
    x, weight, *_ = types
    return x.ndim == 2 and smaller(weight.numel, min(ONE_BY_ONE, READ_ALONE))


def _is_small_product(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """Whether `_matmul` asks for nothing but torch's function."""
    a, b = types
    return a.ndim == 2 and smaller(a.numel, ONE_BY_ONE) and smaller(b.numel, ONE_BY_ONE) and (
        a.shape[0].__class__ is int is b.shape[1].__class__ and (a.shape[0], b.shape[1]) != (1, 1))


CONTRACTION: dict[str, Lowering] = {
    "matmul": Lowering(_matmul, supports=_not_bool, allocates=True, direct=Direct(torch.mm),
                       direct_for=_is_small_product),
    "ragged_matmul": Lowering(_ragged_matmul, supports=_not_bool),
    "ragged_matmul_sums": Lowering(_ragged_matmul_sums, supports=_not_bool),
    "linear": Lowering(_linear, supports=_not_bool, direct=Direct(torch._C._nn.linear), direct_for=_is_small_linear),
}
