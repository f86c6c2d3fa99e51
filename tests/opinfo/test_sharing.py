"""Whether a result shares memory with an argument, as torch's does: a write through one shows in the other, or not.

Asked of every operator of torch's table that Genesis has a name for, on torch's samples, in both directions; and of
ways to call operators that change nothing, which the samples have few of.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch

import genesis
from genesis import Tensor
from genesis.nn import functional as F
from tests.opinfo.operators import OPERATORS
from tests.opinfo.values import DTYPE, Translation, Untranslatable, parts

FEW, MOST = 4, 12

DIFFERENT_MEMORY = {
    "as_strided.partial_views": "the sample looks beyond its input into the rest of torch's storage",
    "resize_as_": "torch's table calls it on a copy",
}
"""Operators whose samples ask something else, with the reason."""


by_name = pytest.mark.parametrize("operator", [o for o in OPERATORS if o.name not in DIFFERENT_MEMORY], ids=repr)


@by_name
def test_operator(operator):
    check(operator, FEW)


@pytest.mark.sweep
@by_name
def test_operator_on_more_samples(operator):
    check(operator, MOST)


def check(operator: Any, most: int) -> None:
    """The first samples share what torch's share."""
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.float32, torch.int64):
            if dtype in operator.info.supported_dtypes("cpu"):
                made = operator.info.sample_inputs("cpu", dtype, requires_grad=False)
                for sample in itertools.islice(made, most):
                    problems += sharing_differs(operator, sample)
    assert not problems, "\n".join(problems[:6])


