"""What checkpoints hold beside tensors, numbers and containers of them: arguments, dtypes, devices, paths and sets.

Each has a name in a file's structure and a plain form; nothing else is made when a file is read.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from genesis.ir.types import DTYPES, Device, DType


class Form(NamedTuple):
    """How a class of values stands in a file.

    Attributes:
        kind: the class, subclasses included.
        plain: a value's plain form: texts, or a list or dictionary of values.
        rebuilt: the value again, or ValueError, TypeError or KeyError for what no value gives.
    """

    kind: type
    plain: Callable[[Any], Any]
    rebuilt: Callable[[Any], Any]


def _text(content: Any) -> str:
    if type(content) is not str:
        raise ValueError("a value that is no text")
    return content


def _dtype(content: Any) -> DType:
    return {dtype.name: dtype for dtype in DTYPES}[_text(content)]


def _device(content: Any) -> Device:
    try:
        return Device(_text(content))
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _namespace(content: Any) -> Namespace:
    if not isinstance(content, dict) or not all(type(name) is str for name in content):
        raise ValueError("arguments that are no dictionary of names")
    found = Namespace()
    vars(found).update(content)
    return found


def _set(content: Any) -> set[Any]:
    if type(content) is not list:
        raise ValueError("a set that is no list")
    return set(content)


FORMS: Final[dict[str, Form]] = {
    "namespace": Form(Namespace, lambda x: dict(vars(x)), _namespace),
    "dtype": Form(DType, lambda x: x.name, _dtype),
    "device": Form(Device, str, _device),
    "path": Form(PurePath, str, lambda x: Path(_text(x))),
    "set": Form(set, list, _set),
}
"""The name in a file → its form. A set's elements come back in any order, a path as one of this machine's kind."""


def form_of(obj: Any) -> str | None:
    """The name of the form that a value has, or None."""
    return next((name for name, form in FORMS.items() if isinstance(obj, form.kind)), None)
