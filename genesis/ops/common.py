"""Type promotion, broadcasting, and axes: what every op's front does before it records."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.autocast_policy import state as autocast
from genesis.frontend.default_dtypes import defaults
from genesis.frontend.engine_protocol import engine
from genesis.frontend.recording import TensorBase, emit, misplaced, operand, read, wrap
from genesis.frontend.state import state
from genesis.frontend.storage import Cell
from genesis.ir.errors import failure, is_foreign, not_a_tensor, not_an_operand
from genesis.ir.memos import counted
from genesis.ir.node import Node, Op, make
from genesis.ir.node import broadcast_shapes as _broadcast_shapes
from genesis.ir.numbers import as_number, number
from genesis.ir.ops import composite, movement, pointwise
from genesis.ir.ops.require_all import require_all
from genesis.ir.sym_int import RUNNING, as_size
from genesis.ir.types import CATEGORIES, Device, DType, TensorType, cpu, has_sym_int, promote_types, tensor_type

_KIND = {bool: "bool", int: "int", float: "float"}
_RANKS = {kind: CATEGORIES[name] for kind, name in _KIND.items()}

_TENSOR_FIRST = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "fmod", "copysign", "clamp", "clamp_min", "clamp_max"})
"""Names of ops that take a Python number only after a tensor, as in torch; the others need one tensor somewhere."""

Axis = int | Sequence[int] | None


def cast(node: Node, dtype: DType) -> Node:
    """The node in this dtype; itself when it has it."""
    return node if node.type.dtype is dtype and not node.type.weak else make(pointwise.cast, (node,), (dtype,))


def expand(node: Node, shape: tuple[int, ...]) -> Node:
    """The node broadcast to this shape; itself when it has it."""
    return node if node.type.weak or node.type.shape == shape else make(movement.expand, (node,), (shape,))


def result_type(*values: Any) -> DType:
    """The dtype in which torch computes with these tensors and numbers.

    Dimensioned tensors decide, unless a 0-d tensor or a number is of a higher category.

    >>> import genesis
    >>> result_type(genesis.ones(2, dtype=genesis.int32), 1.5), result_type(genesis.ones(2).half(), genesis.tensor(2.0))
    (genesis.float32, genesis.float16)
    """
    found: list[DType | None] = [None, None, None]  # dimensioned, 0-d, numbers
    for value in values:
        if isinstance(value, TensorBase):
            level, dtype = (0, value.spec.dtype) if value.spec.ndim else (1, value.spec.dtype)
        elif isinstance(value, Node):
            level, dtype = (0 if value.type.ndim else 1), value.type.dtype
        else:
            level, dtype = 2, defaults[_KIND.get(type(value)) or number_kind(value)]
        before = found[level]
        found[level] = dtype if before is None else promote_types(before, dtype)
    best: DType | None = None
    for dtype in found:  # type: ignore[assignment]
        if dtype is not None and (best is None or CATEGORIES[dtype.kind] > CATEGORIES[best.kind]):
            best = dtype
    assert best is not None
    return best


def plain_number(value: Any) -> Any:
    """A number that a tensor of one element holds, which is read; anything else as it is. torch's `alpha=` and
    `value=` take both."""
    return value.item() if isinstance(value, TensorBase) else value  # type: ignore[attr-defined]


def number_kind(value: Any) -> str:
    """"bool", "int" or "float": of a Python number, what derives from one, or a numpy scalar."""
    plain = as_number(value)
    if plain is None:
        raise not_an_operand(value)
    return _KIND[type(plain)]


def broadcast_shapes(*shapes: Sequence[int] | int) -> tuple[int, ...]:
    """The shape that all of these broadcast to; a number is a shape of one dimension.

    >>> import genesis
    >>> broadcast_shapes((4, 1), (3,))
    genesis.Size([4, 3])
    """
    from genesis.frontend.tensor import Size  # it is made of this module's functions
    return Size(_broadcast_shapes(*((shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes)))


def operands(op: str, values: Sequence[Any], floating: bool = False, dtype: DType | None = None,
             home: Device | None = None) -> tuple[Node, ...]:
    """Nodes for tensors and numbers of a pointwise op: promoted, on one device, broadcast.

    `floating` turns integers into the default floating-point dtype first, `dtype` fixes it; `home` fixes the device.
    """
    if dtype is None and home is None:
        found = alike(values, floating, values[0].__class__ not in _KIND or op not in _TENSOR_FIRST)
        return found if found is not None else unlike(op, values, floating)
    return _converted(op, values, floating, dtype, home)


_conversions: dict[tuple[Any, ...], tuple[tuple[DType | None, tuple[int, ...] | None], ...]] = {}
"""The conversions that operands of different types took: whether integers become floats, the default float, and each
operand's type or Python class → for each the dtype that it was cast to and the shape it was expanded to, or None."""

