"""What a step writes: noted until all of it is made at once, and the order of updates of what shares memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import setitem
from typing import Any

from genesis.frontend.at_once import Change
from genesis.frontend.session import is_tentative
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import Before, assign_all
from genesis.ir.node import Node


class Writes:
    """What a step writes, and what it counts in Python, until all of it is made at once.

    Args:
        noted: a change that is made with the first of these, and what takes it back if the plan fails.

    Attributes:
        moved: see `session.ahead_of`.
    """

    def __init__(self, noted: tuple[Change, Callable[[], Any]] | None = None) -> None:
        self._noted = noted
        self.moved: dict[Any, Any] = {}
        self._written: list[Tensor] = []
        self._tensors: list[Tensor] = []
        self._nodes: list[Node] = []
        self._counted: list[Change] = []
        self._counts: list[tuple[Node, Callable[[], Any]]] = []
        self._before: list[Before] = []

    def add(self, tensors: Iterable[Tensor], nodes: Iterable[Node], counted: Iterable[Change], node: Node,
            numbers: Callable[[], Any]) -> None:
        """Note contents of tensors, what counts them, and the node that they come from."""
        self._tensors += tensors
        self._nodes += nodes
        self._counted += counted
        self._counts.append((node, numbers))

    def commit(self, last: bool = True, states: Iterable[dict[str, Any]] = ()) -> None:
        """Make all that was noted: the contents, the counts, and what takes these back if the plan fails.

        What is written before the `last` can be taken back until that is made: `states` are of the parameters.
        """
        if not self._tensors:
            return
        if not last:
            counts: list[Change] = [(setitem, own, name, x) for own in states for name, x in own.items()
                                    if type(x) in (int, float)]
            uncounted: list[Change] = [] if self._noted is None else [(self._noted[1],)]
            self._before.append(Before([x.storage for x in self._tensors], [*counts, *uncounted]))
        elif self._before:
            self._counted.append((self._before.clear,))
        for node, numbers in self._counts:
            if hasattr(numbers, "undo") and not is_tentative():
                state.undo[node] = numbers.undo  # first: nobody drops a content that is not written
        if self._noted is not None and self._counts:
            change, undo = self._noted
            self._counted.append(change)
            node = self._counts[0][0]
            state.undo[node] = partial(_call_both, state.undo.get(node), undo)
            self._noted = None
        assign_all(self._tensors, self._nodes, self._counted)
        self._written += self._tensors
        self._tensors, self._nodes, self._counted, self._counts = [], [], [], []
        self.moved.clear()  # what was counted is in the states now

    def wrote(self, storage: Storage) -> bool:
        """Whether the step has written to it."""
        return any(storage is tensor.storage for tensor in self._written)

    def take_back(self) -> None:
        """An exception came between two commits: what the earlier ones wrote and counted is as it was."""
        for before in reversed(self._before):
            before.restore()


def _call_both(first: Callable[[], Any] | None, second: Callable[[], Any]) -> None:
    if first is not None:
        first()
    second()


def repeated(parameters: Sequence[Tensor]) -> frozenset[int]:
    """The addresses of those that are listed more than once. Each is updated by ops of its own: by its second one it
    has made a step more than others that are updated then, as they share memory."""
    times = Counter(map(id, parameters))
    return frozenset(key for key, count in times.items() if count > 1)


def layers_of(parameters: Sequence[Tensor]) -> list[int]:
    """The number, for each parameter, of earlier ones that may share elements with it, which other ops update before.

    Tensors that were made of one numpy array have storages of their own: there the addresses count.
    """
    reached: dict[Any, list[tuple[int, int]]] = {}
    found = []
    for x in parameters:
        shared = x.storage.exported
        first = x.storage_offset() * x.itemsize + (x.storage.cell.memory.ptr if shared else 0)  # type: ignore[union-attr]
        last = first + x.itemsize * sum((size - 1) * step for size, step in zip(x.shape, x.strides, strict=True))
        ranges = reached.setdefault(None if shared else x.storage, [])
        found.append(sum(first <= high and low <= last for low, high in ranges))
        ranges.append((first, last))
    return found
