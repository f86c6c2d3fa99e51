"""A grammar of small programs over tensors: any mix of views, arithmetic, reductions, indices and writes.

A program is a list of steps. A step is a function of a library and of earlier values, so that the same program runs in
Genesis and in torch. While a program is drawn, three things are known of each value without running it: its shape and
dtype, a bound of its magnitude, and a bound of the error that rounding may have put into it. Each rule says how these
come out; the last is the test's tolerance, so a wrong result is told from an inexact one. What jumps (comparisons,
rounding, sorting, an argmax, a cast to an integer) takes *exact* values only: small integers that no rounding touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

SIZES = (0, 1, 1, 2, 3, 3, 5, 7, 8, 13, 16, 17)
"""Zero, one, primes, powers of two and a neighbour."""

MOST_ELEMENTS = 600
MOST_MAGNITUDE = 64.0
EPS = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-10, "int64": 0.0, "bool": 0.0}
FLOATS = ("float32", "float32", "float32", "bfloat16", "float16")

Run = Callable[..., Any]  # (library, *values) → value


@dataclass(frozen=True)
class Known:
    """What holds for a value before it is computed."""

    shape: tuple[int, ...]
    dtype: str
    bound: float
    error: float = 0.0
    exact: bool = False

    @property
    def real(self) -> bool:
        return self.dtype in ("float32", "bfloat16", "float16")

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Step:
    """One computation: what it is called, what it does, and which earlier values it takes."""

    name: str
    run: Run
    operands: tuple[int, ...]


@dataclass
class Program:
    """Inputs, steps in order, and the positions of the values that are asked for."""

    inputs: list[Known] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    values: list[Known] = field(default_factory=list)
    asked: tuple[int, ...] = ()

    def run(self, library: Any, inputs: Sequence[Any]) -> list[Any]:
        """The values that are asked for."""
        values = list(inputs)
        for step in self.steps:
            values.append(step.run(library, *(values[i] for i in step.operands)))
        return [values[i] for i in self.asked]

    def __str__(self) -> str:
        lines = [f"%{i} = input {known.dtype}{list(known.shape)}" for i, known in enumerate(self.inputs)]
        for number, (step, known) in enumerate(zip(self.steps, self.values[len(self.inputs):], strict=True),
                                               len(self.inputs)):
            operands = ", ".join(f"%{i}" for i in step.operands)
            lines.append(f"%{number} = {step.name}({operands})   # {known.dtype}{list(known.shape)} ±{known.bound:.3g} "
                         f"error {known.error:.2g}")
        return "\n".join([*lines, f"return {', '.join(f'%{i}' for i in self.asked)}"])


def rounded(known: Known, roundings: float = 1.0) -> Known:
    """With the error of this many roundings to its dtype."""
    if known.exact and known.bound <= 1 / EPS.get(known.dtype, 0.0) if EPS.get(known.dtype) else known.exact:
        return known
    return replace(known, exact=False, error=known.error + roundings * EPS[known.dtype] * max(known.bound, 2.0**-10))


# The rules: each draws what it needs from the values there are, and gives a step and what is known of its result.

Rule = Callable[[Any, list[Known]], tuple[str, Run, tuple[int, ...], Known] | None]


def pick(draw: Any, values: list[Known], holds: Callable[[Known], bool]) -> int | None:
    """The position of a value for which it holds; recent ones come more often."""
    found = [i for i, known in enumerate(values) if holds(known)]
    return draw(st.sampled_from((found + found[-3:])[::-1])) if found else None


SMOOTH: dict[str, tuple[Run, Callable[[float], float], float]] = {
    # name: (function, bound of the result for a bound of the operand, steepest slope)
    "tanh": (lambda lib, x: lib.tanh(x), lambda b: 1.0, 1.0),
    "sigmoid": (lambda lib, x: lib.sigmoid(x), lambda b: 1.0, 0.25),
    "sin": (lambda lib, x: lib.sin(x), lambda b: 1.0, 1.0),
    "cos": (lambda lib, x: lib.cos(x), lambda b: 1.0, 1.0),
    "atan": (lambda lib, x: lib.atan(x), lambda b: 1.6, 1.0),
    "erf": (lambda lib, x: lib.erf(x), lambda b: 1.0, 1.2),
    "abs": (lambda lib, x: lib.abs(x), lambda b: b, 1.0),
    "neg": (lambda lib, x: -x, lambda b: b, 1.0),
    "relu": (lambda lib, x: lib.nn.functional.relu(x), lambda b: b, 1.0),
    "gelu": (lambda lib, x: lib.nn.functional.gelu(x), lambda b: b, 1.2),
    "silu": (lambda lib, x: lib.nn.functional.silu(x), lambda b: b, 1.1),
    "softplus": (lambda lib, x: lib.nn.functional.softplus(x), lambda b: b + 1, 1.0),
    "exp of tanh": (lambda lib, x: lib.exp(lib.tanh(x)), lambda b: math.e, math.e),
    "log of 1 + square": (lambda lib, x: lib.log(x * x + 1.0), lambda b: 9.0, 1.0),
    "sqrt of 1 + square": (lambda lib, x: lib.sqrt(x * x + 1.0), lambda b: b + 1, 1.0),
    "1 over 1 + square": (lambda lib, x: 1.0 / (x * x + 1.0), lambda b: 1.0, 1.0),
    "rsqrt of 1 + square": (lambda lib, x: lib.rsqrt(x * x + 1.0), lambda b: 1.0, 1.0),
    "expm1 of tanh": (lambda lib, x: lib.expm1(lib.tanh(x)), lambda b: 1.8, math.e),
    "log1p of square": (lambda lib, x: lib.log1p(x * x), lambda b: 9.0, 1.0),
    "clamp": (lambda lib, x: lib.clamp(x, -1.5, 1.25), lambda b: 1.5, 1.0),
    "times a number": (lambda lib, x: x * 0.75, lambda b: b, 0.75),
    "plus a number": (lambda lib, x: 1.5 + x, lambda b: b + 1.5, 1.0),
}


def smooth(draw: Any, values: list[Known]) -> Any:
    """A function of one variable."""
    at = pick(draw, values, lambda k: k.real)
    if at is None:
        return None
    name = draw(st.sampled_from(sorted(SMOOTH)))
    run, bound, slope = SMOOTH[name]
    known = values[at]
    squares = 4 * known.bound if "square" in name else 4
    return name, run, (at,), rounded(replace(known, bound=bound(known.bound), error=slope * known.error, exact=False),
                                     4 + squares * ("square" in name))


def binary(draw: Any, values: list[Known]) -> Any:
    """Arithmetic of two values, broadcast where that is possible."""
    a = pick(draw, values, lambda k: k.real)
    if a is None:
        return None
    b = pick(draw, values, lambda k: k.dtype == values[a].dtype and _joined(k.shape, values[a].shape) is not None)
    if b is None:
        return None
    one, other = values[a], values[b]
    name = draw(st.sampled_from(("add", "sub", "mul", "maximum", "minimum", "div", "lerp", "where")))
    shape = _joined(one.shape, other.shape)
    exact = one.exact and other.exact
    both = one.error + other.error
    sums = Known(shape, one.dtype, one.bound + other.bound, both, exact)
    most = Known(shape, one.dtype, max(one.bound, other.bound), max(one.error, other.error), exact)
    product = Known(shape, one.dtype, one.bound * other.bound,
                    one.bound * other.error + other.bound * one.error + one.error * other.error, exact)
    run, known = {
        "add": (lambda lib, x, y: x + y, rounded(sums)), "sub": (lambda lib, x, y: x - y, rounded(sums)),
        "mul": (lambda lib, x, y: x * y, rounded(product)),
        "maximum": (lambda lib, x, y: lib.maximum(x, y), most), "minimum": (lambda lib, x, y: lib.minimum(x, y), most),
        "div": (lambda lib, x, y: x / (lib.abs(y) + 1.0),
                rounded(Known(shape, one.dtype, one.bound, one.error + one.bound * other.error), 4)),
        "lerp": (lambda lib, x, y: lib.lerp(x, y, 0.25), rounded(replace(sums, exact=False), 3)),
        "where": (lambda lib, x, y: lib.where(_checkers(lib, x + y), x, y), most),
    }[name]
    return None if known.bound > MOST_MAGNITUDE else (name, run, (a, b), known)


def _checkers(lib: Any, like: Any) -> Any:
    """A mask of that shape that depends on positions only."""
    count = math.prod(like.shape)
    return (lib.arange(count, device=like.device) % 3 == 0).reshape(tuple(like.shape))


def _joined(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of a broadcast, None where there is none or it is too large."""
    wide = max(len(a), len(b))
    one, other = (1,) * (wide - len(a)) + a, (1,) * (wide - len(b)) + b
    if any(m != n and 1 not in (m, n) for m, n in zip(one, other, strict=True)):
        return None
    shape = tuple(n if m == 1 else m for m, n in zip(one, other, strict=True))
    return shape if math.prod(shape) <= MOST_ELEMENTS else None


