"""Shape ops. Those that torch makes views are views: they share the storage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend import view_geometry
from genesis.frontend.detached import note_detached
from genesis.frontend.grad_mode import mode
from genesis.frontend.public_functions import bound
from genesis.frontend.recording import (
    TensorBase,
    emit,
    leaf_numbers,
    owned,
    read,
    require_tensors,
    view_of,
    wrap,
    wrap_laid_out,
)
from genesis.frontend.views import View
from genesis.ir.errors import failure
from genesis.ir.node import make
from genesis.ir.ops import movement as m
from genesis.ir.sym_int import RUNNING
from genesis.ir.types import DType, TensorType, as_dtype, not_a_dtype
from genesis.ops.common import Axis, axes_in, axis_in, broadcast_shapes, shape_of
from genesis.ops.formats import ORDERS, MemoryFormat, contiguous_format, strides_like

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["broadcast_tensors", "broadcast_to", "clone", "flatten", "flip", "movedim", "permute", "repeat", "reshape",
           "squeeze", "t", "tile", "transpose", "unflatten", "unsqueeze", "view_as"]


def strides_of(tensor: TensorBase) -> tuple[int, ...]:
    """Strides in elements, as torch reports them."""
    return view_geometry.strides_in(tensor.spec, tensor.part)


def is_contiguous(input: TensorBase, *, memory_format: MemoryFormat | None = None) -> bool:
    """True if the elements lie in row-major order (or in the format's) without gaps."""
    order = ORDERS.get(memory_format, ()) if memory_format is not None else ()
    if order and len(order) != input.spec.ndim:
        return False
    return view_geometry.is_row_major(input.spec, input.part, order)


def untracked(view: Any, input: Any) -> None:
    """Note on a view that was taken under `no_grad`: it requires grad if the input does, and no gradient goes on."""
    if input.requires_grad:
        view.leaf = -next(leaf_numbers)
        if view.part is not None:
            view.part = view.part.of_leaf()


def shown(input: Any, found: view_geometry.Shown) -> Any:
    """A view of the input: a tensor over its storage that shows what a rule of `frontend/view_geometry.py` found."""
    kind, part = found
    result: Any = view_of(input, kind, part)
    if result.detached is not None and input.storage.needs_grad:
        note_detached(result)
    if not mode.flags[0]:
        untracked(result, input)
    return result


def apart(result: Any, input: Any) -> Any:
    """The result of an op that always copies: a copy where what it was made with shows the input's memory."""
    return result.clone() if result.storage is input.storage else owned(result)


def padded(input: Any, axis: int, before: int, after: int) -> Any:
    """A copy with zeros before and after along one axis."""
    low, high = ([n if i == axis else 0 for i in range(input.spec.ndim)] for n in (before, after))
    return wrap(emit(m.pad, (read(input),), (tuple(low), tuple(high), 0)))


def view(input: Tensor, *shape: Any, size: Any = None, dtype: DType | None = None) -> Tensor:
    """The same memory in another shape; RuntimeError where only a copy can be.

    With a dtype instead, the same bytes as elements of it; see `viewed_as`.

    >>> import genesis
    >>> genesis.arange(6).view(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    if dtype is not None or (len(shape) == 1 and shape[0].__class__ in (DType, type)):
        from genesis.ops.bitcast import viewed_as  # numpy's memory: only who asks for it needs that room
        return viewed_as(input, as_dtype(shape[0] if dtype is None else dtype))
    try:
        sizes = shape if size is None else (size,)
        found = view_geometry.viewed(input.spec, input.part, *(
            sizes if len(sizes) > 1 and not RUNNING else shape_of(sizes)))
    except TypeError:
        raise _not_a_shape(input, shape) from None
    if found is None:
        raise failure("view", "view size is not compatible with input tensor's size and stride", [("input", input)],
                      hint="use reshape(), which copies")
    return shown(input, found)


def _not_a_shape(input: Tensor, given: tuple[Any, ...]) -> Exception:
    """The error for sizes that are no integers: a dtype, perhaps."""
    if len(given) == 1 and isinstance(given[0], DType):
        return failure("view", f"the tensor's memory is of {input.spec.dtype!r} and is not shown as {given[0]!r}",
                       [("input", input)], hint="to(dtype) converts the values", error=TypeError)
    if len(given) == 1 and type(given[0]).__name__ == "dtype":  # torch's or numpy's
        return not_a_dtype(given[0])
    return failure("view", f"sizes must be integers, got {', '.join(map(repr, given))}", [("input", input)],
                   error=TypeError)


def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The elements in another shape: a view where possible, else a copy."""
    new, found = view_geometry.filled_and_reshaped(
        "reshape", input.spec, input.part, shape_of(sizes if shape is None else (shape,)))
    return wrap(emit(m.reshape, (read(input),), (new,))) if found is None else shown(input, found)


def shaped(input: Any, new: tuple[int, ...]) -> Any:
    """`reshape` to a shape of as many elements, all sizes given."""
    found = view_geometry.reshaped(input.spec, input.part, new)
    return wrap(emit(m.reshape, (read(input),), (new,))) if found is None else shown(input, found)


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`view` in other's shape."""
    require_tensors(other)
    return view(input, other.spec.shape)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`reshape` in other's shape."""
    require_tensors(other)
    return reshape(input, other.spec.shape)


def permute(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """A view whose dimension i is dimension dims[i]."""
    return shown(input, _permuted(input.spec, input.part, shape_of(axes if dims is None else (dims,))))


@view_geometry.remembered
def _permuted(kind: TensorType, part: View | None, given: tuple[int, ...]) -> view_geometry.Shown:
    """`permute` by dimensions that may count from the end."""
    ndim = kind.ndim
    axes = tuple([axis_in("permute", d, ndim) for d in given])
    if sorted(axes) != list(range(ndim)):
        raise failure("permute", f"dims {given} are not a permutation of {ndim} dimensions", [("input", kind)])
    return view_geometry.permuted(kind, part, axes)


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view with two dimensions swapped."""
    if dim0.__class__ is not int or dim1.__class__ is not int:  # 1.0 and True would be found for 1
        dim0, dim1 = axis_in("transpose", dim0, input.spec.ndim), axis_in("transpose", dim1, input.spec.ndim)
    return shown(input, _transposed(input.spec, input.part, dim0, dim1))


@view_geometry.remembered
def _transposed(kind: TensorType, part: View | None, dim0: int, dim1: int) -> view_geometry.Shown:
    """`transpose` by dimensions that may count from the end."""
    ndim = kind.ndim
    return view_geometry.swapped(kind, part, axis_in("transpose", dim0, ndim), axis_in("transpose", dim1, ndim))


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix (vectors and numbers as they are)."""
    ndim = input.spec.ndim
    if ndim > 2:
        raise failure("t", "t() expects a tensor with <= 2 dimensions", [("input", input)], hint="use transpose or mT")
    if input.spec.ndim == 2:
        return shown(input, view_geometry.swapped(input.spec, input.part, 0, 1))
    return shown(input, view_geometry.same(input.spec, input.part))


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """A view with dimensions moved to new places, the others in order."""
    ndim = input.spec.ndim
    if source.__class__ is int and destination.__class__ is int:
        order = view_geometry.moved(ndim, (axis_in("movedim", source, ndim),), (axis_in("movedim", destination, ndim),))
        return shown(input, view_geometry.permuted(input.spec, input.part, order))
    sources = [axis_in("movedim", d, ndim) for d in ([source] if isinstance(source, int) else source)]
    places = [axis_in("movedim", d, ndim) for d in ([destination] if isinstance(destination, int) else destination)]
    if len(sources) != len(places):
        raise failure("movedim", f"Invalid source or destination dims: source ({source} dims) should contain the same "
                      f"number of dims as destination ({destination} dims)", [("input", input)])
    for name, listed, given in (("source", sources, source), ("destination", places, destination)):
        if len(set(listed)) < len(listed):
            raise failure("movedim", f"repeated dim in `{name}` ({list(given)})", [("input", input)])
    order = view_geometry.moved(ndim, tuple(sources), tuple(places))
    return shown(input, view_geometry.permuted(input.spec, input.part, order))


def expand(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """A view repeated along dimensions of size 1 and new leading ones; -1 keeps a size."""
    given = shape_of(sizes if size is None else (size,))
    found = view_geometry.expanded(input.spec, input.part, given)
    if found is None:
        raise failure("expand", f"the expanded size {list(given)} does not fit shape {list(input.spec.shape)}",
                      [("input", input)], hint="only dimensions of size 1 can be expanded")
    return shown(input, found)


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`expand` to other's shape."""
    require_tensors(other)
    return expand(input, other.spec.shape)


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """`expand` by numpy's name."""
    return expand(input, size)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors expanded to their common shape."""
    shape = broadcast_shapes(*(x.spec.shape for x in tensors))
    return tuple(x if x.spec.shape == shape else expand(x, shape) for x in tensors)


def squeeze(input: Tensor, dim: Axis = None) -> Tensor:
    """A view without dimensions of size 1 (only those in `dim`, if given)."""
    if dim.__class__ is int or dim is None:
        return shown(input, _without_ones(input.spec, input.part, dim))
    ndim = input.spec.ndim
    chosen = frozenset(axes_in("squeeze", dim, ndim)) if not isinstance(dim, (tuple, list)) or dim else frozenset()
    return shown(input, view_geometry.without(input.spec, input.part, chosen))


@view_geometry.remembered
def _without_ones(kind: TensorType, part: View | None, dim: int | None) -> view_geometry.Shown:
    """`squeeze` of one dimension, which may count from the end, or of all."""
    return view_geometry.without(kind, part, frozenset(axes_in("squeeze", dim, kind.ndim)))


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a dimension of size 1 put in at `dim`."""
    if dim.__class__ is not int:
        dim = axis_in("unsqueeze", dim, input.spec.ndim + 1)
    return shown(input, _with_one(input.spec, input.part, dim))


@view_geometry.remembered
def _with_one(kind: TensorType, part: View | None, dim: int) -> view_geometry.Shown:
    """`unsqueeze` at a dimension that may count from the end."""
    return view_geometry.with_one(kind, part, axis_in("unsqueeze", dim, kind.ndim + 1))


def matrix_transposed(name: str, x: Any) -> Tensor:
    """The tensor with its matrices transposed: what `mT`, `mH` and `adjoint` give."""
    ndim = x.spec.ndim
    if ndim == 1:
        raise failure(name, f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor.",
                      [("tensor", x)], hint="x.unsqueeze(0) is a row, x.unsqueeze(1) a column")
    return transpose(x, -2, -1) if ndim else permute(x, ())


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim to end_dim as one."""
    if start_dim.__class__ is not int or end_dim.__class__ is not int:
        ndim = input.spec.ndim
        start_dim, end_dim = axis_in("flatten", start_dim, ndim), axis_in("flatten", end_dim, ndim)
    new = _flattened(input.spec, start_dim, end_dim)
    return input if new is None else shaped(input, new)


@view_geometry.remembered
def _flattened(kind: TensorType, start_dim: int, end_dim: int) -> tuple[int, ...] | None:
    """The shape that `flatten` gives, None where it gives the tensor itself."""
    shape = kind.shape
    if not shape:
        return (1,)
    first, last = axis_in("flatten", start_dim, len(shape)), axis_in("flatten", end_dim, len(shape))
    if first > last:
        raise failure("flatten", "start_dim cannot come after end_dim", [("input", kind)])
    return None if first == last else (*shape[:first], math.prod(shape[first:last + 1]), *shape[last + 1:])


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension `dim` split into these sizes (one may be -1)."""
    shape = input.spec.shape
    at = axis_in("unflatten", dim, len(shape))
    known = 1
    for size in sizes:
        known *= size if size != -1 else 1
    filled = tuple(shape[at] // max(known, 1) if size == -1 else size for size in sizes)
    return view(input, (*shape[:at], *filled, *shape[at + 1:]))


def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """A copy read backwards along these dimensions: flip(x, 0, 1), flip(x, (0, 1)) or flip(x, dims=(0, 1))."""
    given = (dims,) if dims is not None else axes
    axes = tuple(sorted([axis_in("flip", d, input.spec.ndim) for d in shape_of(given)]))
    if len(set(axes)) < len(axes):
        raise failure("flip", f"a dim appears multiple times in {axes}", [("input", input)])
    return wrap(emit(m.flip, (read(input),), (axes if input.spec.ndim else (),)))


def repeat(input: Tensor, *times: Any, repeats: Any = None) -> Tensor:
    """A copy repeated so often along each dimension (new leading ones first)."""
    times = shape_of(times if repeats is None else (repeats,))
    if len(times) < input.spec.ndim:
        raise failure("repeat", "the number of repeats must be at least the number of dimensions", [("input", input)])
    single, spread, whole = view_geometry.repeated(input.spec.shape, times)
    node = make(m.expand, (make(m.reshape, (read(input),), (single,)),), (spread,))
    return wrap(emit(m.reshape, (node,), (whole,)))


def tile(input: Tensor, *times: Any, dims: Any = None) -> Tensor:
    """`repeat` with missing leading repeats taken as 1."""
    times = shape_of(times if dims is None else (dims,))
    return repeat(input, (1,) * (input.spec.ndim - len(times)) + times)


def contiguous(input: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """Itself when its elements lie in the format's order, row-major if none is given; else a copy that does."""
    if (memory_format is None and input.part is None) or is_contiguous(input, memory_format=memory_format):
        return input
    return clone(input, memory_format=memory_format or contiguous_format)


def clone(input: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """A copy with memory of its own, laid out as the input is or in the format; gradients flow through."""
    part = input.part
    if memory_format is None and (part is None or not part.turned):
        return wrap(read(input))
    return wrap_laid_out(read(input), strides_like("clone", input, memory_format))


view_function, _view = view, bound(view, "genesis", "Tensor.view")  # type: ignore[arg-type]
clone_function, _clone = clone, bound(clone, "genesis", "Tensor.clone")  # type: ignore[arg-type]


class ShapeMethods(TensorBase):
    """The shape methods of a tensor."""

    __slots__ = ()

    def view(self: Any, *shape: Any, **options: Any) -> Tensor:
        """The same memory in another shape; see `view` of this module, which has the rest and the errors."""
        if len(shape) > 1 and not options:  # 0.7 µs (benchmarks/recording.py)
            try:
                found = view_geometry.viewed(self.spec, self.part, *(shape if not RUNNING else shape_of(shape)))
            except TypeError:
                raise _not_a_shape(self, shape) from None
            if found is not None:
                return shown(self, found)
        return _view(self, *shape, **options)

    view.__wrapped__ = view_function  # type: ignore[attr-defined]  # whose signature it has
    reshape = reshape
    view_as = view_as
    reshape_as = reshape_as
    permute = permute
    transpose = transpose
    t = t
    movedim = movedim
    expand = expand
    expand_as = expand_as
    broadcast_to = broadcast_to
    squeeze = squeeze
    unsqueeze = unsqueeze
    flatten = flatten
    unflatten = unflatten
    flip = flip
    repeat = repeat
    tile = tile
    contiguous = contiguous

    def clone(self: Any, **options: Any) -> Tensor:
        """A copy with memory of its own, laid out as the input is or in the format; gradients flow through."""
        part = self.part
        if not options and (part is None or not part.turned):
            return wrap(read(self))
        return _clone(self, **options)

    clone.__wrapped__ = clone_function  # type: ignore[attr-defined]  # whose signature it has
    is_contiguous = is_contiguous

    @property
    def T(self: Any) -> Tensor:
        """A view with all dimensions reversed."""
        return permute(self, tuple(reversed(range(self.spec.ndim))))

    @property
    def mT(self: Any) -> Tensor:
        """A view with the last two dimensions swapped; of one element, with none."""
        return matrix_transposed("mT", self)
