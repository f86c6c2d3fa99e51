"""View geometry: the type and part of a view, from its tensor's type and part and checked arguments.

Types are interned and parts never change, and a program takes the same views again and again. So each rule remembers
what it found: a view that was taken before costs a look-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar, cast

from genesis.frontend.views import STRIDED, View, ViewStep
from genesis.ir.errors import failure
from genesis.ir.memos import MEMOS, MemoFigures
from genesis.ir.ops import movement as m
from genesis.ir.sym_int import as_size
from genesis.ir.types import TensorType, row_major, tensor_type

Shown = tuple[TensorType, View]
"""The type of a view, and the part of the storage that it shows."""

REMEMBERED: Final = 2048
"""Answers that a rule keeps; an answer is types and numbers and holds no memory."""

ANSWER_BYTES: Final = 1200
"""Bytes of an answer: its key, a `View` and its tuples, which are bounded as its steps are."""

_rules: Final[list[Any]] = []
Rule = TypeVar("Rule", bound=Callable[..., Any])


def _worked_out(rule: Rule) -> Rule:
    """The rule for an answer that is not known: views alone make objects by the ten thousand, and record no value at
    which Python's collector would be asked about."""
    @wraps(rule)
    def asked(*args: Any) -> Any:
        from genesis.runtime.collector import put_off_collection  # here: importing genesis shows no view
        put_off_collection()
        return rule(*args)
    return cast(Rule, asked)


def remembered(rule: Rule) -> Rule:
    """The rule with a memory for its last answers."""
    kept = lru_cache(maxsize=REMEMBERED)(_worked_out(rule))
    _rules.append(kept)
    return cast(Rule, kept)


def remembered_by_type(rule: Rule) -> Rule:
    """The same for arguments that were not checked: 2.0 is not the answer's 2."""
    kept = lru_cache(maxsize=REMEMBERED, typed=True)(_worked_out(rule))
    _rules.append(kept)
    return cast(Rule, kept)


MEMOS["views"] = lambda: MemoFigures(
    found := sum(rule.cache_info().currsize for rule in _rules), found * ANSWER_BYTES,
    len(_rules) * REMEMBERED * ANSWER_BYTES)


def strides_in(kind: TensorType, part: View | None) -> tuple[int, ...]:
    """The strides, in elements, of a part of a storage; None is all of it.

    >>> from genesis.ir.types import float32
    >>> strides_in(tensor_type((2, 3), float32), None)
    (3, 1)
    """
    return row_major(kind.shape) if part is None else part.strides


def is_row_major(kind: TensorType, part: View | None, order: Sequence[int] = ()) -> bool:
    """True if the elements lie in row-major order, or in the given order of dimensions, without gaps.

    >>> from genesis.ir.types import float32
    >>> is_row_major(tensor_type((2, 3), float32), None)
    True
    """
    if part is None and not order:
        return True
    shape, strides, step = kind.shape, strides_in(kind, part), 1
    for dim in reversed(order or range(len(shape))):
        size, stride = shape[dim], strides[dim]
        if size != 1 and stride != step:
            return kind.numel == 0
        step *= size
    return True


def _then(kind: TensorType, part: View | None, shape: tuple[int, ...], strides: tuple[int, ...],
          steps: tuple[ViewStep, ...], offset: int = 0) -> Shown:
    """The view that these steps select of the part; the offset counts from the part's first element."""
    fixed, leaf_steps = 0, 0
    taken: list[ViewStep] = []
    shapes: list[tuple[int, ...] | None] = []
    if part is not None:
        fixed = leaf_steps = part.leaf_steps
        offset += part.offset
        taken += part.steps
        shapes += part.shapes or [None] * len(taken)
    now = kind.shape
    for step in steps:
        now = _append(taken, shapes, fixed, now, step)
    if len(taken) > LONGEST and not fixed:
        taken, shapes = [(STRIDED, (shape, strides, offset))], [None]
    elif len(taken) == fixed:
        taken.append((m.reshape, (shape,)))
        shapes.append(shape)
    return (tensor_type(shape, kind.dtype, kind.device),
            View(strides, offset, tuple(taken), leaf_steps, tuple(shapes)))


LONGEST: Final = 24
"""Steps of a view; one of more is told by its strides, and read element by element."""


def _append(taken: list[ViewStep], shapes: list[tuple[int, ...] | None], fixed: int, now: tuple[int, ...],
            step: ViewStep) -> tuple[int, ...]:
    """Append a step to those that were taken, or make one of it and the last; returns the shape it leads to.

    Args:
        shapes: before each step, None where that is not known.
        fixed: how many of the first stay as they are.
        now: the shape after the last.
    """
    op, attrs = step
    shape = _shape_after(now, op, attrs)
    last = taken[-1] if len(taken) > fixed else (None, ())
    before = shapes[-1] if len(taken) > fixed else None
    joined = attrs
    if op is last[0] and op is not m.pad:
        joined = _joined(op, last[1], attrs)
        taken.pop()
        shapes.pop()
    else:
        before = now
    if op is m.permute:
        idle = joined[0] == tuple(range(len(joined[0])))
    else:
        idle = shape == before
    if not idle:
        taken.append((op, joined))
        shapes.append(before)
    return shape


