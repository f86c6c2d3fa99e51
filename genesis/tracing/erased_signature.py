"""The signature of a call apart from sizes and numbers: calls that differ in nothing else may share a replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from genesis.ir.ops import movement
from genesis.ir.types import TensorType
from genesis.tracing.signature import AROUND


class Erased(NamedTuple):
    """A signature in three parts.

    Attributes:
        key: what has to be equal.
        sizes: of the tensors' dimensions, one tensor after the other.
        numbers: the ints and floats among the arguments.
        strides: of the tensors that are laid out in another order than row-major.
    """

    key: tuple[Any, ...]
    sizes: tuple[int, ...]
    numbers: tuple[float, ...]
    strides: tuple[tuple[int, ...], ...]


class Places(NamedTuple):
    """Which of a call's tensors are copies of views (`view_copies.py`), and how the views lay. A captured function did
    not ask for that."""

    tensors: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def erased(key: Iterable[Any], around: int = len(AROUND)) -> Erased:
    """The parts of a signature's key (`tracing/signature.py`), of which the first are what is around the call."""
    left: list[Any] = []
    sizes: list[int] = []
    numbers: list[float] = []
    strides: list[tuple[int, ...]] = []
    for at, part in enumerate(key):
        kind = part.__class__
        if kind is TensorType:
            sizes += part.shape
            left.append(_without_sizes(part))
        elif kind is not tuple or at < around:
            left.append(part.tensors if kind is Places else part)
        elif len(part) == 2 and part[0] in (int, float):
            left.append(part[:1])
            numbers.append(float(part[1]) if part[0] is float else part[1])
        elif len(part) == 3 and part[0].__class__ is TensorType and is_permuted(part[2]):
            sizes += part[0].shape
            strides.append(part[1])
            left.append((_without_sizes(part[0]), part[2]))
        else:
            left.append(part)
    return Erased(tuple(left), tuple(sizes), tuple(numbers), tuple(strides))


def is_permuted(steps: Sequence[tuple[Any, tuple[Any, ...]]]) -> bool:
    """Whether these steps of a view only give the dimensions another order."""
    return len(steps) == 1 and steps[0][0] is movement.permute


def _without_sizes(kind: TensorType) -> tuple[Any, ...]:
    return kind.ndim, kind.dtype, kind.device, kind.weak
