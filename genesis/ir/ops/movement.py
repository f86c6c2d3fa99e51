"""Movement ops: the same elements at other places. Inside a kernel they are index maps."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from genesis.ir.errors import Misfit
from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.leaves import full_like
from genesis.ir.ops.samples import ANY, case, cases, np, reals
from genesis.ir.types import TensorType, tensor_type

if TYPE_CHECKING:

    from numpy import ndarray

    Region = tuple[builtins.slice, ...]


def _reshape_type(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    result = tensor_type(shape, x.dtype, x.device)
    if result.numel != x.numel:
        raise RuntimeError(f"shape {shape} is invalid for input of size {x.numel}")
    return result


reshape: Op = Op("reshape", "movement", _reshape_type, attrs=("shape",),
                 doc="The elements in row-major order, laid out in another shape.",
                 vjp=lambda g, x, y, shape: reshape(g, shape=x.type.shape),
                 samples=cases(case(reals().of(2, 6), shape=(3, 4)), case(reals().of(), shape=(1, 1)),
                               case(reals().of(0, 3), shape=(3, 0)), case(reals().of(8), shape=(2, 2, 2)),
                 kinds=ANY), reference=lambda x, shape: x.reshape(shape))


def _permute_type(x: TensorType, axes: tuple[int, ...]) -> TensorType:
    if sorted(axes) != list(range(x.ndim)):
        raise RuntimeError(f"axes {axes} are not a permutation of the {x.ndim} dimensions")
    return x.with_shape(tuple(x.shape[a] for a in axes))


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes this one.

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


permute: Op = Op("permute", "movement", _permute_type, attrs=("axes",),
                 doc="Dimension i of the result is dimension axes[i] of x.",
                 vjp=lambda g, x, y, axes: permute(g, axes=inverse(axes)),
                 samples=cases(case(reals().of(), axes=()), case(reals().of(2, 3), axes=(1, 0)),
                               case(reals().of(2, 3, 4), axes=(2, 0, 1)),
                 kinds=ANY), reference=lambda x, axes: x.transpose(axes))


def _expand_type(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    lead = len(shape) - x.ndim
    if lead < 0 or any(old not in (1, new) for old, new in zip(x.shape, shape[lead:], strict=True)):
        raise RuntimeError(f"shape {x.shape} does not broadcast to {shape}")
    return tensor_type(shape, x.dtype, x.device)


def _expand_vjp(g: Node, x: Node, y: Node, shape: tuple[int, ...]) -> Node:
    from genesis.ir.ops.reduction import sum
    lead = len(shape) - x.type.ndim
    axes = tuple(range(lead)) + tuple(
        i for i in range(lead, len(shape)) if x.type.shape[i - lead] == 1 and shape[i] != 1)
    return reshape(sum(g, axes=axes), shape=x.type.shape) if axes else g


expand = Op("expand", "movement", _expand_type, attrs=("shape",),
            doc="x repeated along dimensions of size 1 and new leading dimensions (numpy's broadcast_to).",
            vjp=_expand_vjp,
            samples=cases(case(reals().of(), shape=(2,)), case(reals().of(3, 1), shape=(2, 3, 4)),
                          case(reals().of(1), shape=(0,)), case(reals().of(2), shape=(2,)),
            kinds=ANY), reference=lambda x, shape: np.broadcast_to(x, shape))


def _slice_type(x: TensorType, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> TensorType:
    if not len(starts) == len(stops) == len(steps) == x.ndim:
        raise RuntimeError(f"slice needs one start, stop and step for each of {x.ndim} dimensions")
    shape = []
    for start, stop, step, size in zip(starts, stops, steps, x.shape, strict=True):
        if not 0 <= start <= stop <= size or step < 1:
            raise RuntimeError(f"slice {start}:{stop}:{step} does not fit size {size}")
        shape.append(-((start - stop) // step))
    return x.with_shape(tuple(shape))


def _slice_vjp(g: Node, x: Node, y: Node, starts: tuple[int, ...], stops: tuple[int, ...],
               steps: tuple[int, ...]) -> Node:
    from genesis.ir.ops.leaves import zeros_like
    if all(step == 1 for step in steps):
        high = tuple(size - stop for size, stop in zip(x.type.shape, stops, strict=True))
        return pad(g, low=starts, high=high, value=0)
    return assign(zeros_like(x), g, starts=starts, stops=stops, steps=steps)


def _region(starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> Region:
    """The region as numpy's index."""
    return tuple(map(builtins.slice, starts, stops, steps))


slice = Op("slice", "movement", _slice_type, attrs=("starts", "stops", "steps"), placed=True,
           doc="x[start:stop:step, ...] with 0 ≤ start ≤ stop ≤ size and step ≥ 1.", vjp=_slice_vjp,
           samples=cases(case(reals().of(5, 4), starts=(1, 0), stops=(4, 4), steps=(1, 1)),
           case(reals().of(7, 4), starts=(0, 1), stops=(7, 4), steps=(3, 2)),
           case(reals().of(3), starts=(2,), stops=(2,), steps=(1,)),
           case(reals().of(), starts=(), stops=(), steps=()), kinds=ANY),
           reference=lambda x, **region: x[_region(**region)])


