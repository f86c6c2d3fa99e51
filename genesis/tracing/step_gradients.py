"""The gradients that a captured step leaves, and who looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from sys import getrefcount
from typing import Any, Final

from genesis.frontend.at_once import Change, attributes
from genesis.frontend.recording import over
from genesis.frontend.storage import Cell, Storage
from genesis.runtime.references import HELD_ONCE

_grad_of, _cell_of = attrgetter("_grad"), attrgetter("cell")
_node_of, _outside_of = attrgetter("_node"), attrgetter("_outside")

_OURS: Final = HELD_ONCE + 1
"""References to a gradient that only its owner and these lists hold."""


class StepGradients:
    """The gradients that a step gave last, of whatever size: its replays for several sizes share them.

    Attributes:
        tensors, storages, cells: each gradient, its storage, and the content of that.
    """

    __slots__ = ("cells", "storages", "tensors")

    def __init__(self, tensors: list[Any]):
        self.tensors = tensors
        self.storages = [x.storage for x in tensors]
        self.cells = [storage.cell for storage in self.storages]

    def held_alone(self, owners: Sequence[Any]) -> bool:
        """True if the gradients of these tensors are still the same, and nobody else looks at them or at their
        memory."""
        tensors, storages, cells = self.tensors, self.storages, self.cells
        return (all(map(is_, map(_grad_of, owners), tensors)) and all(map(is_, map(_cell_of, storages), cells))
                and not any(map(_node_of, storages)) and not any(map(_outside_of, storages))
                and set(map(getrefcount, tensors)) == set(map(getrefcount, storages)) == set(map(getrefcount, cells))
                == {_OURS})

    def moved(self, memories: Sequence[Any], owners: Sequence[Any], ours: bool, held: list[Any]) -> list[Change]:
        """The changes that give each gradient its new memory: in the tensor of the last call, if nobody else looks at
        that.

        Args:
            memories: of the gradients.
            owners: the tensors that have them.
            ours: nobody else looks at them.
            held: gets what is replaced, until it is.
        """
        if ours:
            held.append([cell.memory for cell in self.cells])
            return [attributes(self.cells, "memory", memories)]
        new: dict[Storage, Storage] = {}
        shown: dict[int, Any] = {}  # one tensor may be the gradient of several
        for gradient, own, memory in zip(self.tensors, self.storages, memories, strict=True):
            if own not in new:
                new[own] = storage = Storage(own.type, None, Cell(memory))
                storage.persistent = True
            if id(gradient) not in shown:
                shown[id(gradient)] = over(new[own], gradient.spec, gradient.part)
        made, storages = [shown[id(x)] for x in self.tensors], [new[own] for own in self.storages]
        cells = [storage.cell for storage in storages]
        held += [self.tensors, self.storages, self.cells, list(map(_grad_of, owners))]
        return [attributes(owners, "_grad", made), (setattr, self, "tensors", made),
                (setattr, self, "storages", storages), (setattr, self, "cells", cells)]

    def are_like(self, others: Sequence[Any]) -> bool:
        """Whether other gradients, which are not computed, are laid out as these are."""
        return all(x is not None and x.storage.cell is None and x.spec is own.spec and x.part is None and
                   own.part is None for x, own in zip(others, self.tensors, strict=True))
