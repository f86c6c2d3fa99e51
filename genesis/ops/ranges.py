"""Evenly spaced values, and grids of indices."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.host_values import from_host
from genesis.frontend.recording import TensorBase, emit, wrap
from genesis.ir.errors import failure, not_an_operand
from genesis.ir.node import Node, make
from genesis.ir.numbers import as_number, number
from genesis.ir.ops import leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import ranges as r
from genesis.ir.sym_int import as_size
from genesis.ir.types import DType, as_dtype, bool_, float64, int64
from genesis.ops.creation import DeviceLike, device_from, finish
from genesis.ops.out import into, made_like

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["arange", "eye", "linspace", "logspace", "meshgrid", "tril_indices", "triu_indices"]


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: DType | None = None, device: DeviceLike = None,
           requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """start, start + step, … below end. Floats among the numbers give the default floating-point dtype, else int64.

    >>> import genesis
    >>> genesis.arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    dtype, device = made_like(out, dtype, device)
    start, end, step = (0, _plain(start), _plain(step)) if end is None else map(_plain, (start, end, step))
    named = [("start", start), ("end", end), ("step", step)]
    if step == 0:
        raise failure("arange", "step must be nonzero", named)
    if not all(isinstance(x, int) or math.isfinite(x) for x in (start, end, step)):
        raise failure("arange", f"unsupported range: {start} -> {end}", named)
    if (end - start) * step < 0:
        raise failure("arange", "upper bound and lower bound inconsistent with step sign", named)
    whole = all(isinstance(x, int) for x in (start, end, step))
    kind = dtype or default_dtype("int" if whole else "float")
    if kind is bool_:
        raise failure("arange", "not implemented for genesis.bool", named)
    if kind is int64 and not whole:
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise failure("arange", "step must be nonzero as an integer", named, error=ValueError)
    count = max(as_size(-((start - end) // step)) if isinstance(step, int) and isinstance(end - start, int)
                else math.ceil((end - start) / step), 0)
    place = device_from(device)
    if kind.kind == "int":
        whole_number = operator.pos if whole else int
        node = _stepped(make(leaves.iota, (), ((count,), 0, kind, place)), whole_number(start), whole_number(step))
    else:
        index = make(leaves.iota, (), ((count,), 0, int64, place))
        node = make(p.cast, (_stepped(make(p.cast, (index,), (float64,)), float(start), float(step)),), (kind,))
    return into(out, finish(wrap(node), requires_grad))


def _stepped(index: Node, start: int | float, step: int | float) -> Node:
    """start + step · index; the numbers are inputs of the plan, so that another range of this length compiles
    nothing."""
    if step != 1:
        index = emit(p.mul, (index, number(step)))
    return index if start == 0 else emit(p.add, (index, number(start)))


def _plain(x: Any) -> Any:
    """A number: of a tensor of one element its value, of a numpy scalar the Python number."""
    if isinstance(x, TensorBase):
        return x.item()  # type: ignore[attr-defined]
    found = as_number(x)
    if found is None:
        raise not_an_operand(x)
    return found


def _ends(name: str, start: Any, end: Any, steps: Any) -> tuple[Any, Any, int]:
    for x in (start, end):
        if isinstance(x, TensorBase) and x.spec.ndim:
            raise failure(name, f"{name} only supports 0-dimensional start and end tensors",
                          [("start", start), ("end", end)])
    try:
        count = operator.index(steps)
    except TypeError:
        raise failure(name, f"steps must be an integer, not {steps!r}", error=TypeError) from None
    if count < 0:
        raise failure(name, f"number of steps must be non-negative, but got {count}")
    return _plain(start), _plain(end), count


def _line(start: Any, end: Any, count: int, kind: DType, device: DeviceLike, dtype: DType) -> Node:
    """Values from start to end, which are cut to integers first where the result's dtype `kind` is of integers."""
    if kind.kind == "int":
        start, end = int(start), int(end)
    return emit(r.linspace, (number(float(start)), number(float(end))), (count, dtype, device_from(device)))


def linspace(start: Any, end: Any, steps: int, *, dtype: DType | None = None, device: DeviceLike = None,
             requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """`steps` evenly spaced values from start to end, both included.

    >>> import genesis
    >>> genesis.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    dtype, device = made_like(out, dtype, device)
    start, end, count = _ends("linspace", start, end, steps)
    kind = dtype or default_dtype("float")
    if kind.kind == "float":
        return into(out, finish(wrap(_line(start, end, count, kind, device, kind)), requires_grad))
    values = make(p.cast, (_line(start, end, count, kind, device, float64),), (kind,))
    return into(out, finish(wrap(values), requires_grad))


def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: DType | None = None,
             device: DeviceLike = None, requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """base to the power of each of `steps` evenly spaced values from start to end, both included.

    >>> import genesis
    >>> genesis.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    dtype, device = made_like(out, dtype, device)
    start, end, count = _ends("logspace", start, end, steps)
    kind = dtype or default_dtype("float")
    exponents = _line(start, end, count, kind, device, float64)
    bases = exponents * 0.0 + float(base)
    return into(out, finish(wrap(make(p.cast, (emit(p.pow, (bases, exponents)),), (kind,))), requires_grad))


def eye(n: int, m: int | None = None, *, dtype: DType | None = None, device: DeviceLike = None,
        requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """Ones on the diagonal of an n × m matrix, zeros elsewhere."""
    dtype, device = made_like(out, dtype, device)
    rows, columns = operator.index(n), operator.index(n if m is None else m)
    for name, size in (("n", rows), ("m", columns)):
        if size < 0:
            raise failure("eye", f"{name} must be greater or equal to 0, got {size}")
    node = _diagonal(rows, columns, dtype or default_dtype("float"), device_from(device))
    return into(out, finish(wrap(node), requires_grad))


def _diagonal(n: int, m: int, dtype: DType, device: Any) -> Node:
    """Ones on the diagonal: in row-major order m zeros follow each."""
    k = min(n, m)
    spread = emit(movement.pad, (leaves.full((k, 1), 1, dtype, device),), ((0, 0), (0, m), 0))
    line = movement.take_range(movement.reshape(spread, shape=(k * (m + 1),)), 0, 0, k * m)
    square = movement.reshape(line, shape=(k, m))
    return square if k == n else movement.pad(square, low=(0, 0), high=(n - k, 0), value=0)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: DType = int64, device: DeviceLike = None) -> Tensor:
    """Row and column numbers (2 × count) of the elements on and below a diagonal of a row × col matrix.

    >>> import genesis
    >>> genesis.tril_indices(2, 3)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    import numpy as np
    rows, columns = _sizes("tril_indices", row, col)
    ends = np.clip(np.arange(rows) + offset + 1, 0, columns)
    return _runs("tril_indices", np.zeros_like(ends), ends, dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: DType = int64, device: DeviceLike = None) -> Tensor:
    """Row and column numbers (2 × count) of the elements on and above a diagonal of a row × col matrix."""
    import numpy as np
    rows, columns = _sizes("triu_indices", row, col)
    starts = np.clip(np.arange(rows) + offset, 0, columns)
    return _runs("triu_indices", starts, np.full_like(starts, columns), dtype, device)


def _sizes(name: str, row: int, col: int) -> tuple[int, int]:
    if row < 0 or col < 0:
        raise failure(name, f"row and col must be non-negative, got {row} and {col}")
    return row, col


def _runs(name: str, starts: Any, ends: Any, dtype: DType, device: DeviceLike) -> Tensor:
    """Row and column numbers (2 × count) of the columns from starts[i] to ends[i] of each row i."""
    import numpy as np
    dtype = as_dtype(dtype)
    if dtype.kind != "int":
        raise failure(name, f"indices need an integer dtype, not {dtype!r}")
    counts = ends - starts
    total = int(counts.sum())
    before = np.cumsum(counts) - counts  # elements of the rows before
    found = np.empty((2, total), dtype.numpy)
    found[0] = np.repeat(np.arange(len(counts), dtype=dtype.numpy), counts)
    np.subtract(np.arange(total), np.repeat(before - starts, counts), out=found[1], casting="unsafe")
    return from_host(found, device_from(device))


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Each 1-D tensor spread over the grid that they span together; with indexing="xy" the first two swapped.

    >>> import genesis
    >>> [x.tolist() for x in genesis.meshgrid(genesis.tensor([1, 2]), genesis.tensor([3, 4, 5]))]
    [[[1, 1, 1], [2, 2, 2]], [[3, 4, 5], [3, 4, 5]]]
    """
    found = list(tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)
    named = [(f"tensor {i}", x) for i, x in enumerate(found)]
    if not found:
        raise failure("meshgrid", "meshgrid expects a non-empty TensorList")
    if indexing not in ("ij", "xy"):
        raise failure("meshgrid", f'indexing must be one of "xy" or "ij", but received: {indexing}', named)
    unfit = any(x.spec.ndim > 1 for x in found)
    if unfit:
        raise failure("meshgrid", "expected scalar or 1D tensors", named)
    if len({x.spec.dtype for x in found}) > 1:
        raise failure("meshgrid", "expects all tensors to have the same dtype", named)
    if len({x.spec.device for x in found}) > 1:
        raise failure("meshgrid", "expects all tensors to have the same device", named)
    swapped = indexing == "xy" and len(found) > 1
    if swapped:
        found[0], found[1] = found[1], found[0]
    sizes = tuple(x.spec.numel for x in found)
    grids = [x.view(*(size if i == axis else 1 for i in range(len(sizes)))).expand(sizes)
             for axis, (x, size) in enumerate(zip(found, sizes, strict=True))]
    if swapped:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)