def _shape_after(shape: tuple[int, ...], op: Any, attrs: tuple) -> tuple[int, ...]:
    if op is m.permute:
        return tuple([shape[axis] for axis in attrs[0]])
    if op is m.slice:
        return tuple([-(-(stop - start) // step) for start, stop, step in zip(*attrs, strict=True)])
    return attrs[0]  # reshape, expand


def _joined(op: Any, first: tuple, second: tuple) -> tuple:
    """The attributes of the one step that does what two of the same op do, one after the other."""
    if op is m.permute:
        return (tuple([first[0][axis] for axis in second[0]]),)
    if op is not m.slice:
        return second
    starts, stops, steps = [], [], []
    for (begin, _, outer), (start, stop, step) in zip(zip(*first, strict=True), zip(*second, strict=True), strict=True):
        count = -(-(stop - start) // step)
        starts.append(begin + start * outer)
        stops.append(begin + start * outer + (max(count - 1, 0) * step * outer + 1 if count else 0))
        steps.append(step * outer)
    return tuple(starts), tuple(stops), tuple(steps)


@remembered
def filled(op: str, kind: TensorType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with -1 replaced by the size that is left, or RuntimeError where the elements are not as many.

    >>> from genesis.ir.types import float32
    >>> filled("view", tensor_type((6,), float32), (2, -1))
    (2, 3)
    """
    numel = kind.numel
    if shape.count(-1) > 1 or any(size < -1 for size in shape):
        raise failure(op, f"shape {list(shape)} is invalid: at most one size may be -1", [("input", kind)])
    known = math.prod([size for size in shape if size != -1])
    if -1 in shape:
        if known == 0 or numel % known:
            raise failure(op, f"shape '{list(shape)}' is invalid for input of size {numel}", [("input", kind)])
        return tuple([numel // known if size == -1 else size for size in shape])
    if known != numel:
        raise failure(op, f"shape '{list(shape)}' is invalid for input of size {numel}", [("input", kind)],
                      hint="use -1 for the size that follows from the others")
    return shape


@remembered
def reshaped(kind: TensorType, part: View | None, shape: tuple[int, ...]) -> Shown | None:
    """The view of the elements in another shape of as many; None where only a copy has that shape."""
    strides = row_major(shape) if part is None else viewed_strides(kind.shape, part.strides, shape)
    return None if strides is None else _then(kind, part, shape, strides, ((m.reshape, (shape,)),))


@remembered_by_type
def viewed(kind: TensorType, part: View | None, *sizes: Any) -> Shown | None:
    """`reshaped` to these sizes, one of which may be -1, as `view` takes them; TypeError where one is no integer."""
    return reshaped(kind, part, filled("view", kind, tuple(map(as_size, sizes))))


@remembered
def filled_and_reshaped(op: str, kind: TensorType, part: View | None,
                        shape: tuple[int, ...]) -> tuple[tuple[int, ...], Shown | None]:
    """`filled`, and the view that has this shape."""
    new = filled(op, kind, shape)
    return new, reshaped(kind, part, new)


def viewed_strides(shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides that show the same memory in another shape, or None where only a copy can.

    >>> viewed_strides((2, 6), (12, 2), (2, 3, 2)), viewed_strides((2, 6), (12, 1), (12,))
    ((12, 4, 2), None)
    """
    if 0 in new:
        return row_major(new)
    spans: list[tuple[int, int]] = []  # (elements, step) of each span of dimensions that are contiguous together
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if spans and spans[-1][1] == size * stride:
            spans[-1] = (spans[-1][0] * size, stride)
        else:
            spans.append((size, stride))
    result: list[int] = []
    left, step = spans.pop() if spans else (1, 1)
    for size in reversed(new):
        if left == 1 and size != 1 and spans:
            left, step = spans.pop()
        if size != 1 and left % size:
            return None
        result.append(step)
        left //= size
        step *= size
    return tuple(reversed(result)) if left == 1 and not spans else None


@remembered
def permuted(kind: TensorType, part: View | None, axes: tuple[int, ...]) -> Shown:
    """The view whose dimension i is dimension axes[i] of the part."""
    shape, strides = kind.shape, strides_in(kind, part)
    return _then(kind, part, tuple([shape[a] for a in axes]), tuple([strides[a] for a in axes]),
                 ((m.permute, (axes,)),))


@remembered
def swapped(kind: TensorType, part: View | None, a: int, b: int) -> Shown:
    """The view with two dimensions exchanged."""
    order = list(range(kind.ndim))
    if order:
        order[a], order[b] = b, a
    return permuted(kind, part, tuple(order))


@remembered
def moved(ndim: int, sources: tuple[int, ...], places: tuple[int, ...]) -> tuple[int, ...]:
    """The order of dimensions with these sources at these places, the others in order.

    >>> moved(3, (0,), (2,))
    (1, 2, 0)
    """
    rest = iter([d for d in range(ndim) if d not in sources])
    at = dict(zip(places, sources, strict=True))
    return tuple([at[i] if i in at else next(rest) for i in range(ndim)])


@remembered
def expanded(kind: TensorType, part: View | None, given: tuple[int, ...]) -> Shown | None:
    """The view repeated along dimensions of size 1 and new leading ones, -1 keeping a size; None if that cannot be."""
    old, strides = kind.shape, strides_in(kind, part)
    lead = len(given) - len(old)
    fits = lead >= 0 and all(size in (-1, have) or have == 1 for size, have in zip(given[lead:], old, strict=True))
    if not fits or -1 in given[:max(lead, 0)]:
        return None
    shape = given[:lead] + tuple(h if s == -1 else s for s, h in zip(given[lead:], old, strict=True))
    spread = (0,) * lead + tuple(
        0 if h == 1 and s != 1 else stride for s, h, stride in zip(shape[lead:], old, strides, strict=True))
    return _then(kind, part, shape, spread, ((m.expand, (shape,)),))


@remembered
def repeated(shape: tuple[int, ...], times: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The three shapes of `repeat`: this shape with a 1 before each size, that one expanded, and the result's.

    >>> repeated((3,), (2, 4))
    ((1, 1, 1, 3), (2, 1, 4, 3), (2, 12))
    """
    sizes = (1,) * (len(times) - len(shape)) + shape
    pairs = list(zip(times, sizes, strict=True))
    single, spread = [n for size in sizes for n in (1, size)], [n for pair in pairs for n in pair]
    return tuple(single), tuple(spread), tuple([a * b for a, b in pairs])


@remembered
def with_one(kind: TensorType, part: View | None, at: int) -> Shown:
    """The view with a new dimension of size 1."""
    shape, strides = kind.shape, strides_in(kind, part)
    new = (*shape[:at], 1, *shape[at:])
    step = shape[at] * strides[at] if at < len(shape) else 1
    return _then(kind, part, new, (*strides[:at], step, *strides[at:]), ((m.reshape, (new,)),))


@remembered
def without(kind: TensorType, part: View | None, chosen: frozenset[int]) -> Shown:
    """The view without those of the chosen dimensions that have size 1."""
    shape, strides = kind.shape, strides_in(kind, part)
    kept = [i for i, size in enumerate(shape) if not (i in chosen and size == 1)]
    new = tuple([shape[i] for i in kept])
    return _then(kind, part, new, tuple([strides[i] for i in kept]), ((m.reshape, (new,)),))


@remembered
def same(kind: TensorType, part: View | None) -> Shown:
    """The view of all of the part."""
    return _then(kind, part, kind.shape, strides_in(kind, part), ((m.reshape, (kind.shape,)),))


@remembered
def sliced(kind: TensorType, part: View | None, starts: tuple[int, ...], stops: tuple[int, ...],
           steps: tuple[int, ...]) -> Shown:
    """The view x[start:stop:step, ...]; all numbers are in range."""
    strides = strides_in(kind, part)
    shape = tuple([-(-(b - a) // s) for a, b, s in zip(starts, stops, steps, strict=True)])
    offset = sum([a * stride for a, stride in zip(starts, strides, strict=True)])
    return _then(kind, part, shape, tuple([a * b for a, b in zip(strides, steps, strict=True)]),
                 ((m.slice, (starts, stops, steps)),), offset)


@remembered
def cut(kind: TensorType, part: View | None, axis: int, start: int, stop: int, step: int) -> Shown:
    """The view of start:stop:step along one dimension."""
    starts, stops, steps = [0] * kind.ndim, list(kind.shape), [1] * kind.ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return sliced(kind, part, tuple(starts), tuple(stops), tuple(steps))


@remembered
def selected(kind: TensorType, part: View | None, axis: int, at: int) -> Shown:
    """The view of one position of a dimension, without that dimension."""
    shape, strides = kind.shape, strides_in(kind, part)
    starts, stops = [0] * len(shape), list(shape)
    starts[axis], stops[axis] = at, at + 1
    rest = (*shape[:axis], *shape[axis + 1:])
    return _then(kind, part, rest, (*strides[:axis], *strides[axis + 1:]), (
        (m.slice, (tuple(starts), tuple(stops), (1,) * len(shape))), (m.reshape, (rest,))), at * strides[axis])


@remembered
def diagonal(kind: TensorType, part: View | None, offset: int) -> Shown:
    """The view of a diagonal of the last two dimensions: elements that are a row and one element apart."""
    *around, height, width = kind.shape
    *outer, down_step, right_step = strides_in(kind, part)
    down, right = max(-offset, 0), max(offset, 0)
    count = max(min(height - down, width - right), 0)
    first = down * width + right if count else 0
    kept, zeros, ones = tuple(around), (0,) * len(around), (1,) * len(around)
    stop = first + (count - 1) * (width + 1) + 1 if count else 0
    return _then(kind, part, (*kept, count), (*outer, down_step + right_step), (
        (m.reshape, ((*kept, height * width),)),
        (m.slice, ((*zeros, first), (*kept, stop), (*ones, width + 1)))),
        down * down_step + right * right_step if count else 0)
