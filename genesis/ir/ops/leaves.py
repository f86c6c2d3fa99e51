"""Leaves: where values come from when no op computes them."""

from __future__ import annotations

import math

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.samples import case, cases, np
from genesis.ir.types import Device, DType, TensorType, bool_, cpu, float32, int32, int64, tensor_type


def _typed(**attributes: object) -> TensorType:
    result = attributes["type"]
    assert isinstance(result, TensorType)
    return result


input = Op("input", "leaf", _typed, attrs=("index", "type"),
           doc="The plan's index-th memory, as it is before the run.")

scalar = Op("scalar", "leaf", _typed, attrs=("index", "type"),
            doc="The plan's index-th number: a Python scalar of the program, given anew at every run.")

const = Op("const", "leaf", _typed, attrs=("value", "type"),
           doc="A value fixed when the program was written, the same in every element.",
           samples=cases(case(value=1.5, type=tensor_type((2, 3), float32)), case(value=7, type=tensor_type((), int64)),
           case(value=True, type=tensor_type((0, 2), bool_))),
           reference=lambda value, type: np.full(type.shape, value))

data = Op("data", "leaf", _typed, attrs=("type",),
          doc="A tensor's memory, before capture turns it into an `input`. Equal to no other node.")

number = Op("number", "leaf", _typed, attrs=("value", "type"),
            doc="A Python scalar of the user's, before capture turns it into a `scalar`.")

iota = Op("iota", "leaf", lambda shape, axis, dtype, device: tensor_type(shape, dtype, device),
          attrs=("shape", "axis", "dtype", "device"), defaults={"device": cpu},
          doc="The element's index along one axis.",
          samples=cases(*(case(shape=(2, 3), axis=a, dtype=d) for a in (0, 1) for d in (int32, int64, float32)),
          case(shape=(4, 0), axis=0, dtype=int64)),
          reference=lambda shape, axis, dtype, device: np.indices(shape)[axis])


def full(shape: tuple[int, ...], value: bool | int | float, dtype: DType, device: Device = cpu) -> Node:
    """A constant of this shape and dtype.

    >>> full((2,), 1.0, __import__("genesis").float32)
    <const: f32[2]>
    """
    plain = float(value) if dtype.kind == "float" else int(value) if dtype.kind == "int" else bool(value)
    if plain != plain:
        plain = math.nan  # NaN differs from NaN, but this object is itself: one node
    elif plain == 0 and dtype.kind == "float" and math.copysign(1.0, plain) < 0:
        return -full(shape, 0.0, dtype, device)  # 0.0 == -0.0 would make the two constants one node
    return const(value=plain, type=tensor_type(shape, dtype, device))


def full_like(x: Node, value: float) -> Node:
    """A constant of x's type."""
    return full(x.type.shape, value, x.type.dtype, x.type.device)


def zeros_like(x: Node) -> Node:
    """Zeros of x's type."""
    return full(x.type.shape, 0, x.type.dtype, x.type.device)


__all__ = ["const", "data", "full", "input", "iota", "literal", "number", "scalar", "zeros_like"]
