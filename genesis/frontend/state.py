"""What is recorded and not computed, and counts of what happened to tensors: the frontend's state.

It is one object of slots because every op reads it: an attribute of it costs what a global does.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from genesis.ir.interrupting import from_inside

if TYPE_CHECKING:
    from genesis.frontend.detached import Detached
    from genesis.frontend.recording import Region
    from genesis.frontend.session import Session
    from genesis.frontend.storage import Storage
    from genesis.frontend.tensor import Tensor
    from genesis.frontend.views import View
    from genesis.ir.node import Node

lock: Final = threading.RLock()
"""Held while memory is computed, copied or handed out: by the engine, and by who reads what it computed."""

# A fork waits for what another thread computes: its child finds everything as between two statements.
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class Rewriting(threading.local):
    """A list of each thread.

    Attributes:
        calls: it has an item for each function that runs.
    """

    def __init__(self) -> None:
        self.calls: list[object] = []


RELEASED: Final = 256
"""Backwards that are remembered: more than the micro-batches of most steps, and few enough to go through at each."""


class FrontendState:
    """What the frontend remembers. Of the counts only matters whether they moved.

    Attributes:
        pending: storages whose content may be ahead of their memory, by a number that grows.
        differentiable: storages with computed content that a backward may go through, by a number above those of the
            nodes that the content is made of.
        unlooked: about how many of these notes were made, or looked at, since all of them were looked at.
        histories: detached tensors that have a history of their own, which a backward may go through. The key is the
            `id` of the reference: references to what was made at one address, one after the other, hash alike.
        volatile: leaves over memory that may change as soon as the user's call returns.
        watched: the leaf tensors that want gradients, by the number in their `watch` nodes.
        parameters, modules: all parameters, and the modules, whose buffers are as little data as these, by `id`.
        crossings: the `watch` nodes that are read in the place of a boundary's outputs (`genesis.frontend.boundaries`),
            by their numbers. Each holds its boundary, and nothing else does: what the boundary holds may be made of
            that node, and goes with it.
        graphs_shown: what users hold of a graph (`x.grad_fn`), by a number: they may ask a function's `ctx` for what it
            has kept.
        renewals: what makes a value anew that a forward has read and nothing keeps for a backward, by its node.
        regions: the regions that are being recorded (`genesis.checkpoint`), the outermost first.
        session: of the running capture, in whatever thread that runs (`session.active`).
        touched: how often any storage was read into the program, written, settled or shared: what holds only while
            storages are left alone holds while this stays.
        tracked_writes: how often any storage got content that gradients flow through after it was made: where they
            flow through no storage that stays at one time they flow through none while this stays.
        grad_looks: how often any tensor's `.grad` was looked at or set: gradients that nobody had at one time nobody
            has while this stays.
        hooked: how often any leaf tensor got a hook: those that had none at one time have none while this stays.
        together: what was written at once (an optimizer's step, the gradients of a backward, a norm's statistics): the
            numbers that these storages are noted by in `pending`. Where one cannot be computed, none is.
        rewritten: the contents that pending storages had before they were written again: the number of the node → the
            number that its storage is noted by. What has read one of these is lost where the storage's content is.
        undo: what takes back what Python counted with a write (an optimizer's step), by a node that the write needs: it
            is called where the write is dropped, as its plan failed.
        look_at: the number of the recorded value at which the engine looks how much is pending.
        pieces: how many cuts (`engine/limits.py`) there were; each computed a piece of a longer program.
        fresh_bytes, bytes_mark: the bytes of all memories that there were, and how many make it look.
        turned: thread → the nodes that were read since its last result from tensors whose elements lie in another order
            (`layouts.py`), with the reading views, by their identity.
        rewriting: the functions that this thread runs on stand-ins for values that are not there yet, as under `vmap`:
            nothing can be computed.
        released: nodes whose graphs a backward without `retain_graph` has let go of, the last ones of those that live.
        released_since: how many of these came since a flush looked for values inside of them that are held.
        released_before: the number of the youngest node that was there when one did.
        rebound: how often a tensor that exists was made to look at other memory, or to want gradients or not.
        states_shown: how often the states of any optimizer were asked for by a user, or replaced: tensors that were in
            them at one time are there while this stays.
    """

    __slots__ = ("bytes_mark", "crossings", "differentiable", "fresh_bytes", "grad_looks", "graphs_shown",
                 "histories", "hooked", "look_at", "modules", "parameters", "pending", "pieces", "rebound", "regions",
                 "released", "released_before", "released_since", "renewals", "rewriting", "rewritten", "session",
                 "states_shown", "together", "touched", "tracked_writes", "turned", "undo", "unlooked", "volatile",
                 "watched")

    def __init__(self) -> None:
        self.pending: dict[int, weakref.ref[Storage]] = {}
        self.differentiable: dict[int, weakref.ref[Storage]] = {}
        self.histories: dict[int, weakref.ref[Detached]] = {}
        self.volatile: list[Node] = []
        self.released: deque[weakref.ref[Node]] = deque(maxlen=RELEASED)
        self.watched: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
        self.undo: weakref.WeakKeyDictionary[Node, Callable[[], object]] = weakref.WeakKeyDictionary()
        self.parameters: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
        self.modules: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.crossings: dict[int, weakref.ref[Node]] = {}
        self.graphs_shown: dict[int, weakref.ref[Any]] = {}
        self.renewals: weakref.WeakKeyDictionary[Node, Any] = weakref.WeakKeyDictionary()
        self.regions: list[Region] = []
        self.turned: dict[int, dict[int, tuple[weakref.ref[Node], View]]] = {}
        self.rewriting = Rewriting()
        self.together: list[Sequence[int]] = []
        self.rewritten: dict[int, int] = {}
        self.session: Session | None = None
        self.fresh_bytes = self.bytes_mark = self.look_at = self.pieces = 0
        self.touched = self.tracked_writes = self.grad_looks = self.rebound = self.hooked = 0
        self.states_shown = self.unlooked = self.released_since = self.released_before = 0

    def crossing(self, number: int) -> tuple[Any, int] | None:
        """(boundary, number of its output) of the `watch` node with this number; None if it is no boundary's."""
        reference = self.crossings.get(number)
        node = None if reference is None else reference()
        return None if node is None else node.boundary

    def live_released(self) -> list[Node]:
        """The nodes of `released` that live; forgets those before the first of them."""
        released = self.released
        try:
            while (first := released[0])() is None:
                released.remove(first)  # by itself: another thread may have pushed it out
        except from_inside(IndexError, ValueError):  # there are none, or it did
            pass
        return [node for reference in list(released) if (node := reference()) is not None]


state: Final = FrontendState()
"""The process's: tensors of all threads meet in one program."""
