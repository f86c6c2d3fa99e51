"""The row that a user's index means: a negative one counts from the end, and one outside is an error.

The CPU raises it (`row_number`). Kernels on a GPU cannot: they go on with the nearest row (`in_range`), and note the
first index that was outside; the next call that waits for the GPU raises IndexError with it. `capture` puts these
checks in front of the ops that take an index, each with the user's line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.ir.errors import NotAnIndex
from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.entry import pointwise
from genesis.ir.ops.pointwise import cast, eq, lt, maximum, minimum, where
from genesis.ir.ops.samples import case, cases, integers, np
from genesis.ir.types import TensorType, int32, int64, tensor_type

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.node import Attr


def _type(index: TensorType, **_: object) -> TensorType:
    if index.dtype.kind != "int":
        raise NotAnIndex(f"an index must have an integer dtype, not {index.dtype!r}")
    return index.with_dtype(int64)


def _in_64_bits(index: Node) -> Node:
    return index if index.type.dtype is int64 else cast(index, dtype=int64)


def _from_start(whole: Node, size: int) -> Node:
    """Negative indices counted from the end."""
    return where(lt(whole, literal(0)), whole + size, whole)


row_number = Op("row_number", "index", _type, attrs=("size", "dim"), differentiable=False,
                decompose=lambda index, size, dim: _from_start(_in_64_bits(index), size),
                doc="index, or index + size where it is negative: the position among the `size` along a dimension. "
                    "The CPU raises IndexError for one outside, naming it and `dim`, the dimension as the user counts.",
                samples=cases(case(integers(-5, 5).of(4), size=5, dim=0), case(integers(-2, 2).of(2, 3), size=2, dim=1),
                              case(integers(0, 1).of(), size=1, dim=0),
                              case(integers(-3, 3, int32).of(4), size=3, dim=0),
                              case(integers(0, 1).of(0, 2), size=0, dim=0), kinds=("float",)),
                reference=lambda index, size, dim: np.where(index < 0, index + size, index))


def _clamped(index: Node, size: int, dim: int, negative: bool, ignored: int | None, name: str, line: str) -> Node:
    whole = _in_64_bits(index)
    row = _from_start(whole, size) if negative else whole
    inside = minimum(maximum(row, literal(0)), literal(0) + max(size - 1, 0))
    return inside if ignored is None else where(eq(whole, literal(ignored)), whole, inside)


def _reference(index: ndarray, size: int, negative: bool, ignored: int | None, **_: object) -> ndarray:
    row = np.where(index < 0, index + size, index) if negative else index
    inside = np.clip(row, 0, max(size - 1, 0))
    return inside if ignored is None else np.where(index == ignored, index, inside)


_SAMPLE: dict[str, Attr] = {"dim": 0, "name": "take", "line": ""}

in_range = pointwise("in_range", _type, attrs=("size", "dim", "negative", "ignored", "name", "line"),
                     decompose=_clamped, differentiable=False,
                     doc="index, clamped to 0 ≤ index < size; with `negative` those below 0 count from the end, and "
                         "`ignored` is a number that passes. On CUDA one outside raises IndexError at the next "
                         "synchronisation, with `name` (the op that takes the index), `dim` and the user's `line`.",
                     samples=cases(case(integers(0, 5).of(4), size=5, negative=False, ignored=None, **_SAMPLE),
                                   case(integers(-5, 5).of(2, 3), size=5, negative=True, ignored=None, **_SAMPLE),
                                   case(integers(-3, 3, int32).of(7), size=3, negative=True, ignored=None, **_SAMPLE),
                                   case(integers(-1, 4).of(9), size=4, negative=False, ignored=-1, **_SAMPLE),
                                   case(integers(0, 1).of(), size=1, negative=False, ignored=None, **_SAMPLE),
                                   case(integers(0, 1).of(0, 2), size=0, negative=False, ignored=None, **_SAMPLE),
                                   kinds=("float",)),
                     reference=_reference,
                     weight=64,  # once for each index, not for each element that it is used for
                     number=None, rounds=False, autocast=None, in_place=False)


def _report_type(size: int, dim: int, name: str, line: str, device: object) -> TensorType:
    return tensor_type((2,), int64, device)  # type: ignore[arg-type]


report = Op("report", "leaf", _report_type, attrs=("size", "dim", "name", "line", "device"),
            doc="What a kernel is given to tell of an index outside: an argument of kernels, in no program.")


def report_of(node: Node) -> Node:
    """The report of an `in_range` node."""
    return report(size=node["size"], dim=node["dim"], name=node["name"], line=node["line"], device=node.type.device)