def _pad_type(x: TensorType, low: tuple[int, ...], high: tuple[int, ...], value: float) -> TensorType:
    if not len(low) == len(high) == x.ndim or any(n < 0 for n in low + high):
        raise RuntimeError(f"pad needs one low and one high ≥ 0 for each of {x.ndim} dimensions")
    return x.with_shape(tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True)))


def _pad_vjp(g: Node, x: Node, y: Node, low: tuple[int, ...], high: tuple[int, ...], value: float) -> Node:
    stops = tuple(a + n for a, n in zip(low, x.type.shape, strict=True))
    return slice(g, starts=low, stops=stops, steps=(1,) * len(low))


pad = Op("pad", "movement", _pad_type, attrs=("low", "high", "value"), defaults={"value": 0}, vjp=_pad_vjp,
         doc="x with `low` elements before and `high` after it along each dimension, filled with the value.",
         samples=cases(case(reals().of(2, 3), low=(1, 0), high=(0, 2)),
                       case(reals().of(0), low=(2,), high=(1,), value=1),
         case(reals().of(), low=(), high=(), value=1), kinds=ANY),
         reference=lambda x, low, high, value: (
             np.pad(x, [*zip(low, high, strict=True)], constant_values=value) if low else x))

flip: Op = Op("flip", "movement", lambda x, axes: x, attrs=("axes",), doc="x read backwards along these axes.",
              vjp=lambda g, x, y, axes: flip(g, axes=axes),
              samples=cases(*(case(reals().of(2, 3), axes=a) for a in ((), (0,), (0, 1))),
                            case(reals().of(0, 2), axes=(0,)), kinds=ANY),
              reference=lambda x, axes: np.flip(x, axes))


def _concat_type(*types: TensorType, axis: int) -> TensorType:
    first = types[0]
    for t in types[1:]:
        if t.dtype is not first.dtype or t.device is not first.device:
            raise RuntimeError(f"concat joins one dtype on one device, not {first} and {t}")
        if t.shape[:axis] + t.shape[axis + 1:] != first.shape[:axis] + first.shape[axis + 1:]:
            raise Misfit(f"shapes {first.shape} and {t.shape} differ outside dimension {axis}",
                         "tensors that have one size in all other dimensions")
    return first.with_shape((*first.shape[:axis], sum(t.shape[axis] for t in types), *first.shape[axis + 1:]))


def take_range(x: Node, axis: int, start: int, stop: int) -> Node:
    """x[..., start:stop, ...] along one axis."""
    rank = x.type.ndim
    starts = tuple(start if i == axis else 0 for i in range(rank))
    stops = tuple(stop if i == axis else size for i, size in enumerate(x.type.shape))
    return slice(x, starts=starts, stops=stops, steps=(1,) * rank)


def _concat_vjp(g: Node, *operands_and_y: Node, axis: int) -> tuple[Node, ...]:
    parts, position = [], 0
    for x in operands_and_y[:-1]:
        size = x.type.shape[axis]
        parts.append(take_range(g, axis, position, position + size))
        position += size
    return tuple(parts)


concat = Op("concat", "movement", _concat_type, attrs=("axis",), doc="The operands one after another along an axis.",
            vjp=_concat_vjp,
            samples=cases(case(reals().of(2, 3), reals().of(4, 3), axis=0), case(reals().of(2, 3), axis=1),
            case(reals().of(2, 0), reals().of(2, 2), reals().of(2, 1), axis=1), kinds=ANY),
            reference=lambda *parts, axis: np.concatenate(parts, axis))


def _assign_type(base: TensorType, value: TensorType, starts: tuple[int, ...], stops: tuple[int, ...],
                 steps: tuple[int, ...]) -> TensorType:
    region = _slice_type(base, starts, stops, steps)
    if value.shape != region.shape or value.dtype is not base.dtype:
        raise RuntimeError(f"a region of {region} cannot take {value}")
    return base


def _assigned(base: ndarray, value: ndarray, region: Region) -> ndarray:
    result = base.copy()
    result[region] = value
    return result


assign: Op = Op("assign", "movement", _assign_type, attrs=("starts", "stops", "steps"), placed=True,
                doc="base with the region start:stop:step replaced by value (how a write to a slice is recorded).",
                vjp=lambda g, base, value, y, **region: (assign(g, full_like(value, 0), **region), slice(g, **region)),
                samples=cases(case(reals().of(5, 4), reals().of(3, 4), starts=(1, 0), stops=(4, 4), steps=(1, 1)),
                case(reals().of(7), reals().of(3), starts=(1,), stops=(7,), steps=(2,)),
                case(reals().of(3), reals().of(0), starts=(0,), stops=(0,), steps=(1,)),
                case(reals().of(), reals().of(), starts=(), stops=(), steps=()), kinds=ANY),
                reference=lambda base, value, **region: _assigned(base, value, _region(**region)))


__all__ = ["assign", "concat", "expand", "flip", "inverse", "literal", "pad", "permute", "reshape",
           "slice", "take_range"]
