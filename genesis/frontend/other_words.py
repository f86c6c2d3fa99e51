"""Keywords that torch takes beside a parameter's own name: numpy's, those of another overload, and those of old.

`torch.cat(tensors, axis=1)`, `torch.zeros(2, layout=torch.strided)`, `torch.median(a=x)`. They are
looked up only where a call has a keyword that the function does not know (`public_functions`), so a call without
them pays nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from genesis.ir.errors import failure

_FIRST: Final = ("input", "self", "A", "B", "L", "mat1", "x")

SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "axis": ("dim",), "keepdims": ("keepdim",), "x1": _FIRST, "x2": ("other", "source", "B"),
    "x": _FIRST, "a": _FIRST,
    "input": ("self", "A", "B", "L", "mat1", "x"), "tensor": ("input",), "ndarray": ("array",),
    "other": ("B", "source", "dim"), "test_element": ("test_elements",),
    "element": ("elements",),
    "indices": ("indices_or_sections",), "sections": ("indices_or_sections",),
    "tensor_indices_or_sections": ("indices_or_sections",), "split_size": ("split_size_or_sections", "split_sizes"),
    "input2": ("L",), "train": ("training",), "type1": ("a",), "type2": ("b",), "model": ("function",), "b": ("B",),
    "unbiased": ("correction",)}
"""Keyword → parameters that it may stand for; the first that the function has and that was not given."""

IGNORED: Final[dict[str, str]] = {
    "layout": "matrices by places and values are made with genesis.sparse_coo_tensor",
    "pin_memory": "", "cudnn_enabled": "", "cudnn_enable": "", "implicit": "",
    "requires_grad": "call requires_grad_ of the result", "ambiguity_check": "",
    "generator": "call genesis.manual_seed", "names": "dimensions have no names here"}
"""Keyword that changes no result → what to do instead where its value would; '' where none does."""

_NOTHING: Final = (None, False, 0)


def put(function: str, unknown: dict[str, Any], names: Sequence[str], values: Sequence[Any],
        defaults: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments with those of other words among them, each taken out of `unknown`. What is no word of torch's
    stays there.

    Args:
        function: what was called.
        unknown: the keywords that the function does not have.
        names, values: its parameters and what they were given.
        defaults: parameter → its default, or what stands for one that was left out.
    """
    found = dict(zip(names, values, strict=True))
    for word in list(unknown):
        name = next((x for x in SYNONYMS.get(word, ()) if x in found and found[x] is defaults.get(x)), None)
        if name is not None:
            found[name] = unknown.pop(word)
        elif word in IGNORED:
            _refuse(function, word, unknown.pop(word))
    return tuple(found.values())


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction; where one of torch's words before it was given, what that says.

    >>> reduction_of(None, False, "mean"), reduction_of(False, None, "mean"), reduction_of(None, None, "sum")
    ('none', 'sum', 'sum')
    """
    if size_average is None and reduce is None:
        return reduction
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def _refuse(function: str, word: str, value: Any) -> None:
    instead = IGNORED[word]
    if instead and value not in _NOTHING and getattr(value, "name", None) != "strided":
        raise failure(function, f"{word}={value!r} is not supported", hint=instead)
