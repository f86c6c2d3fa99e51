"""Strides of results beside PyTorch's, over the samples of its operator tests with operands that are not row-major.

Strides decide what is a view and what a copy: `x.t().clone().reshape(-1)` is a copy where the clone is laid out as
x.t() is, and a write through it does not show. `DIFFERENT` lists the operators whose results lie otherwise, and why.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import genesis
from tests.opinfo.operators import OPERATORS, Operator, seed
from tests.opinfo.values import DTYPE, Translation, Untranslatable, array, parts

FEW = 4
LAPACK = "torch returns what LAPACK wrote, column by column; ours is row-major"
GAPS = "torch copies the gaps between the input's elements, too; ours has none"
TIES = "computed in several steps, of which another operand decides between orders that one operand leaves open"
VOLUMES = "some of torch's kernels for volumes and paddings give row-major results, some channels-last"

DIFFERENT: dict[str, str] = {
    **dict.fromkeys((
        "cholesky", "cholesky_inverse", "cholesky_solve", "linalg.cholesky", "linalg.cholesky_ex",
        "linalg.eigh", "linalg.inv", "linalg.inv_ex",
        "linalg.lstsq", "linalg.lstsq.grad_oriented", "linalg.lu_factor", "linalg.lu_solve", "linalg.qr",
        "linalg.solve", "linalg.solve_ex", "linalg.svd", "linalg.tensorinv", "lu", "lu_solve", "pca_lowrank", "qr",
        "svd", "svd_lowrank", "triangular_solve"), LAPACK),
    **dict.fromkeys(("as_strided_scatter", "diagonal_scatter", "resize_as_", "select_scatter", "slice_scatter"), GAPS),
    **dict.fromkeys((
        "__rdiv__", "ldexp", "special.zeta", *(f"special.{kind}_polynomial_{letter}" for kind, letters in {
            "chebyshev": "tuvw", "shifted_chebyshev": "tuvw", "hermite": ("h", "he"), "laguerre": "l", "legendre": "p",
        }.items() for letter in letters)), TIES),
    **dict.fromkeys((
        "nn.functional.adaptive_avg_pool3d", "nn.functional.adaptive_max_pool3d", "nn.functional.avg_pool3d",
        "nn.functional.interpolate.area", "nn.functional.pad.reflect", "nn.functional.pad.replicate",
        "nn.functional.pad.replicate_negative", "nn.functional.max_unpool2d", "nn.functional.max_unpool2d.grad",
        "nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d", "nn.functional.channel_shuffle",
        "nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle"), VOLUMES),
    **dict.fromkeys(("__getitem__", "einsum", "linalg.vander", "put", "rot90", "stack", "unravel_index"),
                    "torch leaves the result turned as its own steps made it"),
}


def turned(x: torch.Tensor) -> torch.Tensor:
    """Column-major."""
    order = tuple(reversed(range(x.ndim)))
    return x.permute(order).contiguous().permute(order)


def gapped(x: torch.Tensor) -> torch.Tensor:
    """Every other element of a larger tensor, with two dimensions exchanged."""
    y = x.transpose(0, 1)
    wide = torch.zeros(*y.shape[:-1], 2 * y.shape[-1], dtype=x.dtype)
    wide[..., ::2] = y
    return wide[..., ::2].transpose(0, 1)


def repeated(x: torch.Tensor) -> torch.Tensor:
    """One element along the last dimension, expanded."""
    y = x.transpose(0, -1)[:1].contiguous()
    return y.expand(x.shape[-1], *y.shape[1:]).transpose(0, -1)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """In the format of images and volumes."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.ndim]) if x.ndim in formats else x.clone()