def view(draw: Any, values: list[Known]) -> Any:
    """The same elements, or some of them, elsewhere."""
    at = pick(draw, values, lambda k: True)
    known = values[at]
    shape, rank = known.shape, len(known.shape)
    name = draw(st.sampled_from(("permute", "reshape", "slice", "flip", "unsqueeze", "squeeze", "expand", "roll", "t",
                                 "flatten", "narrow")))
    if name == "permute":
        axes = tuple(draw(st.permutations(range(rank))))
        turned = replace(known, shape=tuple(shape[i] for i in axes))
        return f"permute {axes}", lambda lib, x: x.permute(axes), (at,), turned
    if name == "reshape":
        new = _other_shape(draw, known.numel)
        return f"reshape {new}", lambda lib, x: x.reshape(new), (at,), replace(known, shape=new)
    if name == "flatten":
        return "flatten", lambda lib, x: x.flatten(), (at,), replace(known, shape=(known.numel,))
    if name == "unsqueeze" and rank < 6:
        axis = draw(st.integers(0, rank))
        return (f"unsqueeze {axis}", lambda lib, x: x.unsqueeze(axis), (at,),
                replace(known, shape=(*shape[:axis], 1, *shape[axis:])))
    if name == "squeeze":
        return "squeeze", lambda lib, x: x.squeeze(), (at,), replace(known, shape=tuple(n for n in shape if n != 1))
    if not rank:
        return None
    axis = draw(st.integers(0, rank - 1))
    size = shape[axis]
    if name == "slice":
        start, step = draw(st.integers(0, size)), draw(st.integers(1, 3))
        stop = draw(st.integers(start, size))
        key = (slice(None),) * axis + (slice(start, stop, step),)
        return (f"[{axis}: {start}:{stop}:{step}]", lambda lib, x: x[key], (at,),
                replace(known, shape=(*shape[:axis], len(range(start, stop, step)), *shape[axis + 1:])))
    if name == "narrow":
        start = draw(st.integers(0, size))
        length = draw(st.integers(0, size - start))
        return (f"narrow {axis} {start} {length}", lambda lib, x: x.narrow(axis, start, length), (at,),
                replace(known, shape=(*shape[:axis], length, *shape[axis + 1:])))
    if name == "flip":
        return f"flip {axis}", lambda lib, x: lib.flip(x, (axis,)), (at,), known
    if name == "roll":
        by = draw(st.integers(-3, 3))
        return f"roll {by} {axis}", lambda lib, x: lib.roll(x, by, axis), (at,), known
    if name == "expand" and size == 1 and known.numel * 5 <= MOST_ELEMENTS:
        wide = (*shape[:axis], 5, *shape[axis + 1:])
        return f"expand {wide}", lambda lib, x: x.expand(wide), (at,), replace(known, shape=wide)
    if name == "t" and rank >= 2:
        return ("transpose", lambda lib, x: x.transpose(-1, -2), (at,),
                replace(known, shape=(*shape[:-2], shape[-1], shape[-2])))
    return None


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


