"""Whether Genesis's results are torch's: up to rounding, and up to the choices that torch leaves open."""

from __future__ import annotations

import inspect
from typing import Any

import torch

import genesis
from tests.opinfo.operators import Operator, look_up
from tests.opinfo.values import array, differs, host, parts

OPEN_INDICES = {"argsort": 0, "kthvalue": 1, "median": 1, "mode": 1, "nanmedian": 1, "sort": 1, "topk": 1}
"""Operators that may choose any of equal elements → which of their results holds the indices."""

ATTENTION = "nn.functional.scaled_dot_product_attention"
SUMS_OF_PRODUCTS = frozenset({
    "__rmatmul__", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "dot", "einsum", "inner", "linalg.multi_dot",
    "linalg.vecdot", "matmul", "mm", "mv", "nn.functional.bilinear", "nn.functional.conv1d", "nn.functional.conv2d",
    "nn.functional.conv3d", "nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d", "nn.functional.linear", ATTENTION, "tensordot", "vdot",
})
"""Operators whose results are sums of products of their operands' elements."""


def disagreement(operator: Operator, sample: Any, dtype: torch.dtype, ours: list[Any], theirs: list[Any],
                 values: bool = True) -> str:
    """Why the results of a sample differ, '' when they do not. `values`: else only shapes and dtypes are compared."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    nothing: list[Any] = [None] * len(ours)
    wide = exact(operator, sample, dtype) or nothing
    sizes = (sizes_of_sums(operator, sample, dtype) if values else None) or nothing
    for position, (x, y, z, size) in enumerate(zip(ours, theirs, wide, sizes, strict=True)):
        if values and indices_are_open(operator, sample, position) and isinstance(y, torch.Tensor):
            problem = differs(x, y, values=False) or differs_where_indexed(operator, sample, x, y)
        else:
            problem = differs(x, y, z if isinstance(z, torch.Tensor) else None, values, size=size)
        if problem:
            return problem
    return ""


# Rounding

def exact(operator: Operator, sample: Any, dtype: torch.dtype) -> list[Any] | None:
    """torch's results in float64, for a floating dtype: between two roundings the exact value decides."""
    if not dtype.is_floating_point or dtype is torch.float64 or operator.random:
        return None
    return computed(operator, sample.transform(lambda x: x.double() if of_dtype(x, dtype) else x))


def sizes_of_sums(operator: Operator, sample: Any, dtype: torch.dtype) -> list[Any] | None:
    """For sums of products: the root of the sum of the squared products, in float64.

    Where terms cancel, what is left has the rounding errors of the terms, not its own. A relative error of u in
    each of n terms of size s makes √n · s · u on average, which is this size times u. One wrong term makes an error
    of about s: so it is still found, as u is far below 1 / √n. The products of squares are the squared products; in
    attention only the values are squared, as the weights' sum is 1.
    """
    if operator.info.name not in SUMS_OF_PRODUCTS or not dtype.is_floating_point:
        return None
    weighed = sample.args[1] if operator.info.name == ATTENTION else None

    def squared(x: Any) -> Any:
        if not of_dtype(x, dtype):
            return x
        return x.double().square() if weighed is None or x is weighed else x.double()
    squares = sample.transform(squared)
    squares.kwargs.update({k: squares.kwargs[k] ** 2 for k in ("alpha", "beta") if k in squares.kwargs})
    found = computed(operator, squares)
    return found and [x.sqrt().nan_to_num(0.0, 0.0) for x in found]


def of_dtype(x: Any, dtype: torch.dtype) -> bool:
    """Is this a tensor of the dtype?"""
    return isinstance(x, torch.Tensor) and x.dtype is dtype


def computed(operator: Operator, sample: Any) -> list[Any] | None:
    """torch's results, None where it has none for such dtypes: a second opinion is not always to be had."""
    try:
        return list(parts(operator.info.op(sample.input, *sample.args, **sample.kwargs)))
    except Exception:
        return None


# Choices

def indices_are_open(operator: Operator, sample: Any, position: int) -> bool:
    """Does the result at this position say which of equal elements was taken, where torch leaves that open?"""
    return OPEN_INDICES.get(operator.info.name) == position and not sample.kwargs.get("stable")


def differs_where_indexed(operator: Operator, sample: Any, ours: Any, theirs: torch.Tensor) -> str:
    """Two choices are the same if they take equal elements, and none of them twice."""
    x, dim = sample.input, dimension(operator, sample)
    found = torch.from_numpy(host(ours).copy())
    if x.ndim:
        found, theirs = (i if i.ndim == x.ndim else i.unsqueeze(dim) for i in (found, theirs))
    else:
        x, dim, found, theirs = x.reshape(1), 0, found.reshape(-1), theirs.reshape(-1)
    if bool(((found < 0) | (found >= x.shape[dim])).any()):
        return f"indices out of range: {found.tolist()}"
    if bool((found.sort(dim).values.diff(dim=dim) == 0).any()):
        return f"an element is taken twice: {found.tolist()}"
    taken = genesis.tensor(array(x.gather(dim, found)))
    problem = differs(taken, x.gather(dim, theirs))
    return problem and f"indices of other elements: {problem}"


def dimension(operator: Operator, sample: Any) -> int:
    """The dimension that the sample sorts along."""
    signature = inspect.signature(look_up(genesis, operator.info.name))
    return signature.bind(sample.input, *sample.args, **sample.kwargs).arguments.get("dim", -1)
