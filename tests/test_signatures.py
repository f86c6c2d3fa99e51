"""Arguments stand in torch's places and have torch's defaults, in each overload, or a row of
`tests/signature_differences.py` says why not.

What torch takes by position Genesis takes at that place; what torch takes by name alone may have a place here. Other
words for a parameter are `other_words.py`'s, other orders `other_orders.py`'s; `tests/test_keywords.py` asks for names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import pytest
import torch

import genesis
from genesis.frontend.other_orders import FIRST_OF_RANGE, ORDERS
from genesis.frontend.other_words import SYNONYMS

from .signature_differences import Difference, Kind, row, rows
from .torch_functions import functions

PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Found(NamedTuple):
    """A parameter of torch's that is elsewhere here, or has another default."""

    name: str
    parameter: str
    said: str


def stands_for(theirs: str, ours: str) -> bool:
    """Whether the two words are one parameter."""
    return theirs == ours or ours in SYNONYMS.get(theirs, ()) or theirs in SYNONYMS.get(ours, ())


@cache
def elsewhere() -> tuple[Found, ...]:
    return tuple(dict.fromkeys(_of_each(_misplaced)))


@cache
def other_defaults() -> tuple[Found, ...]:
    return tuple(dict.fromkeys(_of_each(_otherwise)))


def _of_each(compare: Callable[[str, Signature, Signature], Iterator[Found]]) -> Iterator[Found]:
    for function in functions():
        try:
            ours = inspect.signature(function.ours)
        except (TypeError, ValueError):  # an attribute that is no method here
            continue
        for theirs in function.overloads:
            yield from compare(function.name, theirs, ours)


def _misplaced(name: str, theirs: Signature, ours: Signature) -> Iterator[Found]:
    """Parameters with a place in torch that have another one here, or none."""
    mine = [x.name for x in ours.parameters.values() if x.kind in PLACED]
    variadic = any(x.kind is Parameter.VAR_POSITIONAL for x in ours.parameters.values())
    last = name.rpartition(".")[2]
    for at, parameter in enumerate(theirs.parameters.values()):
        if parameter.name.startswith("_") or (last in ORDERS and len(theirs.parameters) > len(mine)):
            return
        if parameter.kind is Parameter.VAR_POSITIONAL and not (variadic or last in ORDERS or inspect.isclass(ours)):
            several = at < len(mine) and last in TAKING_SEVERAL
            if not several:
                yield Found(name, f"*{parameter.name}", "are taken as one")
        elif parameter.kind in PLACED and at >= len(mine):
            if not variadic:
                yield Found(name, parameter.name, f"has no place {at}")
            return
        elif parameter.kind in PLACED and not stands_for(parameter.name, mine[at]):
            yield Found(name, parameter.name, f"is at {at}, where {mine[at]} is")


TAKING_SEVERAL = frozenset({"GRU", "LSTM", "RNN"})
"""Classes whose stub hands on all arguments."""


def _otherwise(name: str, theirs: Signature, ours: Signature) -> Iterator[Found]:
    """Parameters whose default is another one than torch's, as far as torch says it."""
    for parameter in theirs.parameters.values():
        if parameter.default in (Parameter.empty, ...):
            continue
        words = (parameter.name, *SYNONYMS.get(parameter.name, ()))
        mine = next((ours.parameters[x] for x in words if x in ours.parameters), None)
        if mine is None or mine.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        if mine.default is Parameter.empty and FIRST_OF_RANGE.get(name, ("",))[0] != mine.name:
            yield Found(name, parameter.name, f"has to be given, {parameter.default!r} in torch")
        elif not _equal(parameter.default, mine.default):
            yield Found(name, parameter.name, f"is {mine.default!r} by default, {parameter.default!r} in torch")


def _equal(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, (list, tuple)) and isinstance(ours, (list, tuple)):
        return list(theirs) == list(ours)
    if type(theirs) is type(ours) or {type(theirs), type(ours)} == {int, float}:
        return bool(theirs == ours)
    return str(theirs).rpartition(".")[2] == str(ours).rpartition(".")[2]  # torch.float32, genesis.float32


def test_arguments_stand_in_torchs_places() -> None:
    assert [" ".join(x) for x in elsewhere() if row("place", x.name, x.parameter) is None] == []


def test_defaults_are_torchs() -> None:
    assert [" ".join(x) for x in other_defaults() if row("default", x.name, x.parameter) is None] == []


@pytest.mark.parametrize(("kind", "difference"), rows("place", "default"), ids=lambda x: getattr(x, "names", x)[:30])
def test_a_row_is_needed(kind: Kind, difference: Difference) -> None:
    found = elsewhere() if kind == "place" else other_defaults()
    assert any(row(kind, x.name, x.parameter) is difference for x in found)


def test_signatures_of_every_kind_are_compared() -> None:
    counted = {x.name: len(x.overloads) for x in functions()}
    assert sum(counted.values()) > 2000
    for name in ("cat", "Tensor.add_", "nn.functional.conv2d", "nn.functional.max_pool2d", "unique", "nn.LSTM",
                 "linalg.norm", "optim.AdamW", "nn.Module.register_buffer"):
        assert counted[name] > 0, name


