"""torch's public modules and names, found by walking the installed torch, beside those of Genesis."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pkgutil
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import torch

import genesis

CLASSES = ("Tensor", "nn.Module")
"""Classes whose methods are names, too."""


class Name(NamedTuple):
    """A public name of torch's.

    Attributes:
        space: the module or class that it is in, without "torch."; "" for the top.
        name: without the space.
        kind: "there", "explained" (asking raises, and says what to use instead) or "missing".
        sentence: what asking says.
        module: whether it names a module.
    """

    space: str
    name: str
    kind: str
    sentence: str = ""
    module: bool = False


def names() -> Iterator[Name]:
    """Every public name, module by module. What is in a module that is left out whole is not looked at."""
    quiet = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
        warnings.simplefilter("ignore")
        yield from _walk("torch", importlib.import_module("genesis"), set())
        for space in CLASSES:
            theirs, ours = inside(torch, space), inside(genesis, space)
            for name in methods(theirs):
                yield _asked(space, name, ours)


def methods(theirs: type) -> list[str]:
    """The public names of a class, but for functions that other libraries give it: transformers leaves
    `torch.nn.Module.smart_apply` behind when it loads a model."""
    return [name for name in dir(theirs) if not name.startswith("_")
            and not (inspect.isfunction(value := getattr(theirs, name)) and not _from_torch(value))]


def inside(root: Any, space: str) -> Any:
    """What a dotted name leads to."""
    for part in filter(None, space.split(".")):
        root = getattr(root, part)
    return root


def _walk(path: str, ours: Any, seen: set[str]) -> Iterator[Name]:
    seen.add(path)
    try:
        theirs = importlib.import_module(path)
    except Exception:  # a part of torch that wants a package that is not here
        return
    space = path.partition(".")[2]
    for name in _public(theirs):
        yield _asked(space, name, ours)
    for name in _modules(theirs) if path != "torch.ops" else ():  # what is below is registered while a program runs
        below = f"{path}.{name}"
        if below in seen:
            continue
        found = _asked(space, name, ours)
        try:
            importlib.import_module(f"genesis{path.removeprefix('torch')}.{name}")
        except ImportError as error:
            seen.add(below)
            explained = "there is no module" in str(error)
            yield found._replace(kind="explained" if explained else "missing", module=True, sentence=str(error))
            continue
        yield Name(space, name, "there", module=True)
        yield from _walk(below, importlib.import_module(f"genesis{below.removeprefix('torch')}"), seen)


def _asked(space: str, name: str, ours: Any) -> Name:
    try:
        getattr(ours, name)
    except AttributeError as error:
        from genesis.ir.absent import why
        said = str(error).partition("no attribute")[2]
        explained = ": " in said or (isinstance(ours, type) and why(space, name) is not None)
        return Name(space, name, "explained" if explained else "missing", str(error))
    return Name(space, name, "there")


def _modules(theirs: ModuleType) -> list[str]:
    """The modules below, as files and as attributes."""
    files = [found.name for found in pkgutil.iter_modules(getattr(theirs, "__path__", ()))]
    held = [name for name, value in vars(theirs).items()
            if inspect.ismodule(value) and value.__name__ == f"{theirs.__name__}.{name}"]
    return [name for name in dict.fromkeys((*files, *held)) if not name.startswith("_") or name == "_dynamo"]


def _public(theirs: ModuleType) -> list[str]:
    """The names of `__all__`; without one, all that torch itself made. Modules are not among them."""
    listed = None if theirs is torch else getattr(theirs, "__all__", None)
    found = []
    for name in dict.fromkeys(dir(theirs) if listed is None else listed):
        value = getattr(theirs, name, None)
        foreign = listed is None and not _from_torch(value) and not inspect.isbuiltin(value)
        if not name.startswith("_") and not inspect.ismodule(value) and hasattr(theirs, name) and not foreign:
            found.append(name)
    return found


def _from_torch(value: Any) -> bool:
    home = getattr(value, "__module__", None)
    return not isinstance(home, str) or home.partition(".")[0] == "torch"
