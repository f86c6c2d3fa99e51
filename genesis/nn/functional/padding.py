"""Padding: with a number, or with what lies next to the border, which is read there as a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from genesis.frontend.recording import record
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import movement
from genesis.ops.parts import cat, narrow
from genesis.ops.shape import apart, flip

__all__ = ["pad"]

EdgeRule = Callable[[Tensor, int, int, bool], Tensor]


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """The input with a border.

    Args:
        input: any shape and dtype.
        pad: (before, after) of the last dimension, then of the one before it, and so on. A
            negative number cuts elements off.
        mode: what the border holds: "constant" the value, "reflect" the elements in reverse
            without the one at the border, "replicate" the element at the border, "circular" those
            from the other end. All but "constant" pad the last one to three dimensions of an input
            with one or two more.
        value: what a constant border holds, 0 by default.

    Raises:
        RuntimeError: an odd number of sizes, more than the input has dimensions, a border wider
            than what it is made of.
        NotImplementedError: an unknown mode, or one that does not pad so many dimensions.

    >>> import genesis
    >>> pad(genesis.tensor([1, 2]), (1, 2)).tolist()
    [0, 1, 2, 0, 0]
    >>> pad(genesis.tensor([[1, 2, 3]]), (2, 1), mode="reflect").tolist()
    [[3, 2, 1, 2, 3, 2]]
    """
    rank, sides = input.spec.ndim, tuple(pad)
    if len(sides) % 2:
        raise failure("pad", f"Padding length must be divisible by 2, but {sides} is not", [("input", input)])
    if len(sides) > 2 * rank:
        raise failure("pad", "Padding length should be less than or equal to two times the input dimension but got "
                      f"padding length {len(sides)} and input of dimension {rank}", [("input", input)])
    pairs = [(rank - 1 - i, sides[2 * i], sides[2 * i + 1]) for i in range(len(sides) // 2)]
    if mode == "constant":
        return _with_number(input, pairs, 0 if value is None else value)
    if value is not None and value != 0:
        raise failure("pad", f"Padding mode {mode!r} doesn't take in value argument", [("input", input)],
                      error=ValueError)
    if mode not in _EDGE_RULES or rank - len(pairs) not in (1, 2) or len(pairs) > 3:
        raise failure("pad", f"mode {mode!r} cannot pad {len(pairs)} of {rank} dimensions", [("input", input)],
                      hint="'reflect', 'replicate' and 'circular' pad the last 1 to 3 dimensions of an input with one "
                      "or two more", error=NotImplementedError)
    left = {axis: input.spec.shape[axis] + before + after for axis, before, after in pairs}
    if min(left.values()) < 0 or (mode != "circular" and max(left.values()) == 0 and input.spec.numel):
        raise failure("pad", f"the sizes {sides} leave nothing of the dimensions {tuple(left)}", [("input", input)])
    if mode != "circular" and 0 in input.spec.shape[rank - len(pairs) - 1:]:
        raise failure("pad", f"Expected {len(pairs) + 1}D or {len(pairs) + 2}D (batch mode) tensor with possibly 0 "
                      "batch size and other non-zero dimensions for input", [("input", input)])
    result = input
    for axis, before, after in pairs:
        result = _with_border(result, axis, before, after, mode)
    return apart(result, input)


def _with_number(input: Tensor, pairs: list[tuple[int, int, int]], value: float) -> Tensor:
    rank = input.spec.ndim
    low, high, cut = [0] * rank, [0] * rank, [slice(None)] * rank
    for axis, before, after in pairs:
        size = input.spec.shape[axis]
        if size + before + after < 0:
            raise failure("pad", f"the sizes ({before}, {after}) leave less than nothing of dimension {axis}",
                          [("input", input)])
        low[axis], high[axis] = max(0, before), max(0, after)
        cut[axis] = slice(min(max(0, -before), size), max(size - max(0, -after), 0))
    if any(before < 0 or after < 0 for _, before, after in pairs):
        low = [a - max(0, -(size + b)) if b < 0 else a for a, b, size in zip(
            low, _by_axis(pairs, rank, 1), input.spec.shape, strict=True)]
        input = input[tuple(cut)]
    kind = {"float": float, "int": int, "bool": bool}[input.spec.dtype.kind]
    result: Tensor = record(movement.pad, (input,), (tuple(low), tuple(high), kind(value)))
    return result


def _by_axis(pairs: list[tuple[int, int, int]], rank: int, position: int) -> list[int]:
    found = [0] * rank
    for pair in pairs:
        found[pair[0]] = pair[position]
    return found


def _with_border(input: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    size, border = input.spec.shape[axis], _EDGE_RULES[mode]
    most = {"reflect": size - 1, "circular": size}.get(mode)
    if (most is not None and max(before, after) > most) or (size == 0 and max(before, after) > 0):
        raise failure("pad", f"a {mode} border of ({before}, {after}) is wider than dimension {axis} of size {size} "
                      "allows: Padding size should be less than the corresponding input dimension", [("input", input)])
    if size + before + after == 0:
        return narrow(input, axis, 0, 0)
    first, last = max(0, -before), size - max(0, -after)
    middle = input if (first, last) == (0, size) else narrow(input, axis, first, last - first)
    source = middle if mode == "circular" else input  # cut elements do not come round, as in torch
    parts = [border(source, axis, before, True)] if before > 0 else []
    parts += [middle, *([border(source, axis, after, False)] if after > 0 else [])]
    return cat(parts, axis) if len(parts) > 1 else middle


def _reflect(x: Tensor, axis: int, count: int, front: bool) -> Tensor:
    return flip(narrow(x, axis, 1 if front else x.spec.shape[axis] - 1 - count, count), axis)


def _replicate(x: Tensor, axis: int, count: int, front: bool) -> Tensor:
    shape = list(x.spec.shape)
    edge: Any = narrow(x, axis, 0 if front else shape[axis] - 1, 1)
    shape[axis] = count
    found: Tensor = edge.expand(shape)
    return found


def _circular(x: Tensor, axis: int, count: int, front: bool) -> Tensor:
    return narrow(x, axis, x.spec.shape[axis] - count if front else 0, count)


_EDGE_RULES: dict[str, EdgeRule] = {"reflect": _reflect, "replicate": _replicate, "circular": _circular}
