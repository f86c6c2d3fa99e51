"""Steps that look along axes: reductions, scans, norms, sorts, and elements by number."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.gpu.grammar.pointwise import inside, pattern, pick
from tests.gpu.grammar.values import Step, Value

# name: (function of lib, x, axes, keepdim; ulp; exact)
REDUCTIONS: dict[str, tuple[Any, float, bool]] = {
    "sum": (lambda lib, x, axes, keep: x.sum(axes, keepdim=keep), 4, True),
    "mean": (lambda lib, x, axes, keep: x.mean(axes, keepdim=keep), 4, False),
    "amax": (lambda lib, x, axes, keep: lib.amax(x, axes, keepdim=keep), 0, True),
    "amin": (lambda lib, x, axes, keep: lib.amin(x, axes, keepdim=keep), 0, True),
    "var": (lambda lib, x, axes, keep: lib.var(x, axes, keepdim=keep), 16, False),
    "std": (lambda lib, x, axes, keep: lib.sqrt(lib.var(x, axes, correction=0, keepdim=keep) + 1), 16, False),
    "std itself": (lambda lib, x, axes, keep: lib.std(x, axes, correction=0, keepdim=keep), 16, False),
    "logsumexp": (lambda lib, x, axes, keep: lib.logsumexp(x, axes, keepdim=keep), 8, False),
    "norm 2": (lambda lib, x, axes, keep: lib.linalg.vector_norm(x, 2, axes, keepdim=keep), 8, False),
    "norm 1": (lambda lib, x, axes, keep: lib.linalg.vector_norm(x, 1, axes, keepdim=keep), 8, False),
    "norm inf": (lambda lib, x, axes, keep: lib.linalg.vector_norm(x, float("inf"), axes, keepdim=keep), 8, False),
    "nansum": (lambda lib, x, axes, keep: lib.nansum(x, axes, keepdim=keep), 8, True),
    "nanmean": (lambda lib, x, axes, keep: lib.nanmean(x, axes, keepdim=keep), 8, False),
    "prod": (lambda lib, x, axes, keep: lib.prod(lib.abs(inside(lib, x)) + 0.5, axes[0], keepdim=keep), 32, False),
    "sum in float32": (lambda lib, x, axes, keep: lib.sum(x, axes, keepdim=keep, dtype=lib.float32)
                       if x.dtype != lib.float64 else x.sum(axes, keepdim=keep), 4, True),
}

# Of certain values. Which of equal elements topk, kthvalue and median choose is open, and so where the gradient goes.
CHOICES: dict[str, Any] = {
    "argmax": lambda lib, x, axis, keep: lib.argmax(x, axis, keepdim=keep),
    "argmin": lambda lib, x, axis, keep: lib.argmin(x, axis, keepdim=keep),
    "max": lambda lib, x, axis, keep: lib.max(x, axis, keepdim=keep)[0],
    "min": lambda lib, x, axis, keep: lib.min(x, axis, keepdim=keep)[0],
    "all": lambda lib, x, axis, keep: lib.all(x, axis, keepdim=keep),
    "any": lambda lib, x, axis, keep: lib.any(x, axis, keepdim=keep),
    "count": lambda lib, x, axis, keep: (x > 0).sum(axis, keepdim=keep),
    "count_nonzero": lambda lib, x, axis, keep: lib.count_nonzero(x, axis),
    "sort": lambda lib, x, axis, keep: lib.sort(x, dim=axis, stable=True, descending=keep)[0],
    "argsort": lambda lib, x, axis, keep: lib.sort(x, dim=axis, stable=True, descending=keep)[1],
    "topk": lambda lib, x, axis, keep: lib.topk(x.detach(), (x.shape[axis] + 1) // 2, dim=axis, largest=keep)[0],
    "kthvalue": lambda lib, x, axis, keep: lib.kthvalue(x.detach(), (x.shape[axis] + 1) // 2, axis, keepdim=keep)[0],
    "median": lambda lib, x, axis, keep: lib.median(x.detach(), axis, keepdim=keep)[0],
    "nanmedian": lambda lib, x, axis, keep: lib.nanmedian(x.detach(), axis, keepdim=keep)[0],
    "median of all": lambda lib, x, axis, keep: (lib.nanmedian if keep else lib.median)(x.detach()),
    "cummax": lambda lib, x, axis, keep: lib.cummax(x, axis)[0],
    "cummin": lambda lib, x, axis, keep: lib.cummin(x, axis)[1],
    "searchsorted": lambda lib, x, axis, keep: lib.searchsorted(
        lib.sort(x.reshape(-1), stable=True)[0], x, right=keep),
    "bincount": lambda lib, x, axis, keep: lib.bincount((x.reshape(-1) * 0).to(lib.int64) + 2, minlength=5),
    "one_hot": lambda lib, x, axis, keep: lib.nn.functional.one_hot(lib.argmax(x, axis), x.shape[axis]),
    "masked_select": lambda lib, x, axis, keep: x[pattern(lib, tuple(x.shape), x) > 0],
    "nonzero": lambda lib, x, axis, keep: lib.nonzero(x),
}

# name: (function of lib, x, axis; ulp; exact)
ALONG: dict[str, tuple[Any, float, bool]] = {
    "softmax": (lambda lib, x, axis: lib.softmax(x, axis), 8, False),
    "log_softmax": (lambda lib, x, axis: lib.log_softmax(x, axis), 8, False),
    "layer_norm": (lambda lib, x, axis: lib.nn.functional.layer_norm(x, tuple(x.shape[axis:]), eps=0.25), 16, False),
    "layer_norm affine": (lambda lib, x, axis: lib.nn.functional.layer_norm(
        x, tuple(x.shape[-1:]), x.reshape(-1, x.shape[-1])[0], x.reshape(-1, x.shape[-1])[-1], eps=0.25), 16, False),
    "rms_norm": (lambda lib, x, axis: lib.nn.functional.rms_norm(x, tuple(x.shape[axis:]), eps=0.25), 16, False),
    "normalize": (lambda lib, x, axis: lib.nn.functional.normalize(x + 0.5, dim=axis, eps=0.5), 16, False),
    "cumsum": (lambda lib, x, axis: lib.cumsum(x, axis), 8, True),
    "cumprod": (lambda lib, x, axis: lib.cumprod(lib.abs(inside(lib, x)) + 0.25, axis), 32, False),
    "cumprod of zeros": (lambda lib, x, axis: lib.cumprod(lib.clamp(x, -1, 1), axis), 8, True),
    "logcumsumexp": (lambda lib, x, axis: lib.logcumsumexp(x, axis), 8, False),
    "diff": (lambda lib, x, axis: lib.diff(x, dim=axis), 1, True),
    "cross_entropy": (lambda lib, x, axis: lib.nn.functional.cross_entropy(
        x.reshape(-1, x.shape[-1]), ids(lib, x, x.numel() // x.shape[-1], x.shape[-1])), 16, False),
    "cross_entropy smoothed": (lambda lib, x, axis: lib.nn.functional.cross_entropy(
        x.reshape(-1, x.shape[-1]), ids(lib, x, x.numel() // x.shape[-1], x.shape[-1]), ignore_index=1,
        label_smoothing=0.125, reduction="sum"), 16, False),
    "nll_loss": (lambda lib, x, axis: lib.nn.functional.nll_loss(
        x.reshape(-1, x.shape[-1]), ids(lib, x, x.numel() // x.shape[-1], x.shape[-1]), ignore_index=1), 8, False),
    "cross": (lambda lib, x, axis: lib.linalg.cross(threes(x), lib.flip(threes(x), (0,))), 8, False),
    "clip_grad": (lambda lib, x, axis: x / (lib.linalg.vector_norm(x) + 1.0), 8, False),
}


def threes(x: Any) -> Any:
    """The elements in rows of three, without those that are left over."""
    count = x.numel() // 3
    return x.reshape(-1)[:3 * count].reshape(count, 3)


def ids(lib: Any, x: Any, count: int, rows: int, step: int = 3) -> Any:
    """Numbers of rows, some of them more than once."""
    return (lib.arange(count, device=x.device) * step + 1) % rows


# Rows of x by number: (function of lib, x, numbers, the rows they name; ulp).
INDEXED: dict[str, tuple[Any, float]] = {
    "index": (lambda lib, x, i, part: x[i], 0), "index_select": (lambda lib, x, i, part: lib.index_select(x, 0, i), 0),
    "embedding": (lambda lib, x, i, part: lib.nn.functional.embedding(i, x.reshape(x.shape[0], -1)), 0),
    "gather": (lambda lib, x, i, part: lib.gather(x, 0, spread(i, part)), 0),
    "take_along_dim": (lambda lib, x, i, part: lib.take_along_dim(x, spread(i, part), 0), 0),
    "take": (lambda lib, x, i, part: lib.take(x, i), 0),
    "index_add": (lambda lib, x, i, part: lib.index_add(x, 0, i, part), 8),
    "index_add to zeros": (lambda lib, x, i, part: lib.index_add(lib.zeros_like(x), 0, i, part), 8),
    "scatter_add": (lambda lib, x, i, part: lib.scatter_add(x, 0, spread(i, part), part), 8),
    "scatter amax": (lambda lib, x, i, part: lib.scatter_reduce(x, 0, spread(i, part), part * 2, "amax"), 0),
    "scatter amin": (lambda lib, x, i, part: lib.scatter_reduce(  # equal to no x: of these torch loses gradient
        x, 0, spread(i, part), part * 2 + 0.28125, "amin", include_self=False), 1),
    "scatter sum": (lambda lib, x, i, part: lib.scatter_reduce(x, 0, spread(i, part), part, "sum"), 8),
    "scatter mean": (lambda lib, x, i, part: lib.scatter_reduce(
        x, 0, spread(i, part), part, "mean", include_self=False), 8),
    "scatter prod": (lambda lib, x, i, part: lib.scatter_reduce(
        x, 0, spread(i, part), pattern(lib, tuple(part.shape), x) + 1.5, "prod"), 8),
}

# The same with each number once: what is written last is not defined where a number comes twice.
PUT: dict[str, tuple[Any, float]] = {
    "scatter": (lambda lib, x, i, part: lib.scatter(x, 0, spread(i, part), part * 2), 1),
    "scatter number": (lambda lib, x, i, part: lib.scatter(x, 0, spread(i, part), 1.5), 0),
    "index_copy": (lambda lib, x, i, part: lib.index_copy(x, 0, i, part + 1), 1),
    "index_fill": (lambda lib, x, i, part: lib.index_fill(x, 0, i, 0.5), 0),
    "index_put": (lambda lib, x, i, part: lib.index_put(x, (i,), part * 0.5), 1),
}


def spread(i: Any, part: Any) -> Any:
    """The numbers of rows as numbers of every element of those rows."""
    return i.reshape((-1,) + (1,) * (part.ndim - 1)).expand(tuple(part.shape))


def reduction(draw: Any, values: list[Value]) -> Step | None:
    """Over one axis or several, kept or not."""
    at = pick(draw, values, lambda x: x.real and x.shape)
    if at is None:
        return None
    rank = len(values[at].shape)
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
    keep = draw(st.booleans())
    name = draw(st.sampled_from(sorted(REDUCTIONS)))
    function, ulp, exact = REDUCTIONS[name]
    return Step(f"{name} {axes} {keep}", lambda lib, x: function(lib, x, axes, keep), (at,), ulp, exact,
                scale=0.0 if exact else 0.5)


def choice(draw: Any, values: list[Value]) -> Step | None:
    """What looks at the order of certain values."""
    at = pick(draw, values, lambda x: x.certain and x.shape)
    if at is None:
        return None
    axis = draw(st.integers(0, len(values[at].shape) - 1))
    keep = draw(st.booleans())
    name = draw(st.sampled_from(sorted(CHOICES)))
    function = CHOICES[name]
    return Step(f"{name} {axis} {keep}", lambda lib, x: function(lib, x, axis, keep), (at,), jumps=True)


def along(draw: Any, values: list[Value]) -> Step | None:
    """softmax, norms and scans along an axis."""
    at = pick(draw, values, lambda x: x.real and x.shape)
    if at is None:
        return None
    axis = draw(st.integers(0, len(values[at].shape) - 1))
    name = draw(st.sampled_from(sorted(ALONG)))
    function, ulp, exact = ALONG[name]
    return Step(f"{name} {axis}", lambda lib, x: function(lib, x, axis), (at,), ulp, exact,
                scale=0.0 if exact else 0.5)


def indexed(draw: Any, values: list[Value]) -> Step | None:
    """Rows by number: taken, gathered, put and added."""
    at = pick(draw, values, lambda x: x.real and x.shape and x.shape[0])
    if at is None:
        return None
    name = draw(st.sampled_from(sorted(INDEXED) + sorted(PUT)))
    function, ulp = (INDEXED | PUT)[name]
    rows = values[at].shape[0]
    count = draw(st.integers(0, min(rows, 7) if name in PUT else 9))
    step = 1 if name in PUT else draw(st.integers(1, 5))

    def run(lib: Any, x: Any) -> Any:
        chosen = ids(lib, x, count, rows, step)
        return function(lib, x, chosen, x[chosen])

    return Step(f"{name} {count} {step}", run, (at,), ulp, jumps="amax" in name or "amin" in name)


FAMILIES = (reduction, reduction, choice, choice, along, along, indexed, indexed)