def joined(draw: Any, values: list[Known]) -> Any:
    """cat, stack, pad, repeat."""
    at = pick(draw, values, lambda k: k.real and len(k.shape) > 0 and k.numel * 3 <= MOST_ELEMENTS)
    if at is None:
        return None
    known = values[at]
    axis = draw(st.integers(0, len(known.shape) - 1))
    around = (*known.shape[:axis], *known.shape[axis + 1:])
    name = draw(st.sampled_from(("cat", "stack", "pad", "repeat")))
    size = known.shape[axis]
    if name == "pad":
        low, high = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        return (f"pad {low} {high}", lambda lib, x: lib.nn.functional.pad(x, (low, high), value=0.5), (at,),
                replace(known, shape=(*known.shape[:-1], known.shape[-1] + low + high), bound=max(known.bound, 0.5),
                        exact=False))
    if name == "repeat":
        times = (1,) * axis + (2,) + (1,) * (len(known.shape) - axis - 1)
        return (f"repeat {times}", lambda lib, x: x.repeat(times), (at,),
                replace(known, shape=(*known.shape[:axis], 2 * size, *known.shape[axis + 1:])))
    other = pick(draw, values, lambda k: k.dtype == known.dtype and len(k.shape) == len(known.shape) and (
        k.shape == known.shape if name == "stack" else (*k.shape[:axis], *k.shape[axis + 1:]) == around)
        and k.numel <= MOST_ELEMENTS // 3)
    if other is None or (name == "stack" and len(known.shape) > 5):
        return None
    second = values[other]
    both = Known((), known.dtype, max(known.bound, second.bound), max(known.error, second.error),
                 known.exact and second.exact)
    if name == "stack":
        return (f"stack {axis}", lambda lib, x, y: lib.stack((x, y), axis), (at, other),
                replace(both, shape=(*known.shape[:axis], 2, *known.shape[axis:])))
    return (f"cat {axis}", lambda lib, x, y: lib.cat((x, y), axis), (at, other),
            replace(both, shape=(*known.shape[:axis], size + second.shape[axis], *known.shape[axis + 1:])))


def reduction(draw: Any, values: list[Known]) -> Any:
    """Over one axis or all, kept or not."""
    at = pick(draw, values, lambda k: k.real and k.numel > 0)
    if at is None:
        return None
    known = values[at]
    rank = len(known.shape)
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1)))) if rank else ()
    keep = draw(st.booleans())
    shape = tuple(1 if i in axes else n for i, n in enumerate(known.shape) if keep or i not in axes)
    count = math.prod(known.shape[i] for i in axes)
    name = draw(st.sampled_from(("sum", "mean", "amax", "amin", "var", "logsumexp")))
    if not rank or (name == "var" and count < 2):
        return None
    total = Known(shape, known.dtype, known.bound * count, known.error * count, known.exact)
    run, found = {
        "sum": (lambda lib, x: x.sum(axes, keepdim=keep), rounded(total, 2)),
        "mean": (lambda lib, x: x.mean(axes, keepdim=keep),
                 rounded(replace(known, shape=shape, exact=False), 3)),
        "amax": (lambda lib, x: lib.amax(x, axes, keepdim=keep), replace(known, shape=shape)),
        "amin": (lambda lib, x: lib.amin(x, axes, keepdim=keep), replace(known, shape=shape)),
        "var": (lambda lib, x: lib.var(x, axes, keepdim=keep),
                rounded(Known(shape, known.dtype, 2 * known.bound**2, 8 * known.bound * known.error), 8)),
        "logsumexp": (lambda lib, x: lib.logsumexp(x, axes, keepdim=keep),
                      rounded(Known(shape, known.dtype, known.bound + 7, known.error), 4)),
    }[name]
    accumulated = EPS["float32"] * count * known.bound * (0 if found.exact else 1)
    return None if found.bound > MOST_MAGNITUDE else (f"{name} {axes} {keep}", run, (at,),
                                                      replace(found, error=found.error + accumulated))


