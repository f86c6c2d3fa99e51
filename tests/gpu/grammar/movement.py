"""Steps that put elements elsewhere: views, joining, writing."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.gpu.grammar.pointwise import pattern, pick
from tests.gpu.grammar.values import MOST_ELEMENTS, Step, Value


def view(draw: Any, values: list[Value]) -> Step | None:
    """The same elements, or some of them, elsewhere."""
    at = pick(draw, values, lambda x: True)
    shape = values[at].shape
    rank = len(shape)
    name = draw(st.sampled_from(("permute", "reshape", "slice", "flip", "unsqueeze", "squeeze", "expand", "roll", "t",
                                 "flatten", "narrow", "select", "tril", "diagonal", "movedim")))
    axis = draw(st.integers(0, max(rank - 1, 0)))
    size = shape[axis] if rank else 1
    if name == "permute":
        axes = tuple(draw(st.permutations(range(rank))))
        return Step(f"permute {axes}", lambda lib, x: x.permute(axes), (at,))
    if name == "reshape":
        new = _other_shape(draw, values[at].numel)
        return Step(f"reshape {new}", lambda lib, x: x.reshape(new), (at,))
    if name == "slice":
        start, step = draw(st.integers(0, size)), draw(st.integers(1, 3))
        stop = draw(st.integers(start, size))
        key = (slice(None),) * axis + (slice(start, stop, step),)
        return Step(f"[{axis}: {start}:{stop}:{step}]", lambda lib, x: x[key], (at,))
    if name == "narrow":
        start = draw(st.integers(0, size))
        length = draw(st.integers(0, size - start))
        return Step(f"narrow {axis} {start} {length}", lambda lib, x: x.narrow(axis, start, length), (at,))
    if name == "select":
        number = draw(st.integers(-1, max(size - 1, 0)))
        return Step(f"select {axis} {number}", lambda lib, x: x.select(axis, number), (at,))
    if name == "roll":
        by = draw(st.integers(-3, 3))
        return Step(f"roll {by} {axis}", lambda lib, x: lib.roll(x, by, axis), (at,))
    if name == "expand":
        wide = (draw(st.integers(1, 5)), *(5 if n == 1 else n for n in shape))
        return Step(f"expand {wide}", lambda lib, x: x.expand(wide), (at,))
    if name == "tril":
        k = draw(st.integers(-2, 2))
        return Step(f"tril {k}", lambda lib, x: lib.tril(x, k), (at,))
    run = {
        "flatten": lambda lib, x: x.flatten(), "unsqueeze": lambda lib, x: x.unsqueeze(axis),
        "squeeze": lambda lib, x: x.squeeze(), "flip": lambda lib, x: lib.flip(x, (axis,)),
        "t": lambda lib, x: x.transpose(-1, -2), "diagonal": lambda lib, x: lib.diagonal(x, 0, -1, 0),
        "movedim": lambda lib, x: lib.movedim(x, axis, -1),
    }[name]
    return Step(f"{name} {axis}", run, (at,))


def _other_shape(draw: Any, numel: int) -> tuple[int, ...]:
    """A shape with as many elements."""
    if numel == 0:
        return draw(st.sampled_from(((0,), (0, 3), (2, 0, 5), (1, 0))))
    shape, left = [], numel
    for _ in range(draw(st.integers(0, 4))):
        divisors = [n for n in range(1, left + 1) if left % n == 0]
        shape.append(draw(st.sampled_from(divisors)))
        left //= shape[-1]
    return (*shape, left) if left > 1 or not shape else tuple(shape)


def joined(draw: Any, values: list[Value]) -> Step | None:
    """cat, stack, pad, repeat, interleave."""
    at = pick(draw, values, lambda x: x.shape and x.numel * 3 <= MOST_ELEMENTS)
    if at is None:
        return None
    shape = values[at].shape
    axis = draw(st.integers(0, len(shape) - 1))
    name = draw(st.sampled_from(("cat", "stack", "pad", "repeat", "interleave", "reflect")))
    if name == "pad":
        low, high = draw(st.integers(-1, 2)), draw(st.integers(0, 2))
        return Step(f"pad {low} {high}", lambda lib, x: lib.nn.functional.pad(x, (low, high), value=0.5), (at,))
    if name == "repeat":
        times = (1,) * axis + (2,) + (1,) * (len(shape) - axis - 1)
        return Step(f"repeat {times}", lambda lib, x: x.repeat(times), (at,))
    if name == "interleave":
        return Step(f"interleave {axis}", lambda lib, x: lib.repeat_interleave(x, 2, dim=axis), (at,))
    if name == "reflect":
        mode = draw(st.sampled_from(("reflect", "replicate", "circular")))
        return Step(f"pad {mode}", lambda lib, x: lib.nn.functional.pad(
            x.reshape(1, -1, x.shape[-1]), (1, 1), mode=mode), (at,))
    other = pick(draw, values, lambda x: len(x.shape) == len(shape) and all(
        m == n or (i == axis and name == "cat") for i, (m, n) in enumerate(zip(x.shape, shape, strict=True))))
    join = lambda lib, x, y: getattr(lib, name)((x, y), axis)  # noqa: E731
    return Step(f"{name} {axis}", join, (at, other))


def written(draw: Any, values: list[Value]) -> Step | None:
    """A write through a view of a copy: the copy has it too."""
    at = pick(draw, values, lambda x: x.shape and x.real)
    if at is None:
        return None
    shape = values[at].shape
    axis = draw(st.integers(0, len(shape) - 1))
    start, step = draw(st.integers(0, shape[axis])), draw(st.integers(1, 2))
    key = (slice(None),) * axis + (slice(start, None, step),)
    name = draw(st.sampled_from(("fill", "add_", "mul_", "neg transposed", "rows put", "masked", "from pattern")))

    def run(lib: Any, x: Any) -> Any:
        copy = x.clone()
        part = copy.transpose(0, axis)[(slice(start, None, step),)] if name == "neg transposed" else copy[key]
        if name == "fill":
            copy[key] = 2.0
        elif name == "add_":
            part.add_(1.0)
        elif name == "mul_":
            part.mul_(0.5)
        elif name == "rows put":
            ids = lib.arange(shape[0], device=x.device) * 2 % shape[0]
            copy.index_put_((ids,), pattern(lib, shape[1:], x), accumulate=True)
        elif name == "masked":
            copy[pattern(lib, shape, x) > 0] = -1.0
        elif name == "from pattern":
            part.copy_(pattern(lib, tuple(part.shape), x) + part)
        else:
            part.neg_()
        return copy

    return Step(f"{name} [{axis}: {start}::{step}]", run, (at,), 2)


FAMILIES = (view, view, view, joined, written)
