"""States of which a rank has parts: what it writes of them, and its parts of what any number of ranks have written.

    model.safetensors               the state, with {"genesis.part": ["blocks.0.up.weight", [33, 16]]} for a tensor that
                                    ranks have parts of
    model.part-00003.safetensors    rank 3's parts: {"starts": {"blocks.0.up.weight": [27, 0]},
                                                     "tensors": {"blocks.0.up.weight": …}}

A part that several ranks have is written by the first of them. A state without parts is one file, as ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from genesis.distributed.tensor.layout import Layout
from genesis.frontend.host_values import from_host
from genesis.frontend.tensor import Tensor
from genesis.ir.types import cpu
from genesis.nn.modules.module import Module
from genesis.optim.optimizer import Optimizer
from genesis.utils.serialization import load

MARK: Final = "genesis.part"
"""The key of what stands for a tensor that ranks have parts of."""

PART_FILE: Final = re.compile(r"(\w+)\.part-\d{5,}\.safetensors")

Keys = tuple[Any, ...]
"""Where a value is in a state: the keys and indices that lead to it."""

Region = Sequence[tuple[int, int]]
"""(first, last + 1) for each dimension of a tensor."""


@dataclass(frozen=True)
class Part:
    """A tensor in a state of which this rank has a part.

    Attributes:
        tensor: the part.
        layout: where it is in the whole.
    """

    tensor: Tensor
    layout: Layout


def part_file(name: str, rank: int) -> str:
    """The name of the file that a rank's parts of an object's state go to."""
    return f"{name}.part-{rank:05d}.safetensors"


# What an object has

def state_of(value: Any) -> Any:
    """An object's `state_dict()`, or itself where it has none, with a `Part` for each tensor that ranks have parts
    of."""
    if isinstance(value, Optimizer):
        state = value.local_state_dict()
    else:
        state = value.state_dict() if hasattr(value, "state_dict") else value
    own = _Layouts(value)

    def marked(x: Any, keys: Keys) -> Any:
        layout = own.of(keys, None) if getattr(x, "sharding", None) is None else x.sharding
        return Part(x, layout) if layout is not None and isinstance(x, Tensor) and layout.is_part(x) else x
    return mapped(state, marked)


class _Layouts:
    """Where the tensors of an object's state are parts of whole ones: parameters, and an optimizer's state of them."""

    def __init__(self, value: Any):
        self._kind = type(value)
        named: Sequence[tuple[Any, Any]] = []
        if isinstance(value, Module):
            named = [(name, getattr(p, "sharding", None)) for name, p in value.named_parameters(remove_duplicate=False)]
        elif isinstance(value, Optimizer):
            named = list(enumerate(_state_layouts(value)))
        self._names = {key: layout for key, layout in named if layout is not None}

    def of(self, keys: Keys, shape: tuple[int, ...] | None) -> Layout | None:
        """The layout of what is at a place of the state, where it is a part of a tensor of this shape (of any, if it is
        None)."""
        if issubclass(self._kind, Module):
            found = self._names.get(keys[0]) if len(keys) == 1 else None
        elif len(keys) == 3 and keys[0] == "state":
            found = self._names.get(keys[1])
        else:
            found = None
        return found if found is None or shape is None or found.shape == shape else None


def is_shared(value: Any) -> bool:
    """Whether several ranks have the parts of an object's state."""
    if isinstance(value, Module):
        return any(_is_cut(getattr(p, "sharding", None)) for p in value.parameters())
    if isinstance(value, Optimizer):
        return any(map(_is_cut, _state_layouts(value)))
    return any(isinstance(x, Tensor) and _is_cut(getattr(x, "sharding", None)) for _, x in leaves(value))


def _state_layouts(optimizer: Optimizer) -> list[Layout | None]:
    """The layout of the state of each parameter, in the order of the groups."""
    return [optimizer.state_layout(p) for group in optimizer.param_groups for p in group["params"]]


