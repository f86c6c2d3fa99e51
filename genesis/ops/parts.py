"""Parts of tensors along a dimension: views of them, and copies of several as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend import view_geometry
from genesis.frontend.recording import TensorBase, emit, read, wrap
from genesis.frontend.views import View
from genesis.ir.errors import failure, not_an_operand
from genesis.ir.node import make
from genesis.ir.ops import movement as m
from genesis.ir.sym_int import as_size
from genesis.ir.types import TensorType
from genesis.ops.common import axis_in, cast, result_type
from genesis.ops.formats import contiguous_format
from genesis.ops.out import into
from genesis.ops.shape import clone, shown

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["cat", "chunk", "concat", "concatenate", "narrow", "select", "split", "split_with_sizes", "stack", "unbind",
           "unsafe_chunk", "unsafe_split"]


def sliced(input: Any, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """A view of x[start:stop:step, ...], all in range."""
    return shown(input, view_geometry.sliced(input.spec, input.part, starts, stops, steps))


def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """A view of `length` elements along `dim` from `start` (a number, or a tensor of one integer) on."""
    shape = input.spec.shape
    if not shape:
        raise failure("narrow", "narrow() cannot be applied to a 0-dim tensor", [("input", input)])
    if isinstance(start, TensorBase) and (start.spec.ndim or start.spec.dtype.kind != "int"):
        raise failure("narrow", "start must be an 0-dim integral Tensor.", [("start", start)])
    start, length = as_size(start), as_size(length)
    axis = axis_in("narrow", dim, len(shape))
    if not -shape[axis] <= start <= shape[axis]:
        raise failure("narrow",
                      f"start out of range (expected to be in range of [{-shape[axis]}, {shape[axis]}], but got "
                      f"{start})", [("input", input)], error=IndexError)
    begin = start + shape[axis] if start < 0 else start
    if not 0 <= begin <= begin + length <= shape[axis]:
        raise failure("narrow", f"start ({start}) + length ({length}) exceeds dimension size ({shape[axis]})",
                      [("input", input)])
    return shown(input, view_geometry.cut(input.spec, input.part, axis, begin, begin + length, 1))


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """A view of one position along `dim`, without that dimension."""
    if dim.__class__ is not int:
        dim = axis_in("select", dim, input.spec.ndim)
    return shown(input, _selected(input.spec, input.part, dim, index if type(index) is int else _whole(index)))


def _whole(index: Any) -> int:
    """A number, or a tensor of one integer, as Python's int."""
    return as_size(index)


@view_geometry.remembered
def _selected(kind: TensorType, part: View | None, dim: int, index: int) -> view_geometry.Shown:
    """`select` of a dimension and a position that may count from the end."""
    shape = kind.shape
    axis = axis_in("select", dim, len(shape))
    if not shape or not -shape[axis] <= index < shape[axis]:
        raise failure("select", f"index {index} is out of range for dimension {dim}", [("input", kind)],
                      error=IndexError)
    return view_geometry.selected(kind, part, axis, index % shape[axis])


def split(input: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts along `dim`: of one size (the last may be smaller), or of these sizes."""
    axis = axis_in("split", dim, input.spec.ndim)
    size = input.spec.shape[axis]
    if isinstance(split_size_or_sections, int):
        step = as_size(split_size_or_sections)
        if step < 1 and size:
            raise failure("split", f"the size of a part must be positive, not {step}", [("input", input)])
        sections = [min(step, size - at) for at in range(0, size, step)] if size else [0]
    else:
        sections = list(map(as_size, split_size_or_sections))
        if sum(sections) != size:
            raise failure("split", f"sizes {sections} do not sum to {size}, the size of dimension {dim}",
                          [("input", input)])
    parts, at = [], 0
    for length in sections:
        parts.append(narrow(input, axis, at, length))
        at += length
    return tuple(parts)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` consecutive parts of one size along `dim`."""
    if chunks < 1:
        raise failure("chunk", f"chunks must be positive, not {chunks}", [("input", input)])
    size = input.spec.shape[axis_in("chunk", dim, input.spec.ndim)]
    return split(input, max(-(-size // chunks), 1), dim)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split` into parts of these sizes."""
    return split(input, list(split_sizes), dim)


def unsafe_split(input: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split`: in torch the parts must then not be written to."""
    return split(input, split_size, dim)


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk`: in torch the parts must then not be written to."""
    return chunk(input, chunks, dim)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of each position along `dim`."""
    axis = axis_in("unbind", dim, input.spec.ndim)
    return tuple([select(input, axis, i) for i in range(input.spec.shape[axis])])


def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The tensors one after another along `dim`, in their common dtype."""
    if isinstance(tensors, TensorBase):
        raise failure("cat", "argument 'tensors' must be a sequence of tensors, not one tensor", [("tensors", tensors)],
                      error=TypeError, hint="cat((x, y))")
    if not tensors:
        raise failure("cat", "expected a non-empty list of tensors", error=ValueError)
    for x in tensors:
        if not isinstance(x, TensorBase):
            raise TypeError(f"cat: expected Tensor as element of argument 0: {not_an_operand(x)}")
        if not x.spec.ndim:
            raise failure("cat", "zero-dimensional tensor cannot be concatenated", [("tensor", x)], hint="use stack")
    ndim = max(x.spec.ndim for x in tensors)
    parts = [x for x in tensors if x.spec.ndim == ndim or x.spec.shape != (0,)]  # torch takes (0,) beside any shape
    dtype = result_type(*tensors)
    axis = axis_in("cat", dim, parts[0].spec.ndim)
    return into(out, wrap(emit(m.concat, tuple(cast(read(x), dtype) for x in parts), (axis,), called="cat")))


concat = concatenate = cat


def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The tensors, of one shape, along a new dimension `dim`."""
    if not tensors:
        raise failure("stack", "expected a non-empty list of tensors")
    kind, alike = tensors[0].spec, True
    first = kind.shape
    for x in tensors:
        if x.spec is not kind:
            alike, other = False, x.spec.shape
            if other != first:
                raise failure("stack", f"each tensor must have one shape, but found {list(first)} and {list(other)}",
                              [(f"tensor {i}", x) for i, x in enumerate(tensors)],
                              hint="cat, along a dimension that exists")
    at = axis_in("stack", dim, len(first) + 1)
    dtype, shape = kind.dtype if alike else result_type(*tensors), (*first[:at], 1, *first[at:])
    parts = tuple([make(m.reshape, (cast(read(x), dtype),), (shape,)) for x in tensors])
    return into(out, wrap(emit(m.concat, parts, (at,))))


class PartMethods(TensorBase):
    """The methods of a tensor that show parts of it."""

    __slots__ = ()

    narrow = narrow
    select = select
    split = split
    split_with_sizes = split_with_sizes
    unsafe_split = unsafe_split
    unsafe_split_with_sizes = split_with_sizes
    chunk = chunk
    unsafe_chunk = unsafe_chunk
    unbind = unbind

    def narrow_copy(self, dim: int, start: int | Tensor, length: int) -> Tensor:
        """`narrow`, with memory of its own."""
        return clone(narrow(self, dim, start, length), memory_format=contiguous_format)  # type: ignore[arg-type]