class Both(Translation):
    """Arguments with every tensor laid out by `form`: Genesis's if `ours`, else torch's. `laid` holds torch's."""

    def __init__(self, form: Callable[[torch.Tensor], torch.Tensor], laid: dict[int, torch.Tensor], ours: bool):
        super().__init__()
        self.form, self.laid, self.ours = form, laid, ours

    def tensor(self, x: torch.Tensor) -> Any:
        if x.layout is not torch.strided or x.dtype not in DTYPE:
            raise Untranslatable(x.dtype)
        if id(x) not in self.laid:
            self.laid[id(x)] = self.form(x.detach()) if x.ndim > 1 and x.numel() > 1 else x.detach().clone()
        return ours_like(self.laid[id(x)]) if self.ours else self.laid[id(x)]

    def __call__(self, x: Any) -> Any:
        if isinstance(x, torch.memory_format):
            return getattr(genesis, str(x).removeprefix("torch.")) if self.ours else x
        if isinstance(x, (torch.dtype, torch.device, str)) and not self.ours:
            if isinstance(x, torch.dtype) and x not in DTYPE:
                raise Untranslatable(x)
            return x
        if isinstance(x, dict):
            return {k: self(v) for k, v in x.items() if (k, v) != ("pin_memory", False)}
        return super().__call__(x)


def ours_like(x: torch.Tensor) -> Any:
    """Genesis's tensor with torch's values and strides, made by permuting, slicing and expanding."""
    if x.is_contiguous():
        return genesis.tensor(array(x))
    outward = sorted(range(x.ndim), key=lambda d: (x.stride(d) != 0 or x.shape[d] == 1, -x.stride(d), -x.shape[d]))
    y = x.permute(outward)
    once = y[tuple(slice(1) if y.stride(d) == 0 else slice(None) for d in range(y.ndim))]
    made = genesis.tensor(array(once.contiguous()))
    inner = next((d for d in reversed(range(y.ndim)) if y.shape[d] > 1 and y.stride(d)), None)
    if inner is not None and y.stride(inner) == 2:
        wide = genesis.zeros(*made.shape[:inner], 2 * made.shape[inner], *made.shape[inner + 1:], dtype=made.dtype)
        key = (*(slice(None),) * inner, slice(None, None, 2))
        wide[key] = made
        made = wide[key]
    return made.expand(tuple(y.shape)).permute([outward.index(d) for d in range(x.ndim)])


def strides(x: Any) -> tuple[int, ...]:
    """Those that tell: of dimensions with more than one place."""
    return tuple(stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)


def differing(operator: Operator) -> Iterator[str]:
    """The samples whose results have other strides than torch's."""
    dtype = next((d for d in (torch.float32, torch.int64) if d in operator.info.supported_dtypes("cpu")), None)
    if dtype is None:
        return
    seed(0)
    made = list(itertools.islice(operator.info.sample_inputs("cpu", dtype), 60))
    for sample in made[::max(len(made) // FEW, 1)][:FEW]:
        for form in (turned, gapped, repeated, channels_last):
            laid: dict[int, torch.Tensor] = {}
            try:
                theirs_of, ours_of = Both(form, laid, False), Both(form, laid, True)
                args, kwargs = theirs_of(list(sample.args)), theirs_of(sample.kwargs)
                wanted = operator.info.op(theirs_of(sample.input), *args, **kwargs)
            except (Untranslatable, RuntimeError, IndexError, TypeError, ValueError):  # what torch refuses so laid out
                continue
            if all(x.is_contiguous() for x in laid.values()):
                continue
            try:
                found = operator.function(ours_of(sample.input), *ours_of(list(sample.args)), **ours_of(sample.kwargs))
            except (Untranslatable, RuntimeError, TypeError):  # of other tests: here strides are compared
                continue
            for ours, theirs in zip(parts(found), parts(wanted), strict=False):
                if not isinstance(theirs, torch.Tensor) or not isinstance(ours, genesis.Tensor) or theirs.numel() < 2:
                    continue
                if tuple(ours.shape) == tuple(theirs.shape) and strides(ours) != strides(theirs):
                    yield (f"{form.__name__} {[x.stride() for x in laid.values()]} → {list(theirs.shape)}: "
                           f"{ours.stride()}, not {theirs.stride()}")


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_results_are_laid_out_as_torchs(operator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(differing(operator))
    if operator.name in DIFFERENT:
        assert found, f"{operator.name} has torch's strides now: take it off the list"
    else:
        assert not found, "\n".join(found[:8])


def test_what_is_listed_exists():
    assert set(DIFFERENT) <= {operator.name for operator in OPERATORS}