def _is_cut(layout: Layout | None) -> bool:
    return layout is not None and layout.mesh.size() > 1


# What is written

def divided(state: Any) -> tuple[Any, dict[str, Any]]:
    """(the state with what stands for parts, this rank's parts: empty where it writes none)."""
    starts: dict[str, list[int]] = {}
    tensors: dict[str, Tensor] = {}

    def told(x: Any, keys: Keys) -> Any:
        if not isinstance(x, Part):
            return x
        path = ".".join(map(str, keys))
        if x.layout.is_first_copy() and (x.tensor.numel() or not prod(x.layout.shape)):
            starts[path], tensors[path] = [first for first, _ in x.layout.region()], x.tensor
        return {MARK: [path, list(x.layout.shape)]}
    whole = mapped(state, told)
    return whole, {"starts": starts, "tensors": tensors} if tensors else {}


# What is read

class Pieces:
    """The parts of an object's state in a checkpoint, by the tensor's path.

    Args:
        files: those of all ranks.
    """

    def __init__(self, files: Sequence[Path]):
        self._found: dict[str, list[tuple[Sequence[int], Any]]] = {}
        for file in files:
            stored = load(file, mmap=True)  # what is not needed here is not read
            for path, tensor in stored["tensors"].items():
                pieces, starts = self._found.setdefault(path, []), stored["starts"][path]
                if all(found != starts for found, _ in pieces):  # groups that do not know each other each write all
                    pieces.append((starts, tensor))

    def region(self, path: str, region: Region) -> Tensor:
        """These elements of a tensor, on the CPU.

        Raises:
            ValueError: no rank has written some of them.
        """
        import numpy as np
        pieces = self._found.get(path, [])
        if not pieces:
            raise ValueError(f"the checkpoint has no part of {path}")
        shape = tuple(last - first for first, last in region)
        found, filled = np.empty(shape, pieces[0][1].numpy().dtype), 0
        for starts, tensor in pieces:
            there: list[Any] = []
            here: list[Any] = []
            for (first, last), start, size in zip(region, starts, tensor.shape, strict=True):
                begin, end = max(first, start), max(first, start, min(last, start + size))
                there.append(slice(begin - start, end - start))
                here.append(slice(begin - first, end - first))
            part = found[(*here, ...)]  # an array, without dimensions, too
            if part.size:
                part[...] = tensor.numpy()[tuple(there)]
                filled += part.size
        if filled != prod(shape):
            raise ValueError(f"the checkpoint's parts of {path} have {filled} of {prod(shape)} elements")
        return from_host(found, cpu)


def fitted(state: Any, pieces: Pieces, target: Any) -> Any:
    """A state as an object has it: this rank's parts of tensors, whether whole ones or parts were written.

    Args:
        state: what was written; see `divided`.
        pieces: what stands for parts in it.
        target: the object that it is loaded into; of anything else, tensors are whole.
    """
    own = _Layouts(target)

    def fit(x: Any, keys: Keys) -> Any:
        if isinstance(x, dict):
            path, shape = x[MARK]
            layout = own.of(keys, tuple(shape))
            return pieces.region(path, [(0, size) for size in shape] if layout is None else layout.region())
        layout = own.of(keys, tuple(x.shape)) if isinstance(x, Tensor) else None
        return x if layout is None else layout.own(x)
    return mapped(state, fit)


# Trees

def mapped(state: Any, function: Callable[[Any, Keys], Any], keys: Keys = ()) -> Any:
    """The state with what a function makes of its leaves."""
    if isinstance(state, Mapping) and MARK not in state:
        return {key: mapped(value, function, (*keys, key)) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)([mapped(value, function, (*keys, at)) for at, value in enumerate(state)])
    return function(state, keys)


def leaves(state: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """What is in a state, and where."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from leaves(value, (*keys, key))
    elif isinstance(state, (list, tuple)):
        for at, value in enumerate(state):
            yield from leaves(value, (*keys, at))
    else:
        yield keys, state