def test_a_swapped_place_and_another_default_are_found() -> None:
    def theirs(input: Any, dim: int = 0, *, eps: float = 1e-5) -> None: ...
    def ours(input: Any, eps: float = 1e-6, dim: int = 0) -> None: ...
    a, b = inspect.signature(theirs), inspect.signature(ours)
    assert [x.parameter for x in _misplaced("f", a, b)] == ["dim"]
    assert [x.parameter for x in _otherwise("f", a, b)] == ["eps"]


CALLS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("add alpha other", lambda T, x: T.add(x, 2, x)),
    ("add_ alpha other", lambda T, x: x.clone().add_(-0.5, x)),
    ("add number alpha", lambda T, x: T.add(x, 1, 2)),
    ("sub_ alpha other", lambda T, x: x.clone().sub_(2, x)),
    ("rsub number alpha", lambda T, x: T.rsub(x, 1, 2)),
    ("addcmul_ value first", lambda T, x: x.clone().addcmul_(0.5, x, x)),
    ("addcdiv_ value first", lambda T, x: x.clone().addcdiv_(-0.5, x, x + 9)),
    ("addcmul value first", lambda T, x: T.addcmul(x, 0.5, x, x)),
    ("addmm beta alpha", lambda T, x: T.addmm(2, T.eye(2), 3, x, x.t())),
    ("addmm beta", lambda T, x: T.addmm(2, T.eye(2), x, x.t())),
    ("a method's addmm", lambda T, x: T.eye(2).addmm(2, 3, x, x.t())),
    ("squeeze", lambda T, x: x[None, None].squeeze(0, 1)),
    ("count_nonzero", lambda T, x: x.count_nonzero(0, 1)),
    ("broadcast_to", lambda T, x: x.broadcast_to(2, 2, 3)),
    ("hsplit", lambda T, x: x.hsplit(1, 2)[1]),
    ("histogramdd", lambda T, x: T.histogramdd(x, (2, 2, 2), (-3.0, 3.0) * 3)[0]),
    ("histogram", lambda T, x: T.histogram(x)[0]),
    ("randint high", lambda T, x: T.randint(high=1, size=(2,))),
    ("randint_like high", lambda T, x: T.randint_like(x, high=1)),
    ("arange end", lambda T, x: T.arange(end=3)),
    ("mse size_average", lambda T, x: T.nn.functional.mse_loss(x, x + 1, False)),
    ("nll size_average", lambda T, x: T.nn.functional.nll_loss(x, T.tensor([0, 2]), None, False)),
    ("CrossEntropyLoss ignore_index", lambda T, x: T.nn.CrossEntropyLoss(None, None, 0)(x, T.tensor([0, 2]))),
    ("MSELoss of old", lambda T, x: T.nn.MSELoss(False)(x, x + 1)),
    ("KLDivLoss of old", lambda T, x: T.nn.KLDivLoss(False)(x, x.softmax(1))),
    ("softmax stacklevel", lambda T, x: T.nn.functional.softmax(x, 1, 3, T.float64)),
    ("torch.kl_div", lambda T, x: T.kl_div(x, x.softmax(1), 2)),
    ("torch.bce", lambda T, x: T.binary_cross_entropy_with_logits(x, x.sigmoid(), None, x.exp(), 0)),
    ("torch.layer_norm", lambda T, x: T.layer_norm(x, (3,), x[0], x[1], 1e-5, False)),
    ("max of a tensor's dimension", lambda T, x: T.max(x, T.tensor(1), True)[0]),
    ("tensordot", lambda T, x: T.tensordot(x, x, T.tensor([[1], [1]]))),
    ("normal of a size", lambda T, x: T.normal(T.tensor(2.0), 0.0, (2,))),
    ("reshape to a tensor", lambda T, x: x.reshape(T.tensor(3), T.tensor(2))),
    ("pad by a tensor", lambda T, x: T.nn.functional.pad(x, (T.tensor(1), 0))),
    ("diag_embed at a tensor", lambda T, x: T.diag_embed(x, T.tensor(1))),
    ("chunk by a tensor", lambda T, x: x.chunk(T.tensor(2))[1]),
    ("embedding_bag of old", lambda T, x: T.nn.functional.embedding_bag(x, T.tensor([[0, 1]]))),
)
"""Calls as programs write them, that were refused once."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_a_call_in_torchs_order_gives_torchs_numbers(call: Callable[[Any, Any], Any]) -> None:
    values = [[0.5, -1.5, 2.0], [-0.25, 3.0, 1.0]]
    found, wanted = (call(library, library.tensor(values)) for library in (genesis, torch))
    assert found.shape == wanted.shape
    assert found.flatten().tolist() == pytest.approx(wanted.flatten().tolist(), rel=1e-5, abs=1e-6)  # float32


def test_an_order_that_is_none_of_torchs_is_refused() -> None:
    x = genesis.ones(2, 2)
    for call in (lambda: genesis.add(x, x, 2), lambda: x.addcmul_(x, x, x), lambda: genesis.addmm(x, x, x, x),
                 lambda: x.add_(1, x, 2), lambda: genesis.mul(x, 2, x)):
        with pytest.raises(TypeError, match="positional argument"):
            call()
    with pytest.raises(TypeError, match="missing 1 required argument: 'start'"):
        genesis.arange()