MOST_CONVERSIONS: Final = 1 << 12
"""Entries of `_conversions`; when there are more, all are dropped."""

counted("conversions of operands", lambda: len(_conversions), 500, MOST_CONVERSIONS + 1)


def unlike(op: str, values: Sequence[Any], floating: bool = False) -> tuple[Node, ...]:
    """`operands` of types that differ; what they take is looked up where operands of these types were seen before."""
    key = (floating, defaults["float"], *[x.spec if isinstance(x, TensorBase) else x.__class__ for x in values])
    steps = _conversions.get(key)
    if steps is None or (values[0].__class__ in _KIND and op in _TENSOR_FIRST):
        nodes = _converted(op, values, floating)
        if _describable(values):
            if len(_conversions) > MOST_CONVERSIONS:
                _conversions.clear()
            _conversions[key] = _steps_between(values, nodes)
        return nodes
    found = []
    for value, (dtype, shape) in zip(values, steps, strict=True):
        if not isinstance(value, TensorBase):
            found.append(number(value))
            continue
        node = read(value)
        if dtype is not None:
            node = make(pointwise.cast, (node,), (dtype,))
        found.append(node if shape is None else make(movement.expand, (node,), (shape,)))
    return tuple(found)


def _describable(values: Sequence[Any]) -> bool:
    """Whether each is a plain number or a tensor, of one device."""
    homes = {x.spec.device for x in values if isinstance(x, TensorBase)}
    return len(homes) == 1 and all(isinstance(x, TensorBase) or x.__class__ in _KIND for x in values) and not any(
        has_sym_int(x.spec) for x in values if isinstance(x, TensorBase))


def _steps_between(values: Sequence[Any],
                   nodes: Sequence[Node]) -> tuple[tuple[DType | None, tuple[int, ...] | None], ...]:
    """Each operand → the dtype and the shape that its node has, where these are not its own."""
    return tuple([(None, None) if value.__class__ in _KIND else (
        None if node.type.dtype is value.spec.dtype else node.type.dtype,
        None if node.type.shape == value.spec.shape else node.type.shape)
        for value, node in zip(values, nodes, strict=True)])


def _converted(op: str, values: Sequence[Any], floating: bool = False, dtype: DType | None = None,
               home: Device | None = None) -> tuple[Node, ...]:
    """See `operands`."""
    first = values[0]
    if dtype is None:
        if first.__class__ in _KIND and (op in _TENSOR_FIRST or not any(isinstance(x, TensorBase) for x in values)):
            raise failure(op, "the first operand must be a tensor",
                          [(f"operand {i}", x) for i, x in enumerate(values)],
                          hint="make one of the number with genesis.tensor", error=TypeError)
        dtype = result_type(*values)
        if floating and dtype.kind != "float":
            dtype = defaults["float"]
    tensors = [v for v in values if isinstance(v, TensorBase)]
    nodes = []
    home = home or device_of(op, tensors)
    for value in values:
        if isinstance(value, TensorBase):
            nodes.append(cast(on_device(value, home), dtype))
        elif tensors:
            nodes.append(operand(value))
        else:
            nodes.append(make(composite.fill, (operand(value),), (tensor_type((), dtype, home or cpu),)))
    shapes = {node.type.shape for node in nodes if not node.type.weak}
    if len(shapes) > 1:
        try:
            shape = _broadcast_shapes(*(n.type.shape for n in nodes if not n.type.weak))
        except RuntimeError as error:
            named = [(f"operand {i}", value) for i, value in enumerate(values)]
            raise failure(op, str(error), named, hint="reshape, unsqueeze or expand one of them") from None
        nodes = [expand(node, shape) for node in nodes]
    return tuple(nodes)


