"""Suggestions: the name that was probably meant by one that does not exist."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from genesis.ir.torch_paths import is_path

if TYPE_CHECKING:
    from types import ModuleType

OTHER_WORDS: Final = {"gpu": "cuda", "nvidia": "cuda", "learning_rate": "lr", "axis": "dim", "keepdims": "keepdim",
                      "momentum_decay": "momentum", "l2": "weight_decay", "inplace_": "inplace"}
"""Other libraries' words → ours, where no similar spelling leads there."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' with the known name that is nearest, '' where none is near.

    >>> did_you_mean("sofmax", ["softmax", "sort"]), did_you_mean("gpu", ["cpu", "cuda"]), did_you_mean("x", ["sort"])
    ("; did you mean 'softmax'?", "; did you mean 'cuda'?", '')
    """
    names = sorted(set(known))
    if OTHER_WORDS.get(name.lower()) in names:
        return f"; did you mean {OTHER_WORDS[name.lower()]!r}?"
    from difflib import get_close_matches  # here: a program without a wrong name needs none of it
    small = {x.lower(): x for x in names}
    found = [name.lower()] if name.lower() in small else get_close_matches(name.lower(), small, 1)
    return f"; did you mean {small[found[0]]!r}?" if found else ""


class MissingName(AttributeError):
    """There is no such attribute. What is near is looked for when the message is read: `hasattr` does not ask."""

    def __init__(self, problem: str, name: str, known: Callable[[], Iterable[str]], space: str | None = None,
                 home: str = ""):
        super().__init__(problem, name=name)
        self._known, self._space, self._home = known, space, home

    def __str__(self) -> str:
        name = self.name or ""
        if self._space is not None:  # a module of torch's name: some names are left out
            from genesis.ir.absent import why
            sentence = why(self._space, name) or (self._home and why(self._home.partition(".")[2], name))
            if sentence:
                return f"{super().__str__()}: {sentence}"
        near = "" if name.startswith("_") else did_you_mean(name, self._known())
        if self._home and not name.startswith("__") and not near:  # of a path of torch's
            return f"{super().__str__()}: {self._home} has what there is of it"
        return super().__str__() + near


def suggesting(module: str, later: Iterable[str] = ()) -> Callable[[str], object]:
    """A `__getattr__` for the module (PEP 562) that says which of its names is near the one that it lacks.

    Args:
        later: names of modules inside it, which are imported when they are asked for.
    """
    known = frozenset(later)

    def __getattr__(name: str) -> ModuleType:
        if name in known or is_path(f"{module}.{name}"):
            return import_module(f"{module}.{name}")
        raise MissingName(f"module {module!r} has no attribute {name!r}", name, lambda: public_names(module),
                          module.partition(".")[2])
    return __getattr__


def public_names(module: str) -> list[str]:
    """The names that a module offers to its users."""
    return [name for name in dir(sys.modules[module]) if not name.startswith("_") and not is_path(f"{module}.{name}")]


def check_keywords(cls: type, given: Iterable[str]) -> None:
    """TypeError for a keyword that the class's `__init__` does not take, with the one that it takes instead."""
    error = unexpected(cls.__init__, cls.__name__, given)  # type: ignore[misc]
    if error is not None:
        raise error


class Suggesting:
    """A class whose constructor says which of its keywords is near a wrong one."""

    __slots__ = ()

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """An instance whose `__init__` takes these options."""
        if options:
            check_keywords(cls, options)
        return super().__new__(cls)


def unexpected(function: Callable[..., object], name: str, given: Iterable[str]) -> TypeError | None:
    """The error for the first of these keywords that a method does not take; None if it takes all of them."""
    allowed = _keywords(function)
    wrong = None if allowed is None else next((keyword for keyword in given if keyword not in allowed), None)
    return None if wrong is None or allowed is None else TypeError(
        f"{name}() got an unexpected keyword argument {wrong!r}{did_you_mean(wrong, allowed)}")


@lru_cache(1 << 10)
def _keywords(function: Callable[..., object]) -> frozenset[str] | None:
    """The keywords that a function takes, None where it takes any."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # a decorator may take more than what it wraps
        parameters = list(signature.parameters.values())[1:]
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
