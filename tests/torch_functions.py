"""Functions, methods and classes that torch and Genesis both have, each with torch's signatures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from inspect import Signature
from typing import Any, NamedTuple

import torch

import genesis

from .torch_names import inside
from .torch_signatures import in_c, signatures

SPACES = """ Tensor linalg special nn.functional nn nn.Module nn.init nn.utils nn.utils.rnn nn.utils.parametrize optim
    optim.lr_scheduler optim.swa_utils autograd autograd.graph amp utils.data utils.checkpoint func sparse cuda random
    distributions distributed jit compiler testing signal.windows"""


class Function(NamedTuple):
    """A name that both have.

    Attributes:
        name: with the space that it is in, "Tensor.sum".
        ours: Genesis's, which takes what a user gives: a method is bound.
        overloads: torch's signatures, without `self`.
        in_c: C binds the arguments in torch.
    """

    name: str
    ours: Callable[..., Any]
    overloads: tuple[Signature, ...]
    in_c: bool


@cache
def functions() -> tuple[Function, ...]:
    """All of them, in the order of the spaces."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for space in ["", *SPACES.split()]:
            theirs, ours = inside(torch, space), OBJECTS[space]() if space in OBJECTS else inside(genesis, space)
            for name in dir(theirs):
                value = getattr(theirs, name)
                home = getattr(value, "__module__", None) or "torch"  # what is in C has none
                if not name.startswith("_") and callable(value) and home.startswith("torch") and hasattr(ours, name):
                    overloads = tuple([_unbound(x) if space in OBJECTS else x for x in signatures(space, name, value)])
                    found.append(Function(f"{space}.{name}".lstrip("."), getattr(ours, name), overloads, in_c(value)))
    return tuple(found)


OBJECTS: dict[str, Callable[[], Any]] = {"Tensor": lambda: genesis.ones(1), "nn.Module": genesis.nn.Module}
"""Class whose methods are looked at → what makes an object of it."""


def _unbound(signature: Signature) -> Signature:
    parameters = list(signature.parameters.values())
    bound = bool(parameters) and parameters[0].name == "self"
    return signature.replace(parameters=parameters[bound:])
