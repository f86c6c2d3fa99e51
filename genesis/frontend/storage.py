"""Storages and liveness: what aliasing means in a lazy program.

A `Storage` is one memory that tensors look at. Its content is an IR node, so writing to it is
giving it another node; every tensor over it sees the new content, and nodes recorded before keep
the old one. Which part of a storage a tensor shows says its `View` (`views.py`).

Threads: recording takes no lock. CPython lets other threads and signal handlers run at calls and at jumps back, so what
a method below does between two of these (look at a content, and replace it) happens at once. A write that was computed
of a content replaces that content alone: where another came first, it is computed again (`Storage.replace`).
"""

from __future__ import annotations

import weakref
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend import session
from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import mode
from genesis.frontend.outside import Outside
from genesis.frontend.pending import next_number, note_differentiable
from genesis.frontend.state import state
from genesis.ir.node import Node, make, unique
from genesis.ir.ops import control, leaves
from genesis.ir.types import TensorType
from genesis.ir.walk import walk
from genesis.runtime.references import HELD_AND_NAMED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from genesis.frontend.outside import OtherStream


class Cell:
    """One content of one memory. Overwriting the memory ends it: `memory` becomes None, or the
    copy that was kept because somebody still needs the old content.

    `owner` is a weak reference to the storage whose leaf was read, for compile's capture. `usage` is
    told when a backward reads the content (see `genesis.engine.saved_values`). `piece` is the number of the cut that
    computed it, where a backward may end (`genesis.autograd.pieces`), 0 for none, and `run` that of the program, 0
    where that is not told. `since` is a node's number (`Node`): no older node has its value here; 0 where that is not
    known."""

    __slots__ = ("__weakref__", "memory", "owner", "piece", "run", "since", "usage")

    def __init__(self, memory: Any):
        self.memory = memory
        state.fresh_bytes += memory.nbytes
        if state.fresh_bytes >= state.bytes_mark:
            state.look_at = 0
        self.owner: weakref.ref[Storage] | None = None
        self.usage: Any = None
        self.piece = self.run = self.since = 0


_new_cell: Final = Cell.__new__


def overwriting(memory: Any, owner: weakref.ref[Storage] | None, piece: int, since: int) -> Cell:
    """The content that overwrites a memory, the value of the node with the number `since`: no bytes are new."""
    cell = _new_cell(Cell)
    cell.memory, cell.owner, cell.piece, cell.since, cell.usage = memory, owner, piece, since, None
    cell.run = 0
    return cell


def all_overwriting(memories: Sequence[Any], storages: Sequence[Storage], piece: int,
                    nodes: Sequence[Node]) -> list[Cell]:
    """`overwriting` of each of these storages' memories, the values of these nodes: a step has hundreds, and a call of
    each takes as long as what it does (`benchmarks/host_time.py`)."""
    found = []
    for memory, storage, node in zip(memories, storages, nodes, strict=True):
        cell = _new_cell(Cell)
        cell.memory, cell.owner, cell.piece, cell.since = memory, storage._reference, piece, node.number
        cell.usage, cell.run = None, 0
        found.append(cell)
    return found


