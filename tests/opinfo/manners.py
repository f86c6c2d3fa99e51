"""The ways in which a call can be written: by keywords, by position, with numpy's words, with tensors for numbers.

Each is made of a sample of torch's and one of torch's signatures, so that torch is asked in the same words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import torch

import genesis
from tests.opinfo.operators import METHODS_ONLY, Operator, look_up
from tests.torch_signatures import NUMPY, in_c, signatures


class Pair(NamedTuple):
    """A function that both have.

    Attributes:
        name: as users write it.
        theirs, ours: the two.
        overloads: torch's signatures of it.
        in_c: C binds its arguments.
    """

    name: str
    theirs: Callable[..., Any]
    ours: Callable[..., Any]
    overloads: list[Signature]
    in_c: bool


class Call(NamedTuple):
    """Arguments, as torch's."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def pairs(operator: Operator) -> Iterator[Pair]:
    """The function and the method of an operator's name."""
    name = operator.info.name
    space, _, last = name.rpartition(".")
    theirs, ours = look_up(torch, name), look_up(genesis, name)
    if callable(theirs) and callable(ours) and name not in METHODS_ONLY and not inspect.isclass(theirs):
        yield Pair(name, theirs, ours, signatures(space, last, theirs), in_c(theirs))
    theirs, ours = (getattr(kind, name, None) for kind in (torch.Tensor, genesis.Tensor))
    if callable(theirs) and callable(ours) and not name.startswith("_"):
        yield Pair(f"Tensor.{name}", theirs, ours, signatures("Tensor", name, theirs), in_c(theirs))


def by_keywords(pair: Pair, sample: Any) -> Iterator[Call]:
    """All that has a name by its name."""
    for signature in pair.overloads:
        given = _bound(signature, sample)
        if given is not None:
            alone = [x.name for x in signature.parameters.values()
                     if x.kind is Parameter.POSITIONAL_ONLY or x.name == "self"]
            yield Call(tuple(given[x] for x in alone if x in given),
                       {x: value for x, value in given.items() if x not in alone})


def with_numpys_words(pair: Pair, sample: Any) -> Iterator[Call]:
    """By keywords, numpy's where torch takes them."""
    for args, kwargs in by_keywords(pair, sample) if pair.in_c else ():
        renamed = {NUMPY[word][0] if word in NUMPY else word: value for word, value in kwargs.items()}
        if renamed.keys() != kwargs.keys():
            yield Call(args, renamed)


def by_position(pair: Pair, sample: Any) -> Iterator[Call]:
    """All that has a place in its place, with torch's defaults in between."""
    for signature in pair.overloads:
        given = _bound(signature, sample)
        if given is None:
            continue
        args: list[Any] = []
        placed = [x for x in signature.parameters.values()
                  if x.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
        last = max((i for i, x in enumerate(placed) if x.name in given), default=-1)
        for x in placed[:last + 1]:
            value = given.get(x.name, x.default)
            if value is ... or value is Parameter.empty:
                break
            args.append(value)
            given.pop(x.name, None)
        yield Call(tuple(args), given)


def with_tensors_for_numbers(pair: Pair, sample: Any) -> Iterator[Call]:
    """One number at a time as a tensor without dimensions."""
    call = Call((sample.input, *sample.args), sample.kwargs)
    for at, value in enumerate(call.args):
        if type(value) in (int, float):
            yield call._replace(args=(*call.args[:at], torch.tensor(value), *call.args[at + 1:]))
    for word, value in call.kwargs.items():
        if type(value) in (int, float):
            yield call._replace(kwargs={**call.kwargs, word: torch.tensor(value)})


MANNERS: dict[str, Callable[[Pair, Any], Iterator[Call]]] = {
    "keywords": by_keywords, "numpy": with_numpys_words, "position": by_position, "tensors": with_tensors_for_numbers}


def _bound(signature: Signature, sample: Any) -> dict[str, Any] | None:
    """The sample's arguments by name; None where they do not fit, or some have no name."""
    try:
        given = signature.bind(sample.input, *sample.args, **sample.kwargs).arguments
    except TypeError:
        return None
    kinds = {x.name: x.kind for x in signature.parameters.values()}
    if any(kinds[x] in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for x in given):
        return None
    return dict(given)
