"""Leaves: where values come from when no op computes them."""

from __future__ import annotations

import math

from genesis.ir.node import Node, Op, literal
from genesis.ir.types import Device, DType, TensorType, cpu, tensor_type


def _typed(**attributes: object) -> TensorType:
    result = attributes["type"]
    assert isinstance(result, TensorType)
    return result


input = Op("input", "leaf", _typed, attrs=("index", "type"),
           doc="The plan's index-th memory, as it is before the run.")

scalar = Op("scalar", "leaf", _typed, attrs=("index", "type"),
            doc="The plan's index-th number: a Python scalar of the program, given anew at every run.")

const = Op("const", "leaf", _typed, attrs=("value", "type"),
           doc="A value fixed when the program was written, the same in every element.")

data = Op("data", "leaf", _typed, attrs=("type",),
          doc="A tensor's memory, before capture turns it into an `input`. Equal to no other node.")

number = Op("number", "leaf", _typed, attrs=("value", "type"),
            doc="A Python scalar of the user's, before capture turns it into a `scalar`.")

iota = Op("iota", "leaf", lambda shape, axis, dtype, device: tensor_type(shape, dtype, device),
          attrs=("shape", "axis", "dtype", "device"), defaults={"device": cpu},
          doc="The element's index along one axis.")


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


def zeros_like(x: Node) -> Node:
    """Zeros of x's type."""
    return full(x.type.shape, 0, x.type.dtype, x.type.device)


__all__ = ["const", "data", "full", "input", "iota", "literal", "number", "scalar", "zeros_like"]