class Storage:
    """One memory, as the program sees it.

    Attributes:
        type: shape, dtype and device of the whole content, row-major.
        cell: the memory with its last computed content, None before there is any.
        writes: how often the program wrote to it; `version` is that and what replays of compiled steps wrote.
        replays: counts of writes, one for each compiled step that writes to it, shared by all that it writes to.
        shares: how often its memory was given to somebody else (a numpy array), who writes to it and does not say so.
        persistent: keep its content in memory rather than able to be computed (gradients).
        inference: it was made under `inference_mode`.
        error: why its pending content can never be computed (a failed flush), or None.
        detached_by: tensors that show it without its history (`detached.py`), None if there never were any.
        noted: views that were taken of it while no gradients flowed through it, by their `id` (one that has ended may
            be among them); None where such views are not noted.
        viewed: the number of the next search for such views as the last was taken and not noted; 0 for none.
        watching: the last node that a leaf tensor was read through, which shows all of it (`views.watched`).
    """

    __slots__ = ("__weakref__", "_node", "_outside", "_queued", "_reference", "cell", "detached_by", "error",
                 "inference", "noted", "persistent", "replays", "shares", "type", "viewed", "watching", "writes")

    def __init__(self, type: TensorType, node: Node | None, cell: Cell | None = None):
        self.type, self._node, self.cell = type, node, cell
        self.writes = self.shares = 0
        self.replays: tuple[list[int], ...] = ()
        self.persistent = False
        self.inference = mode.flags[1] == 1
        self.error: BaseException | None = None
        self._outside: Outside | None = None
        self.detached_by: list[weakref.ref[Any]] | None = None
        self.noted: dict[int, weakref.ref[Any]] | None = None
        self.viewed = 0
        self.watching: Node | None = None
        self._reference = weakref.ref(self)
        if node is None:
            self._queued = 0
        else:
            self._queued = number = next_number()
            state.pending[number] = self._reference
            if number >= state.look_at:
                engine.look(self, number)

    @property
    def node(self) -> Node:
        """The content: a computed memory's leaf, or what will be written."""
        found = self._node
        return found if found is not None else self._leaf()

    @property
    def node_in_passing(self) -> Node:
        """The content, for one who lets go of it at once: of memory that others see, whose leaf nobody keeps, that is
        no look at the storage, after which a replay would look at everything again, without an end."""
        found = self._node
        if found is not None:
            return found
        touched, exported = state.touched, self.exported
        leaf = self._leaf()
        if exported and state.touched == touched + 1:
            state.touched = touched
        return leaf

    @property
    def queued(self) -> int:
        """The number that its pending content was noted by, 0 for none."""
        return self._queued

    @property
    def version(self) -> int:
        """The number of writes so far, as far as they were made through Genesis."""
        return self.writes + sum(count for count, in self.replays)

    @property
    def seen(self) -> tuple[int, int]:
        """What changes with each write: the version, and `shares`, as those who share the memory write when they like;
        one may have got it, written and gone since."""
        return self.version, self.shares

    @property
    def settled(self) -> bool:
        """True when the memory holds the content."""
        return self._node is None or (self.cell is not None and self._node.buffer is self.cell)

    @property
    def exported(self) -> bool:
        """True while memory outside Genesis (a numpy array) shares this one."""
        return self._outside is not None and any(owner() is not None for owner in self._outside.owners)

    @property
    def between_processes(self) -> bool:
        """True once the memory is one that other processes read and write."""
        return self._outside is not None and self._outside.between_processes

    @property
    def snapshot(self) -> Node | None:
        """The leaf that stood for the shared memory when it was last read, if somebody holds it."""
        taken = None if self._outside is None else self._outside.snapshot
        return None if taken is None else taken()

    @property
    def needs_grad(self) -> bool:
        """True if a gradient can flow through the content."""
        node = self._node
        if node is None:
            node = None if self._outside is None else self._outside.through
        return node is not None and node.needs_grad

    def references_without_history(self) -> int:
        """What `getrefcount(the storage)` is where a local variable holds it, and tensors that show it without its
        history, but nobody else: others could go backward through the content."""
        found = HELD_AND_NAMED - 1
        for held in self.detached_by or ():  # asked of each value that a loop keeps, at each of its turns
            x = held()
            if x is not None and x.storage is self and (x.detached is not None or x.leaf is not None):
                found += 1
        return found

    def forget_history(self) -> None:
        """Nobody is left who could go backward through the content."""
        node = self._node
        if node is None or not node.needs_grad or state.session is not None:
            return
        state.touched += 1
        value = None
        if node.buffer is None or node.buffer is not self.cell:
            value = make(control.stop_gradient, (node,))
            value.buffer = node.buffer
        if self._node is node:  # no call since: nobody has written to it meanwhile
            self._node = value

    def _leaf(self) -> Node:
        if self.error is not None:
            raise self.error.with_traceback(None)
        assert self.cell is not None
        state.touched += 1
        outside, through = self._outside, None
        if outside is not None:
            through = outside.through
            if self.exported:
                leaf = self._shared_leaf(outside)
                return leaf if through is None else make(control.overwritten, (through, leaf))
        while True:
            cell = self.cell
            leaf = unique(leaves.data, (), (self.type,), self.type)
            leaf.buffer = cell
            if through is not None:
                leaf = make(control.overwritten, (through, leaf))
                leaf.buffer = cell
            cell.owner = self._reference
            if self._node is None and self.cell is cell:  # both at once: see above
                self._node = leaf
                if outside is not None and not self.exported:  # last: it knows what to differentiate through
                    self._outside = None
                return leaf
            found = self._node
            if found is not None:  # another thread's
                return found

    def _shared_leaf(self, outside: Outside) -> Node:
        """The content as it is now, though whoever shares the memory may write to it before it is used.

        A small one is copied. What reads a large one, or one that other processes write to, runs before the user's
        call returns.
        """
        memory = self.cell.memory  # type: ignore[union-attr]
        outside.join()
        before = None if outside.snapshot is None else outside.snapshot()
        if before is not None and before.buffer.memory.same(memory):
            return before
        leaf = unique(leaves.data, (), (self.type,), self.type)
        if outside.between_processes or memory.nbytes > SNAPSHOT_BYTES:
            leaf.buffer = self.cell
            state.volatile.append(leaf)
        else:
            leaf.buffer = Cell(memory.clone())
            outside.snapshot = weakref.ref(leaf)
        return leaf

    def write(self, node: Node, later: list[Storage] | None = None) -> None:
        """Give the storage another content; its memory follows at the next flush.

        A memory that others see gets it before this returns, or, with `later`, is noted there for `compute_now`.
        """
        if state.session is not None:
            session.about_to_write((self,))
        number = next_number()
        state.touched += 1
        if not self._queued:  # first: who is told of a content that does not come finds nothing to do
            state.pending[number] = self._reference
            self._queued = number
        elif (before := self._node) is not None:
            state.rewritten[before.number] = self._queued
        self._node = node
        self.writes += 1
        self._written(node, later)
        if number >= state.look_at:
            engine.look(self, number)

    def replace(self, node: Node, content: Node | None, writes: int, later: list[Storage] | None = None) -> bool:
        """Write a content that was computed of the one that `_node` and `writes` were when it was looked at.

        Returns False, and writes nothing, if another thread or a signal handler wrote since.
        """
        if state.session is not None:
            session.about_to_write((self,))
        number = next_number()
        state.touched += 1
        if not self._queued:  # first: who is told of a content that does not come finds nothing to do
            state.pending[number] = self._reference
            self._queued = number
        elif (before := self._node) is not None:
            state.rewritten[before.number] = self._queued
        if self._node is not content or self.writes != writes:
            return False
        self._node = node  # no call from the look on: nobody writes between
        self.writes += 1
        self._written(node, later)
        if number >= state.look_at:
            engine.look(self, number)
        return True

    def writing(self, node: Node, times: int) -> list[Change]:
        """The changes (`at_once.py`) that write this content, as if it was written so many times; `written` follows."""
        found: list[Change] = [(setattr, self, "_node", node), (setattr, self, "writes", self.writes + times),
                               (setattr, self, "error", None)]
        if not self._queued:
            number = next_number()
            found += [(state.pending.__setitem__, number, self._reference), (setattr, self, "_queued", number)]
        elif (before := self._node) is not None:
            found.append((state.rewritten.__setitem__, before.number, self._queued))
        return found

    def written(self) -> None:
        """What follows a write that was made by its changes."""
        node = self._node
        if node is not None:
            self._written(node, None)

    def _written(self, node: Node, later: list[Storage] | None) -> None:
        outside = self._outside
        state.touched += 1
        if node.needs_grad:
            state.tracked_writes += 1
        if outside is not None:
            outside.through = None
        self.error = None
        if state.session is not None and (running := session.active()) is not None:
            running.note_write(self._reference)
        if (outside is not None and self.exported) or (state.volatile and node.op is not control.item):
            if later is None:
                compute_now(self)
            else:
                later.append(self)

    def settle(self, cell: Cell, keep: Node | None = None, content: Node | None = None) -> None:
        """The content is in the cell's memory now. `keep` is the node to differentiate through, or the memory's leaf.

        `content`: what the cell holds. Where something else was written since, that is still to be computed.
        """
        state.touched += 1
        held = self.cell, self._node, self.watching  # so that nothing is freed, and no finalizer runs, in between
        if (watching := self.watching) is not None and watching.inputs[0].inputs:
            self.watching = None  # it would keep what the content was computed from
        cell.owner = self._reference
        if keep is not None and keep.needs_grad:  # first: once the content is there, a backward has to find it
            note_differentiable(self._reference)
        if content is not None and self._node is not content:
            self.cell = cell
            return
        self.cell = cell  # no call since the comparison; in this order each is right without the next
        self._node = keep
        self._queued = 0
        del held
        if self._outside is not None:
            if self.exported:
                self._keep_from_outside(self._outside)
            else:
                self._outside = None

    def fail(self, error: BaseException, content: Node | None = None) -> None:
        """The pending content is lost: back to the last computed one, or to raising the error.

        `content`: which content, if it is still that.
        """
        held = self._node
        if content is not None and held is not content:
            return
        if state.undo and held is not None:
            _take_back(held)
        self._node, self._queued, self.watching = None, 0, None
        del held
        if self.cell is None:
            self.error = error

    def share(self, owner: Any, stream: OtherStream | None = None, between_processes: bool = False) -> None:
        """Note that `owner`, which can be weakly referenced, shares the memory, which holds the content.

        Args:
            owner: as long as it lives, the memory is shared.
            stream: on a GPU, where the others work with it (`runtime.cuda.foreign.ForeignStream`).
            between_processes: see `Outside`.
        """
        state.touched += 1
        self.shares += 1
        if self._outside is None:
            self._outside = Outside(between_processes)
        if stream is not None:
            self._outside.streams.append((weakref.ref(owner), stream))
        owners = self._outside.owners
        owners[:] = [*(one for one in owners if one() is not None), weakref.ref(owner)]
        self._keep_from_outside(self._outside)

    def move(self, memory: Any) -> None:
        """The content is in another memory from now on, which other processes write to, too, and which has a copy of
        it. Who recorded reads of the content keeps the memory that it was in."""
        state.touched += 1
        self.shares += 1
        outside, node = Outside(between_processes=True), self._node
        if node is not None and node.needs_grad:
            outside.through = node
        elif self._outside is not None:
            outside.through = self._outside.through
        outside.owners.append(weakref.ref(memory))
        held = self.cell, node, self.watching, self._outside
        at_once(changes((), [(setattr, self, "_outside", outside), (setattr, self, "cell", Cell(memory)),
                             (setattr, self, "_node", None), (setattr, self, "watching", None)]))
        del held

    def join_others(self) -> None:
        """On a GPU, make our later work wait for the work of those who share the memory."""
        if self._outside is not None:
            self._outside.join()

    def _keep_from_outside(self, outside: Outside) -> None:
        """Nodes that stand for the content as it is now get a copy of it, since the memory may change."""
        if not self.settled:  # another thread wrote to it since: that is to be computed
            return
        if self._node is not None and self._node.needs_grad:
            outside.through = self._node
        self._node = self.watching = None
        assert self.cell is not None
        cell = self.cell
        if getrefcount(cell) > HELD_AND_NAMED:  # nodes read it
            memory = cell.memory
            new, copy = Cell(memory), memory.clone()
            at_once(changes((), [(setattr, self, "cell", new), (setattr, cell, "memory", copy)]))


