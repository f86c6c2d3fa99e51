"""Draws for a part of a tensor: dropout of what one of several processes holds draws the bits of the whole there.

A random number depends on the place of its element (`ir/ops/random.py`). So a process that knows which part it has
drops what one process with all of it would.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from genesis.frontend.switching import SPARE, Switch


class Part(NamedTuple):
    """Attributes:
        dim: the dimension that is shared out, counted from the end if it is negative.
        place, of: the part, and how many there are; they are equally large.
    """

    dim: int
    place: int
    of: int


class _State(threading.local):
    """This thread's parts.

    Attributes:
        chosen: the place in `choices` of what holds, and spare bytes (`switching.py`).
    """

    def __init__(self) -> None:
        self.chosen = bytearray(1 + SPARE)


choices: Final[list[tuple[Part, ...]]] = [()]
"""What tensors may be parts of: first nothing, then what a context has asked for. A handful: dimensions of meshes."""

sharded: Final[WeakValueDictionary[int, Any]] = WeakValueDictionary()
"""Parameters that are a rank's part of a larger tensor, by their identity."""


def layout_of(tensor: Any) -> Any:
    """The layout (`genesis.distributed.tensor.Layout`) of the parameter whose memory a tensor shows, where that is a
    rank's part; None: it is whole. Detached tensors are parts, too (`p.data.normal_()`)."""
    found = getattr(tensor, "sharding", None)
    if found is None:
        found = next((p.sharding for p in sharded.values() if p.storage is tensor.storage), None)
    return found


class Shown(NamedTuple):
    """What a tensor over a rank's part of a parameter shows, as a part of what it would show of the whole.

    Attributes:
        shape: of that.
        spans: first and last + 1 of this rank's elements along each dimension.
    """

    shape: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    def own(self, whole: Any) -> Any:
        """This rank's elements of a tensor of the shape."""
        return whole[tuple([slice(*span) for span in self.spans])] if self.spans else whole


def shown_part(layout: Any, tensor: Any) -> Shown | None:
    """What a view of a rank's part shows of the whole; None where that cannot be said: it shows a slice of the rows
    that the ranks share out, say, and which rows of the whole would these be?

    Dimensions that are shared out are there whole, once and in order; all others may be cut, split, turned, left out.
    """
    region = layout.region()
    sizes = [last - first for first, last in region]
    steps = [1] * len(sizes)
    for dim in reversed(range(len(sizes) - 1)):
        steps[dim] = steps[dim + 1] * max(sizes[dim + 1], 1)
    rest, begins = tensor.storage_offset(), []
    for step in steps:
        begins.append(rest // step)
        rest %= step
    missing = {at for at, span in enumerate(region) if span != (0, layout.shape[at])}
    shape, spans = list(tensor.shape), [(0, size) for size in tensor.shape]
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        at = next((i for i, step in enumerate(steps) if stride % step == 0 and step <= stride and (
            begins[i] + (size - 1) * (stride // step) < max(sizes[i], 1))), None)
        if at is not None and at in missing:
            if stride != steps[at] or size != sizes[at] or begins[at]:
                return None
            missing.discard(at)
            shape[dim], spans[dim] = layout.shape[at], region[at]
        elif at is None and size != 1:
            return None
    return None if missing else Shown(tuple(shape), tuple(spans))


state = _State()
"""Which parts tensors are, in this thread."""


def parts() -> tuple[Part, ...]:
    """The parts that tensors are of wholes."""
    return choices[state.chosen[0]]


class drawing_part(Switch):
    """A context in which tensors are parts of larger ones along a dimension: dropout draws the bits that the whole has
    there.

    Args:
        dim: the dimension; tensors that do not have it are whole.
        place: which part.
        count: how many equal parts there are.

    >>> import genesis
    >>> from genesis.nn.functional import dropout
    >>> generator = genesis.manual_seed(0)
    >>> whole = dropout(genesis.ones(4, 2), 0.5)
    >>> generator = genesis.manual_seed(0)
    >>> with drawing_part(0, 1, 2):
    ...     part = dropout(genesis.ones(2, 2), 0.5)
    >>> part.tolist() == whole[2:].tolist()
    True
    """

    def __init__(self, dim: int, place: int, count: int):
        super().__init__()
        self._part = Part(dim, place, count)

    def _mode(self) -> bytearray:
        return state.chosen

    def _inside(self, mode: bytearray) -> tuple[int, ...]:
        if self._part.of == 1:
            return (mode[0],)
        wanted = (*choices[mode[0]], self._part)
        if wanted not in choices:
            choices.append(wanted)
        return (choices.index(wanted),)


def place_in_whole(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape of the whole, where this part begins) of a tensor.

    >>> with drawing_part(0, 1, 2), drawing_part(-1, 2, 4):
    ...     place_in_whole((3, 5)), place_in_whole(())
    (((6, 20), (3, 10)), ((), ()))
    """
    whole, starts = list(shape), [0] * len(shape)
    for dim, place, count in reversed(parts()):  # the inner context cuts what the outer one left
        if -len(shape) <= dim < len(shape):
            starts[dim] += place * whole[dim]
            whole[dim] = whole[dim] * count
    return tuple(whole), tuple(starts)
