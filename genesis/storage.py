"""Storages, views and liveness: what aliasing means in a lazy program.

A `Storage` is one memory that tensors look at. Its content is an IR node, so writing to it is
giving it another node; every tensor over it sees the new content, and nodes recorded before keep
the old one. A `View` says which part of the storage a tensor shows, as the movement ops that
lead there: reading emits them, writing emits them and their inverses.
"""

from __future__ import annotations

import weakref
from typing import Any

from genesis import session
from genesis.ir.node import Node, make, unique
from genesis.ir.ops import leaves, movement
from genesis.ir.types import TensorType


class Cell:
    """One content of one memory. Overwriting the memory ends it: `memory` becomes None, or the
    copy that was kept because somebody still needs the old content.

    `owner` is a weak reference to the storage whose leaf was read, for compile's capture."""

    __slots__ = ("memory", "owner")

    def __init__(self, memory: Any):
        self.memory = memory
        self.owner: weakref.ref[Storage] | None = None


class Storage:
    """One memory, as the program sees it.

    Attributes:
        type: shape, dtype and device of the whole content, row-major.
        cell: the memory with its last computed content, None before there is any.
        version: how often it was written, for autograd's checks.
        persistent: keep its content in memory rather than able to be computed (gradients).
        error: why its pending content can never be computed (a failed flush), or None.
    """

    __slots__ = ("__weakref__", "_exports", "_node", "_queued", "_reference", "cell", "error", "persistent", "type",
                 "version")

    def __init__(self, type: TensorType, node: Node | None, cell: Cell | None = None):
        self.type, self._node, self.cell = type, node, cell
        self.version = 0
        self.persistent = False
        self.error: BaseException | None = None
        self._exports: weakref.ref | None = None
        self._queued = node is not None
        self._reference = weakref.ref(self)
        if node is not None:
            pending.append(self._reference)

    @property
    def node(self) -> Node:
        """The content: a computed memory's leaf, or what will be written."""
        found = self._node
        return found if found is not None else self._leaf()

    @property
    def settled(self) -> bool:
        """True when the memory holds the content."""
        return self._node is None or (self.cell is not None and self._node.buffer is self.cell)

    @property
    def exported(self) -> bool:
        """True while memory outside Genesis (a numpy array) shares this one."""
        return self._exports is not None and self._exports() is not None

    def _leaf(self) -> Node:
        if self.error is not None:
            raise self.error
        assert self.cell is not None
        leaf = unique(leaves.data, (), (self.type,), self.type)
        if self.exported:  # whoever shares the memory may write to it before this is computed
            leaf.buffer = Cell(self.cell.memory.clone())
        else:
            leaf.buffer = self.cell
            self.cell.owner = self._reference
            self._node = leaf
        return leaf

    def write(self, node: Node) -> None:
        """Give the storage another content; its memory follows at the next flush."""
        self._node = node
        self.version += 1
        self.error = None
        if session.current is not None:
            session.current.writes[self] = None
        if not self._queued:
            self._queued = True
            pending.append(self._reference)
        if self.exported:
            from genesis import engine
            engine.flush([self])

    def settle(self, cell: Cell, keep: Node | None = None) -> None:
        """The content is in the cell's memory now. `keep` is the node to differentiate through."""
        self.cell, self._node, self._queued = cell, keep, False
        cell.owner = self._reference

    def fail(self, error: BaseException) -> None:
        """The pending content is lost: back to the last computed one, or to raising the error."""
        self._node, self._queued = None, False
        if self.cell is None:
            self.error = error

    def share(self, outside: Any) -> None:
        """Note that `outside`, which can be weakly referenced, shares the memory."""
        self._exports = weakref.ref(outside)
        if self._node is not None and self._node.op is leaves.data:
            self._node = None


pending: list[weakref.ref[Storage]] = []
"""Storages whose content may be ahead of their memory, in the order in which they got so."""


def live_pending() -> list[Storage]:
    """The storages with uncomputed content that somebody still holds; forgets the others."""
    found: dict[Storage, weakref.ref[Storage]] = {}
    for reference in pending:
        storage = reference()
        if storage is not None and storage._queued:
            found[storage] = reference
    pending[:] = found.values()
    return list(found)


Step = tuple[Any, tuple]


class View:
    """A part of a storage: strides and offset in elements, as torch reports them, and the
    movement ops that select it from the whole."""

    __slots__ = ("offset", "steps", "strides")

    def __init__(self, strides: tuple[int, ...], offset: int, steps: tuple[Step, ...]):
        self.strides, self.offset, self.steps = strides, offset, steps

    def read(self, whole: Node) -> Node:
        """The part, given the whole."""
        for op, attrs in self.steps:
            whole = make(op, (whole,), attrs)
        return whole

    def write(self, whole: Node, part: Node) -> Node:
        """The whole with this part replaced."""
        parents = [whole]
        for op, attrs in self.steps[:-1]:
            parents.append(make(op, (parents[-1],), attrs))
        for (op, attrs), parent in zip(reversed(self.steps), reversed(parents), strict=True):
            part = _undo(op, attrs, parent, part)
        return part


def _undo(op: Any, attrs: tuple, parent: Node, part: Node) -> Node:
    """The parent with op(parent) replaced by `part`."""
    if op is movement.reshape:
        return make(movement.reshape, (part,), (parent.type.shape,))
    if op is movement.permute:
        return make(movement.permute, (part,), (movement.inverse(attrs[0]),))
    if op is movement.slice:
        return make(movement.assign, (parent, part), attrs)
    if op is movement.expand:
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single "
                           "memory location; clone() the tensor before writing to it")
    raise RuntimeError(f"cannot write through {op.name}")


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size if size else 1
    return tuple(reversed(strides))