def row_function(draw: Any, values: list[Known]) -> Any:
    """softmax, norms and scans along an axis."""
    at = pick(draw, values, lambda k: k.real and len(k.shape) > 0 and k.numel > 0)
    if at is None:
        return None
    known = values[at]
    axis = draw(st.integers(0, len(known.shape) - 1))
    size = known.shape[axis]
    name = draw(st.sampled_from(("softmax", "log_softmax", "layer_norm", "rms_norm", "cumsum")))
    last = known.shape[-1:]
    exact = known.exact and name == "cumsum"
    known = replace(known, exact=exact)
    run, found = {
        "softmax": (lambda lib, x: lib.softmax(x, axis), rounded(replace(known, bound=1.0, error=2 * known.error), 8)),
        "log_softmax": (lambda lib, x: lib.log_softmax(x, axis),
                        rounded(replace(known, bound=2 * known.bound + 7, error=2 * known.error), 8)),
        "layer_norm": (lambda lib, x: lib.nn.functional.layer_norm(x, last, eps=0.25),
                       rounded(replace(known, bound=math.sqrt(last[0]) + 1, error=8 * known.error
                                       + 8 * EPS["float32"] * known.bound**2), 16)),
        "rms_norm": (lambda lib, x: lib.nn.functional.rms_norm(x, last, eps=0.25),
                     rounded(replace(known, bound=math.sqrt(last[0]) + 1, error=8 * known.error), 16)),
        "cumsum": (lambda lib, x: lib.cumsum(x, axis),
                   rounded(replace(known, bound=size * known.bound, error=size * known.error),
                           2 * math.sqrt(size) + 2)),
    }[name]
    if found.bound > MOST_MAGNITUDE:
        return None
    return f"{name} {axis}", run, (at,), found


