"""Where Genesis is known to differ from PyTorch's samples, and why. A row that no longer differs is removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

ANY_TEST = ("forward", "gradient", "second", "in_place", "errors")


@dataclass(frozen=True)
class Difference:
    """One known difference.

    Attributes:
        operators: names of operators, as the tests print them.
        tests: which tests it concerns.
        reason: why it is so.
        when: (input, args, kwargs, dtype) → whether a sample is concerned; all are by default.
    """

    operators: tuple[str, ...]
    tests: tuple[str, ...]
    reason: str
    when: Callable[[Any, tuple, dict, torch.dtype], bool] = lambda *_: True


EVERYWHERE = ("*",)


def _weights_are_wrong(x: Any, args: tuple, kwargs: dict, dtype: torch.dtype) -> bool:
    """Weights that are negative, infinite, NaN or all 0."""
    return isinstance(x, torch.Tensor) and x.is_floating_point() and (
        not bool(torch.isfinite(x).all()) or bool((x < 0).any()) or bool((x.sum(-1) == 0).any()))


DIFFERENCES: tuple[Difference, ...] = (
    Difference(("multinomial",), ("errors",), "the weights are not looked at: that would compute and read them",
               when=_weights_are_wrong),
    Difference(("to_sparse",), ("forward", "gradient", "second"),
               "a sparse tensor is an object of its own, no Tensor; tests/sparse compares it with torch's"),
    Difference(("masked_select", "gather", "take", "bernoulli", "cat"), ("errors",),
               "out shares memory with itself or with the input, which is not brought over",
               when=lambda x, args, kwargs, dtype: "out" in kwargs),
    Difference(("aminmax", "gather", "multinomial"), ("errors",),
               "whatever the function, the result is cast to the dtype of out if that is of no lower category",
               when=lambda x, args, kwargs, dtype: "out" in kwargs),
    Difference(("cholesky_inverse", "cholesky_solve"), ("gradient", "second"),
               "the triangle that is not read has no gradient; torch gives it that of a factor that is read whole"),
    Difference(("addbmm",), ("in_place",),
               "torch gives a smaller input the shape of the result; writing never resizes here",
               when=lambda x, args, kwargs, dtype: x.shape != (args[0].shape[1], args[1].shape[2])),
    Difference(("narrow_copy",), ("errors",), "a dimension that is not there is an IndexError, as of `narrow`",
               when=lambda x, args, kwargs, dtype: args[0] >= x.ndim),
    Difference(("linspace", "linspace.tensor_overload", "logspace", "logspace.tensor_overload"), ("forward",),
               "computed in float64 and rounded once; torch's steps are in the result's dtype",
               when=lambda x, args, kwargs, dtype: kwargs.get("dtype", dtype) in (torch.float16, torch.bfloat16)),
    Difference(("as_strided.partial_views",), ("forward", "gradient", "second"),
               "the sample looks beyond its input into the rest of torch's storage, which is not brought over"),
    Difference(("cov",), ("forward", "gradient", "second"),
               "weights are added in the dtype of the result; torch adds them in their own",
               when=lambda x, args, kwargs, dtype: dtype is torch.float64 and kwargs.get("aweights") is not None),
    Difference(("linalg.lstsq", "linalg.lstsq.grad_oriented"), ("gradient", "second"),
               "residuals that are empty have no gradient to pass on",
               when=lambda x, args, kwargs, dtype: x.shape[-2] <= x.shape[-1] or kwargs.get("driver") == "gelsy"),
    Difference(("svd", "linalg.svd"), ("gradient", "second"),
               "the columns that full matrices add are any that fit: a gradient by them is refused, not left out",
               when=lambda x, args, kwargs, dtype: kwargs.get("some") is False or kwargs.get("full_matrices") is True),
    Difference(("linalg.matrix_power",), ("gradient", "second"),
               "the power 0 does not depend on the matrix: no zeros come back",
               when=lambda x, args, kwargs, dtype: 0 in args),
    Difference(("nn.functional.scaled_dot_product_attention",), ("second",),
               "torch has no second derivative of its CPU kernel",
               when=lambda x, args, kwargs, dtype: x.shape[:-2] == args[0].shape[:-2]),
    Difference(("nn.functional.conv_transpose3d",), ("gradient",),
               "sums of 480 products that cancel, in float32: both are off by some 1e-5 of the largest term",
               when=lambda x, args, kwargs, dtype: dtype is torch.float32 and x.shape[-1] == 4),
    Difference(("nn.functional.multi_head_attention_forward",), ANY_TEST, "dropout draws from another generator",
               when=lambda x, args, kwargs, dtype: kwargs.get("training", True) and args[9] > 0),
    Difference(("nn.functional.multi_head_attention_forward",), ("forward",),
               "five products in a row round at other places",
               when=lambda x, args, kwargs, dtype: dtype in (torch.bfloat16, torch.float16)),
    Difference(("nn.functional.embedding_bag",), ("forward",),
               "rows are scaled to max_norm by a norm in float32; torch rounds the norm to the table's dtype",
               when=lambda x, args, kwargs, dtype: "max_norm" in kwargs and dtype in (torch.bfloat16, torch.float16)),
    Difference(("index_reduce.prod",), ("second",),
               "where an element is 0 its product's gradient is made of what is not 0, and taken for a constant of it",
               lambda x, args, kwargs, dtype: bool((x == 0).any()) or bool((args[2] == 0).any())),
    Difference(("nn.functional.grid_sample",), ("second",),
               "the nearest element does not depend on where in its cell the grid is: no zeros come back",
               when=lambda x, args, kwargs, dtype: kwargs.get("mode") == "nearest"),
    Difference(("nn.functional.ctc_loss",), ("second",), "torch has no second derivative of it"),
    Difference(("linalg.norm.subgradients_at_zero",), ("second",),
               "at 0 there is none: 0 here, NaN in torch where it squares"),
    Difference(("as_strided_scatter",), ("gradient",),
               "torch's gradient is 1 where the input was replaced and 0 where it was not"),
)


def known(operator: str, test: str, sample: Any, dtype: torch.dtype) -> str:
    """The reason why this sample may differ, '' when there is none."""
    rows = (row for row in DIFFERENCES if test in row.tests
            and (row.operators is EVERYWHERE or operator in row.operators))
    return next((row.reason for row in rows if row.when(sample.input, sample.args, sample.kwargs, dtype)), "")
