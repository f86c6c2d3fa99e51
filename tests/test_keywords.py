"""Every keyword of torch's functions, methods and classes that Genesis has is taken here, or a row of
`tests/signature_differences.py` says why not.

The list is torch's own: signatures of what is Python, stubs and operator schemas of what is C (`torch_signatures.py`).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from inspect import Parameter
from typing import Any, NamedTuple

import pytest
import torch

import genesis

from .signature_differences import Difference, Kind, row, rows
from .torch_functions import functions
from .torch_signatures import NUMPY


class Keyword(NamedTuple):
    """A keyword of one of torch's functions."""

    name: str
    keyword: str
    taken: bool


@cache
def keywords() -> tuple[Keyword, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(dict.fromkeys(_walk()))


def _walk() -> Iterator[Keyword]:
    for function in functions():
        for signature in function.overloads:
            for word in _words(signature, function.in_c):
                yield Keyword(function.name, word, takes(function.ours, word))


def _words(signature: inspect.Signature, numpys: bool) -> Iterator[str]:
    for word, parameter in signature.parameters.items():
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY) and not word.startswith("_"):
            yield from (word, *(NUMPY.get(word, ()) if numpys else ()))


def takes(function: Callable[..., Any], word: str) -> bool:
    """Whether the function has this keyword. Where its signature does not say so, it is asked: a call with nothing
    else is refused for this keyword, or for something else."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # an attribute that is no method here
        return False
    found = parameters.get(word)
    if found is not None and found.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
        return True
    if any(x.kind is Parameter.VAR_KEYWORD for x in parameters.values()):
        return True
    try:
        function(**{word: None})
    except TypeError as error:
        return f"unexpected keyword argument '{word}'" not in str(error)
    except Exception:
        return True
    return True


def test_every_keyword_is_taken_or_left_out_for_a_reason() -> None:
    assert [f"{x.name}({x.keyword}=)" for x in keywords()
            if not x.taken and row("keyword", x.name, x.keyword) is None] == []


@pytest.mark.parametrize(("kind", "difference"), rows("keyword"), ids=lambda x: getattr(x, "names", x)[:30])
def test_a_row_leaves_something_out(kind: Kind, difference: Difference) -> None:
    assert any(row(kind, x.name, x.keyword) is difference for x in keywords() if not x.taken)


def test_the_walk_sees_torchs_functions() -> None:
    found = {(x.name, x.keyword) for x in keywords()}
    assert len(found) > 6000
    assert found >= {("cat", "axis"), ("zeros", "layout"), ("Tensor.sum", "keepdims"), ("linalg.norm", "ord"),
                     ("nn.Conv2d", "padding_mode"), ("optim.AdamW", "amsgrad"), ("special.expit", "input")}


CALLS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("cat axis", lambda T, x: T.cat([x, x], axis=1)),
    ("stack axis", lambda T, x: T.stack(tensors=[x, x], axis=-1)),
    ("squeeze axis", lambda T, x: x[:1].squeeze(axis=0)),
    ("unsqueeze axis", lambda T, x: x.unsqueeze(axis=1)),
    ("unbind axis", lambda T, x: x.unbind(axis=1)[1]),
    ("narrow axis", lambda T, x: x.narrow(axis=1, start=1, length=2)),
    ("softmax axis", lambda T, x: T.softmax(x, axis=0)),
    ("topk axis", lambda T, x: x.topk(2, axis=1).values),
    ("median of numpy's words", lambda T, x: T.median(a=x, axis=0, keepdims=True).values),
    ("max of two", lambda T, x: T.max(x, other=x.flip(dims=(0,)))),
    ("add x2", lambda T, x: T.add(x1=x, x2=x)),
    ("in place input", lambda T, x: T.exp_(input=x.clone())),
    ("split_size", lambda T, x: x.split(split_size=2, dim=1)[0]),
    ("repeat repeats", lambda T, x: x.repeat(repeats=(2, 1))),
    ("repeat_interleave repeats", lambda T, x: T.repeat_interleave(repeats=T.tensor([1, 2]))),
    ("tensor_split indices", lambda T, x: T.tensor_split(x, indices=(1,), dim=1)[1]),
    ("tensor_split sections", lambda T, x: T.tensor_split(x, sections=3, dim=1)[0]),
    ("permute dims", lambda T, x: x.permute(dims=(1, 0))),
    ("reshape shape", lambda T, x: T.reshape(x, shape=(3, 2))),
    ("view size", lambda T, x: x.view(size=(6,))),
    ("expand size", lambda T, x: x[:1].expand(size=(4, 3))),
    ("std unbiased", lambda T, x: x.std(unbiased=False)),
    ("std dim unbiased", lambda T, x: T.std(x, 1, unbiased=True)),
    ("zeros layout", lambda T, x: T.zeros(size=(2, 2), layout=T.strided, pin_memory=False)),
    ("zeros_like layout", lambda T, x: T.zeros_like(x, layout=T.strided)),
    ("mse size_average", lambda T, x: T.nn.functional.mse_loss(x, 2 * x, size_average=False)),
    ("mse reduce", lambda T, x: T.nn.functional.mse_loss(x, 2 * x, reduce=False)),
    ("L1Loss size_average", lambda T, x: T.nn.L1Loss(size_average=False)(x, 2 * x)),
    ("NLLLoss reduce", lambda T, x: T.nn.NLLLoss(reduce=False)(x.log_softmax(1), T.tensor([0, 2]))),
    ("argsort out", lambda T, x: T.argsort(x, stable=True, out=T.empty(2, 3, dtype=T.int64))),
    ("transpose_copy out", lambda T, x: T.transpose_copy(x, 0, 1, out=T.empty(3, 2))),
    ("add alpha", lambda T, x: T.add(x, x, alpha=T.tensor(0.5))),
    ("sub alpha", lambda T, x: x.sub(x, alpha=T.tensor(2))),
    ("add_ alpha", lambda T, x: x.clone().add_(x, alpha=T.tensor(0.5))),
    ("addcmul value", lambda T, x: T.addcmul(x, x, x, value=T.tensor(0.5))),
    ("addcdiv_ value", lambda T, x: x.clone().addcdiv_(x, x + 9, value=T.tensor(-0.5))),
    ("addmm alpha beta", lambda T, x: T.addmm(T.eye(2), x, x.t(), beta=T.tensor(0.5), alpha=T.tensor(2.0))),
    ("baddbmm beta", lambda T, x: T.baddbmm(T.ones(1, 2, 2), x[None], x.t()[None], beta=T.tensor(0.5))),
    ("masked_fill value", lambda T, x: x.masked_fill(x > 0, value=T.tensor(7.0))),
    ("fill_ value", lambda T, x: x.clone().fill_(value=T.tensor(3.0))),
    ("full fill_value", lambda T, x: T.full((2,), fill_value=T.tensor(3.0))),
    ("clamp min max", lambda T, x: x.clamp(min=T.tensor(0.0), max=T.tensor(1.0))),
    ("scatter value", lambda T, x: x.scatter(1, T.tensor([[0], [2]]), value=5.0)),
    ("lerp weight", lambda T, x: T.lerp(x, x + 1, weight=T.tensor(0.25))),
    ("leaky_relu slope", lambda T, x: T.nn.functional.leaky_relu(x, negative_slope=0.3)),
    ("sum dtype", lambda T, x: T.sum(x, dtype=T.float64)),
    ("set_ of a part", lambda T, x: T.empty(0).set_(x.clone(), storage_offset=1, size=(2,), stride=(3,))),
    ("torch.embedding", lambda T, x: T.embedding(weight=x, indices=T.tensor([1, 0]))),
    ("torch.batch_norm", lambda T, x: T.batch_norm(x, x[0], x[1], x[0], x[1].abs(), False, 0.1, 1e-5, False)),
    ("torch.instance_norm",
     lambda T, x: T.instance_norm(x[None], x[:, 0], x[:, 1], None, None, True, 0.1, 1e-5, False)),
)
"""Calls as programs write them, with words that were refused once."""


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_a_call_with_torchs_words_gives_torchs_numbers(call: Callable[[Any, Any], Any]) -> None:
    values = [[0.5, -1.5, 2.0], [-0.25, 3.0, 1.0]]
    found, wanted = (call(library, library.tensor(values)) for library in (genesis, torch))
    assert found.shape == wanted.shape
    assert found.tolist() == pytest.approx(wanted.tolist(), rel=1e-5, abs=1e-6) if found.ndim < 2 else [
        pytest.approx(row, rel=1e-5, abs=1e-6) for row in wanted.flatten(1).tolist()] == found.flatten(1).tolist()


def test_a_word_that_is_no_parameters_is_refused_as_ever() -> None:
    x = genesis.ones(2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        genesis.cat([x], axes=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axis'"):
        genesis.cat([x], 1, axis=1)
    with pytest.raises(RuntimeError, match=r"(?s)layout=.*sparse_coo_tensor"):
        genesis.zeros(2, layout="sparse_coo")