def alike(values: Sequence[Any], floating: bool = False, allowed: bool = True) -> tuple[Node, ...] | None:
    """The usual case, for speed: tensors of one type, and numbers of no higher category, need no conversion."""
    if (count := len(values)) < 3 and isinstance(a := values[0], TensorBase):  # most: 0.2 µs less than what is below
        spec = a.spec
        kind = spec.dtype.kind
        if count == 1:
            return (read(a),) if not floating or kind == "float" else None
        if isinstance(b := values[1], TensorBase):
            return (read(a), read(b)) if b.spec is spec and (not floating or kind == "float") else None
        rank = _RANKS.get(b.__class__)
        if rank is None or (kind != "float" and (floating or rank > CATEGORIES[kind])):
            return None
        return read(a), number(b)
    shared = None
    highest = 0
    for value in values:
        rank = _RANKS.get(value.__class__)
        if rank is None:
            if not isinstance(value, TensorBase):
                return None
            if shared is None:
                shared = value.spec
            elif value.spec is not shared:
                return None
        elif rank > highest:
            highest = rank
    if shared is None or not allowed:
        return None
    kind = shared.dtype.kind
    if kind != "float" and (floating or highest > CATEGORIES[kind]):
        return None
    return tuple([read(v) if isinstance(v, TensorBase) else number(v) for v in values])


def device_of(op: str, tensors: Sequence[TensorBase]) -> Any:
    """The device of all these tensors; 0-d CPU tensors go with any. Two devices are an error."""
    home = tensors[0].spec.device if tensors else None
    for tensor in tensors:
        device = tensor.spec.device
        if device is home:
            continue
        if home.type == "cpu" and all(t.spec.ndim == 0 for t in tensors if t.spec.device is home):  # type: ignore[union-attr]
            home = device
        elif not (device.type == "cpu" and tensor.spec.ndim == 0):
            raise failure(op, f"expected all tensors on one device, but found {home} and {device}",
                          [(f"operand {i}", t) for i, t in enumerate(tensors)], hint="move one with .to(device)")
    return home


def on_device(tensor: TensorBase, device: Any) -> Node:
    """A tensor as an operand on this device; a 0-d CPU tensor's value is moved there."""
    return read(tensor if tensor.spec.device is device else tensor.to(device))  # type: ignore[attr-defined]


def both_tensors(op: str, input: Any, other: Any) -> tuple[Any, Any]:
    """The two operands of an op that takes no Python numbers, or TypeError."""
    if isinstance(input, TensorBase) and isinstance(other, TensorBase):
        return input, other
    for x in (input, other):
        if is_foreign(x):
            raise not_a_tensor(x)
    raise failure(op, "expected two tensors", [("input", input), ("other", other)],
                  hint="make one of the number with genesis.tensor", error=TypeError)


def to_dtype(input: Any, dtype: DType) -> Any:
    """The tensor in another dtype; itself when it has it."""
    return input if input.spec.dtype is dtype else wrap(emit(pointwise.cast, (read(input),), (dtype,)))


def promote(*tensors: Any) -> tuple[Any, ...]:
    """The tensors cast to their common dtype."""
    dtype = result_type(*tensors)
    return tuple(t if t.spec.dtype is dtype else wrap(cast(read(t), dtype)) for t in tensors)