def product(draw: Any, values: list[Known]) -> Any:
    """A matrix times itself turned, a vector, or another matrix."""
    a = pick(draw, values, lambda k: k.real and len(k.shape) >= 2 and k.numel > 0)
    if a is None:
        return None
    one = values[a]
    b = pick(draw, values, lambda k: k.dtype == one.dtype and len(k.shape) in (1, 2) and k.shape[0] == one.shape[-1])
    depth = one.shape[-1]
    if b is None:
        other, operands, run = one, (a,), lambda lib, x: x @ x.transpose(-1, -2)
        shape = (*one.shape[:-1], one.shape[-2])
    else:
        other, operands, run = values[b], (a, b), lambda lib, x, y: lib.matmul(x, y)
        shape = (*one.shape[:-1], *other.shape[1:])
    bound = depth * one.bound * other.bound
    error = depth * (one.bound * other.error + other.bound * one.error + EPS["float32"] * one.bound * other.bound)
    known = rounded(Known(shape, one.dtype, bound, error, one.exact and other.exact), 2)
    return None if bound > MOST_MAGNITUDE or known.numel > MOST_ELEMENTS else ("matmul", run, operands, known)


def jumping(draw: Any, values: list[Known]) -> Any:
    """What is not continuous, of exact values."""
    at = pick(draw, values, lambda k: k.real and k.exact)
    if at is None:
        return None
    known = values[at]
    name = draw(st.sampled_from(("floor half", "sign", "greater", "to int and back", "argmax", "sort", "remainder",
                                 "count", "topk", "round")))
    one = replace(known, bound=1.0)
    simple = {
        "floor half": (lambda lib, x: lib.floor(x * 0.5), known), "sign": (lambda lib, x: lib.sign(x), one),
        "greater": (lambda lib, x: (x > 0.5).to(x.dtype), one),
        "to int and back": (lambda lib, x: x.to(lib.int64).to(x.dtype), known),
        "remainder": (lambda lib, x: lib.remainder(x, 3.0), replace(known, bound=3.0)),
        "round": (lambda lib, x: lib.round(x * 0.25), known),
    }
    if name in simple:
        run, found = simple[name]
        return name, run, (at,), found
    if not known.shape or not known.numel:
        return None
    axis = draw(st.integers(0, len(known.shape) - 1))
    without = (*known.shape[:axis], *known.shape[axis + 1:])
    if name == "argmax":
        return (f"argmax {axis}", lambda lib, x: lib.argmax(x, axis), (at,),
                Known(without, "int64", known.shape[axis], exact=True))
    if name == "count":
        return (f"count {axis}", lambda lib, x: (x > 0).sum(axis), (at,),
                Known(without, "int64", known.shape[axis], exact=True))
    if name == "topk":
        count = draw(st.integers(1, known.shape[axis]))
        return (f"topk {count} {axis}", lambda lib, x: lib.topk(x, count, dim=axis)[0], (at,),
                replace(known, shape=(*known.shape[:axis], count, *known.shape[axis + 1:])))
    return f"sort {axis}", lambda lib, x: lib.sort(x, dim=axis, stable=True)[0], (at,), known