def sharing_differs(operator: Any, sample: Any) -> list[str]:
    """Which results share memory with an argument in one framework only. Values and errors are other tests' matter."""
    translate = Translation()
    given = [x for x in parts([sample.input, *sample.args, list(sample.kwargs.values())])
             if isinstance(x, torch.Tensor) and x.numel() and x.dtype in DTYPE]
    try:
        args, kwargs = (translate(sample.input), *translate(sample.args)), translate(sample.kwargs)
        pairs = [(x, translate(x)) for x in given]
        theirs = tensors(operator.info.op(sample.input, *sample.args, **sample.kwargs), torch.Tensor)
        ours = tensors(operator.function(*args, **kwargs), Tensor)
    except (Untranslatable, RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return []
    return [f"result {i} of {tuple(x.shape)}, {x.stride()}, {sample.args}, {sample.kwargs}: torch "
            f"{'shares' if torch_shares(result, x) else 'copies'}"
            for i, (result, own) in enumerate(zip(theirs, ours, strict=False)) if result.numel()
            for x, y in pairs if torch_shares(result, x) != shares(own, y)]


def tensors(result: Any, kind: type) -> list[Any]:
    """The tensors in a result."""
    return [x for x in parts(result) if isinstance(x, kind)]


def torch_shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two of torch's tensors look at one memory."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def shares(a: Any, b: Any) -> bool:
    """Whether two of ours do."""
    return a.storage is b.storage


UNCHANGING = {
    "repeat_interleave once": lambda T, f, x: x.repeat_interleave(1),
    "repeat_interleave once along a dimension": lambda T, f, x: x.repeat_interleave(1, 0),
    "repeat_interleave of one column": lambda T, f, x: x[..., :1].repeat_interleave(2, -1),
    "repeat once": lambda T, f, x: x.repeat(*[1] * x.dim()),
    "tile once": lambda T, f, x: T.tile(x, (1,)),
    "pixel_shuffle by 1": lambda T, f, x: f.pixel_shuffle(x, 1),
    "pixel_unshuffle by 1": lambda T, f, x: f.pixel_unshuffle(x, 1),
    "channel_shuffle of one group": lambda T, f, x: f.channel_shuffle(x, 1),
    "pad by nothing": lambda T, f, x: f.pad(x, (0, 0)),
    "replicate nothing": lambda T, f, x: f.pad(x, (0, 0, 0, 0), "replicate"),
    "reflect and cut": lambda T, f, x: f.pad(x, (-1, 0, 0, 0), "reflect"),
    "roll by 0": lambda T, f, x: x.roll(0, 0),
    "rot90 by 0": lambda T, f, x: x.rot90(0),
    "rot90 by 2": lambda T, f, x: x.rot90(2),
    "flip nothing": lambda T, f, x: x.flip(()),
    "cat of one": lambda T, f, x: T.cat([x]),
    "stack of one": lambda T, f, x: T.stack([x]),
    "hstack of one": lambda T, f, x: T.hstack([x]),
    "cartesian_prod of one": lambda T, f, x: T.cartesian_prod(x.reshape(-1)),
    "block_diag of one": lambda T, f, x: T.block_diag(x.reshape(1, -1)),
    "atleast_1d": lambda T, f, x: T.atleast_1d(x),
    "atleast_3d": lambda T, f, x: T.atleast_3d(x),
    "sum over nothing": lambda T, f, x: x.sum_to_size(*x.shape),
    "sum over a 1": lambda T, f, x: x[..., :1].sum(-1),
    "mean over a 1": lambda T, f, x: x[..., :1].mean(-1),
    "amax over a 1": lambda T, f, x: x[..., :1].amax(-1),
    "median over a 1": lambda T, f, x: x[..., :1].median(-1).values,
    "cumsum of a 1": lambda T, f, x: x[..., :1].cumsum(-1),
    "sort of a 1": lambda T, f, x: x[..., :1].sort(-1).values,
    "gather of all": lambda T, f, x: x.take(T.arange(x.numel())),
    "ravel": lambda T, f, x: x.ravel(),
    "flatten one dimension": lambda T, f, x: x.flatten(-1),
    "flatten": lambda T, f, x: x.flatten(),
    "reshape to itself": lambda T, f, x: x.reshape(x.shape),
    "expand to itself": lambda T, f, x: x.expand(x.shape),
    "contiguous": lambda T, f, x: x.contiguous(),
    "to its own dtype": lambda T, f, x: x.to(x.dtype),
    "to itself, copied": lambda T, f, x: x.to(x.dtype, copy=True),
    "float": lambda T, f, x: x.float(),
    "cpu": lambda T, f, x: x.cpu(),
    "tensor of it": lambda T, f, x: T.tensor(x),
    "as_tensor": lambda T, f, x: T.as_tensor(x),
    "asarray": lambda T, f, x: T.asarray(x),
    "asarray, copied": lambda T, f, x: T.asarray(x, copy=True),
    "real": lambda T, f, x: T.real(x),
    "conj": lambda T, f, x: T.conj(x),
    "positive": lambda T, f, x: T.positive(x),
    "round": lambda T, f, x: x.round(),
    "clone": lambda T, f, x: x.clone(),
    "detach": lambda T, f, x: x.detach(),
    "einsum that keeps": lambda T, f, x: T.einsum("...i->...i", x),
    "einsum that exchanges": lambda T, f, x: T.einsum("...ij->...ji", x),
    "einsum of a diagonal": lambda T, f, x: T.einsum("...ii->...i", x),
    "where of itself": lambda T, f, x: T.where(x > -1, x, x),
    "every index": lambda T, f, x: x[...],
    "all of a mask": lambda T, f, x: x[x == x],
    "tril_ of a copy": lambda T, f, x: x.tril(9),
    "dropout of an evaluation": lambda T, f, x: f.dropout(x, 0.5, False),
    "dropout of nothing": lambda T, f, x: f.dropout(x, 0.0, True),
    "alpha_dropout of an evaluation": lambda T, f, x: f.alpha_dropout(x, 0.5, False),
    "relu": lambda T, f, x: f.relu(x),
    "interpolate to its size": lambda T, f, x: f.interpolate(x, size=tuple(x.shape[2:])),
    "avg_pool2d of 1": lambda T, f, x: f.avg_pool2d(x, 1),
    "max_pool2d of 1": lambda T, f, x: f.max_pool2d(x, 1),
    "adaptive_avg_pool2d to its size": lambda T, f, x: f.adaptive_avg_pool2d(x, x.shape[2:]),
    "unfold of 1": lambda T, f, x: f.unfold(x, 1),
    "diff of order 0": lambda T, f, x: T.diff(x, n=0),
    "matrix_power 1": lambda T, f, x: T.linalg.matrix_power(x, 1),
    "movedim nowhere": lambda T, f, x: x.movedim(0, 0),
    "squeeze nothing": lambda T, f, x: x.squeeze(0),
    "chunk in one": lambda T, f, x: x.chunk(1)[0],
    "tensor_split in one": lambda T, f, x: x.tensor_split(1)[0],
    "nan_to_num": lambda T, f, x: x.nan_to_num(),
    "clamp": lambda T, f, x: x.clamp(-100, 100),
    "broadcast_tensors": lambda T, f, x: T.broadcast_tensors(x, x)[1],
    "meshgrid of one": lambda T, f, x: T.meshgrid(x.reshape(-1), indexing="ij")[0],
    "Identity": lambda T, f, x: T.nn.Identity()(x),
    "Flatten": lambda T, f, x: T.nn.Flatten()(x),
    "Dropout of an evaluation": lambda T, f, x: T.nn.Dropout().eval()(x),
    "PixelShuffle by 1": lambda T, f, x: T.nn.PixelShuffle(1)(x),
}


@pytest.mark.parametrize("layout", ["row-major", "exchanged"])
@pytest.mark.parametrize("name", UNCHANGING)
def test_call_that_changes_nothing(name, layout):
    theirs, ours = (T.arange(36.0).reshape(1, 4, 3, 3) + 1 for T in (torch, genesis))
    if layout == "exchanged":
        theirs, ours = theirs.transpose(2, 3), ours.transpose(2, 3)
    expected = UNCHANGING[name](torch, torch.nn.functional, theirs)
    found = UNCHANGING[name](genesis, F, ours)
    assert shares(found, ours) == torch_shares(expected, theirs)
    assert (found is ours) == (expected is theirs)