def broadcast(op: str, *tensors: Any) -> tuple[Any, ...]:
    """The tensors expanded to their common shape, for the public function `op`."""
    try:
        shape = broadcast_shapes(*(t.spec.shape for t in tensors))
    except AttributeError as error:
        raise misplaced(error, *tensors) from None
    except RuntimeError as error:
        raise failure(op, str(error), [(f"operand {i}", x) for i, x in enumerate(tensors)],
                      hint="reshape, unsqueeze or expand one of them") from None
    return tuple(t if t.spec.shape == shape else t.expand(shape) for t in tensors)


def pointwise_op(op: Any, *values: Any, floating: bool = False) -> Any:
    """Record a pointwise op on tensors and numbers, by torch's rules."""
    if autocast.policy[0]:
        values = cast_for(op, *values)
    if values[0].__class__ in _KIND:
        return wrap(emit(op, operands(op.name, values, floating), (), 3))
    nodes = alike(values, floating)  # only functions of Genesis call this
    return wrap(emit(op, nodes if nodes is not None else unlike(op.name, values, floating), (), 3))


def required(name: str, x: Any, condition: Any, problem: str) -> Any:
    """x, for a function that works only where a tensor of conditions is true everywhere.

    What is computed from the result raises RuntimeError otherwise, on the CPU: at once where the user's program would
    catch it, and elsewhere nothing is read now.
    """
    return or_raised(require_all, wrap(emit(require_all, (read(x), read(condition)), (name, problem))))


def or_raised(op: Op, found: Any) -> Any:
    """The results of an op: computed now where the user's program would catch what their values raise; but not under
    `vmap`, which knows no values yet."""
    if op.raises and not state.rewriting.calls:
        from genesis.frontend.caught import is_caught  # most programs never ask
        if is_caught(*op.raises):
            engine.materialize([found] if isinstance(found, TensorBase) else found)
    return found


def axis_in(op: str, dim: int, ndim: int, extra: int = 0) -> int:
    """A dimension counted from the start, or IndexError as torch raises it.

    >>> axis_in("sum", -1, 3)
    2
    """
    if dim.__class__ is int and 0 <= dim < ndim:  # quickly, the usual one
        return dim
    limit = max(ndim, 1) + extra
    try:
        index = operator.index(dim)
    except TypeError:
        raise not_a_tensor(dim) if is_foreign(dim) else failure(
            op, f"a dimension must be an int, not {dim!r}", error=TypeError) from None
    if not -limit <= index < limit:
        raise failure(op, "Dimension out of range (expected to be in range of "
                      f"[{-limit}, {limit - 1}], but got {index})", error=IndexError)
    return index + limit if index < 0 else index


def axes_in(op: str, dim: Axis, ndim: int) -> tuple[int, ...]:
    """The dimensions to reduce, sorted: all for None or an empty list."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(ndim))
    if isinstance(dim, (tuple, list)):
        found = [axis_in(op, d, ndim) for d in dim]
        if len(set(found)) != len(found):
            raise failure(op, f"dim {tuple(dim)} names a dimension twice")
        return tuple(sorted(found)) if ndim else ()
    axis = axis_in(op, dim, ndim)  # type: ignore[arg-type]
    return (axis,) if ndim else ()


def shape_of(args: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as ints or as one sequence: f(2, 3) or f((2, 3)). A tensor without dimensions is an int.

    >>> shape_of(((2, 3),)), shape_of((2, 3))
    ((2, 3), (2, 3))
    """
    if len(args) == 1 and not isinstance(args[0], int) and hasattr(args[0], "__iter__"):
        args = args if getattr(args[0], "ndim", None) == 0 else tuple(args[0])
    return tuple(map(as_size if RUNNING else operator.index, args))


__all__ = ["Cell", "TensorType", "axes_in", "axis_in", "broadcast", "cast", "expand", "operands", "pointwise_op",
           "promote", "result_type", "shape_of", "tensor_type"]