def indexed(draw: Any, values: list[Known]) -> Any:
    """Rows by number: taken, gathered, added to."""
    at = pick(draw, values, lambda k: k.real and len(k.shape) > 0 and k.shape[0] > 0 and k.numel > 0)
    if at is None:
        return None
    known = values[at]
    rows, around = known.shape[0], known.shape[1:]
    count = draw(st.integers(0, 7))
    if count * math.prod(around) > MOST_ELEMENTS:
        return None
    step, start = draw(st.integers(1, 5)), draw(st.integers(0, 5))
    name = draw(st.sampled_from(("take", "index_select", "index_add", "index", "gather")))

    def ids(lib: Any, x: Any) -> Any:
        return (lib.arange(count, device=x.device) * step + start) % rows

    if name == "index_add":
        hits = -(-count // 1)
        found = Known(known.shape, known.dtype, known.bound * (1 + hits), known.error * (1 + hits), known.exact)
        run: Run = lambda lib, x: lib.index_add(x, 0, ids(lib, x), x[ids(lib, x)])  # noqa: E731
        found = rounded(found, 2 * hits + 2)
        return None if found.bound > MOST_MAGNITUDE else (f"index_add {count}", run, (at,), found)
    if name == "gather":
        run = lambda lib, x: lib.gather(x, 0, ids(lib, x).reshape((count,) + (1,) * len(around)).expand(  # noqa: E731
            (count, *around)))
    elif name == "index_select":
        run = lambda lib, x: lib.index_select(x, 0, ids(lib, x))  # noqa: E731
    else:
        run = lambda lib, x: x[ids(lib, x)]  # noqa: E731
    return f"{name} {count} {step} {start}", run, (at,), replace(known, shape=(count, *around))


def written(draw: Any, values: list[Known]) -> Any:
    """A write through a view of a copy: the copy has it too."""
    at = pick(draw, values, lambda k: k.real and len(k.shape) > 0)
    if at is None:
        return None
    known = values[at]
    axis = draw(st.integers(0, len(known.shape) - 1))
    start = draw(st.integers(0, known.shape[axis]))
    step = draw(st.integers(1, 2))
    key = (slice(None),) * axis + (slice(start, None, step),)
    name = draw(st.sampled_from(("fill", "add_", "mul_", "neg transposed")))

    def run(lib: Any, x: Any) -> Any:
        copy = x.clone()
        part = copy.transpose(0, axis)[(slice(start, None, step),)] if name == "neg transposed" else copy[key]
        if name == "fill":
            copy[key] = 2.0
        elif name == "add_":
            part.add_(1.0)
        elif name == "mul_":
            part.mul_(0.5)
        else:
            part.neg_()
        return copy

    bound = {"fill": max(known.bound, 2.0), "add_": known.bound + 1}.get(name, known.bound)
    found = replace(known, bound=bound, exact=known.exact and name != "mul_")
    return f"{name} [{axis}: {start}::{step}]", run, (at,), rounded(found)


def converted(draw: Any, values: list[Known]) -> Any:
    """Another dtype."""
    at = pick(draw, values, lambda k: k.real or k.dtype == "int64")
    if at is None:
        return None
    dtype = draw(st.sampled_from(("float32", "bfloat16", "float16")))
    known = values[at]
    return (f"to {dtype}", lambda lib, x: x.to(getattr(lib, dtype) if x.dtype != lib.float64 else x.dtype), (at,),
            rounded(replace(known, dtype=dtype)))


RULES: tuple[Rule, ...] = (smooth, smooth, binary, binary, binary, view, view, view, joined, reduction, reduction,
                           row_function, product, jumping, jumping, indexed, written, converted)


@st.composite
def programs(draw: Any, most_steps: int = 10) -> Program:
    """A program that every rule says can be computed with a useful tolerance."""
    program = Program()
    for _ in range(draw(st.integers(1, 3))):
        shape: tuple[int, ...] = ()
        for size in draw(st.lists(st.sampled_from(SIZES), max_size=6)):
            if math.prod(shape) * size <= MOST_ELEMENTS // 3:
                shape = (*shape, size)
        exact = draw(st.booleans())
        program.inputs.append(Known(shape, draw(st.sampled_from(FLOATS)), 4.0 if exact else 2.0, exact=exact))
    program.values = list(program.inputs)
    for _ in range(draw(st.integers(1, most_steps))):
        made = draw(st.sampled_from(RULES))(draw, program.values)
        if made is None:
            continue
        name, run, operands, known = made
        if known.error <= 0.05 * max(known.bound, 1.0) and known.numel <= MOST_ELEMENTS and len(known.shape) <= 6:
            program.steps.append(Step(name, run, operands))
            program.values.append(known)
    count = len(program.values)
    last = set(range(len(program.inputs), count)) or {0}
    program.asked = tuple(sorted(draw(st.sets(st.sampled_from(sorted(last)), min_size=1, max_size=3)) | {max(last)}))
    return program