_new_storage = object.__new__


def storage_of(node: Node) -> Storage:
    """`Storage(node.type, node)` without the call of a class, 0.15 µs of each op (`benchmarks/recording.py`)."""
    self = _new_storage(Storage)
    self.type, self._node, self.cell = node.type, node, None
    self.writes = self.shares = self.viewed = 0
    self.replays = ()
    self.persistent = False
    self.inference = mode.flags[1] == 1
    self.error = self._outside = self.detached_by = self.watching = self.noted = None
    self._reference = reference = weakref.ref(self)
    self._queued = number = next_number()
    state.pending[number] = reference
    if number >= state.look_at:
        engine.look(self, number)
    return self


def _take_back(content: Node) -> None:
    """A content is dropped: so is what Python counted with the writes that it needs."""
    needed = walk([content])
    for node in [node for node in reversed(list(state.undo)) if node in needed]:  # the last step first
        undo = state.undo.pop(node, None)
        if undo is not None:
            undo()


SNAPSHOT_BYTES = 1 << 20
"""Up to this size, a content that is shared outside is copied when it is read."""


def compute_now(*storages: Storage) -> None:
    """Compute the contents, in one plan, before the call returns: they were read from memory that may change, or
    others see the memory that they go to."""
    shared = [storage._outside for storage in storages if storage._outside is not None]
    for outside in shared:
        outside.join()
    try:
        engine.flush(storages)
    finally:
        state.volatile.clear()
    for outside in shared:
        outside.release()
