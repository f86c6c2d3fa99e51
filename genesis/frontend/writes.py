"""Writes: values through tensors into their storages, one or several at once.

A write through a tensor makes a new content of its storage, which all tensors over that storage show from then on. The
writes of an optimizer's step, and of a backward, are made together, with other changes that belong to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from genesis.frontend import session
from genesis.frontend.at_once import Change, Expected, at_once, attributes, changes
from genesis.frontend.grad_mode import mode
from genesis.frontend.layouts import forget
from genesis.frontend.pending import next_number
from genesis.frontend.recording import FREED, TensorBase, misplaced
from genesis.frontend.state import state
from genesis.frontend.storage import Storage, compute_now
from genesis.ir.errors import failure
from genesis.ir.interrupting import from_inside
from genesis.ir.node import Node, make
from genesis.ir.ops import control, movement


def update(tensor: TensorBase, compute: Callable[[], Node], replaces: bool = False) -> None:
    """Write to a tensor what is computed of its own content: again, if another thread wrote to it meanwhile."""
    while True:
        try:
            since = content_of(tensor.storage)
        except AttributeError as error:
            raise misplaced(error, tensor) from None
        if assign(tensor, compute(), replaces, since=since):
            return


def assign(tensor: TensorBase, node: Node, replaces: bool = False, uniform: bool = False,
           later: list[Storage] | None = None, since: tuple[Node | None, int] | None = None) -> bool:
    """Write a value of the tensor's own type through it, into its storage.

    `replaces`: the value is not computed from the content, which then gets a gradient of 0.
    `uniform`: all its elements are equal, so that it can be written where elements share memory.
    `later`: where to note a storage that must be computed before the user's call returns, as others see its memory.
    `since`: the content that the value was computed of (`content_of`). Returns False, and writes nothing, if another
    thread has written to the storage since.
    """
    if state.turned:  # values that were read for this write are no operands of the next result
        forget()
    node, storage = _writable(tensor, node), tensor.storage
    detached = tensor.detached
    if not _has_way(tensor, node):
        detached = None
    if tensor.part is None and detached is None and not storage.needs_grad:
        if since is not None:
            return storage.replace(node, since[0], since[1], later)
        storage.write(node, later)
        return True
    while True:
        content, writes = since or content_of(storage)
        whole = _whole(tensor, node, replaces, uniform)
        if storage.replace(whole, content, writes, later) if detached is None else (
                detached.replace(storage, whole, content, writes, later)):
            return True
        if since is not None:
            return False


def assign_all(tensors: Sequence[TensorBase], nodes: Sequence[Node], also: Iterable[Change] = ()) -> None:
    """Write values through several tensors. All are computed from what is there before the first is written, and all
    are written, or none where an exception comes.

    `also`: other changes that belong to the writes (`at_once.py`).
    """
    if state.turned:
        forget()
    storages = [tensor.storage for tensor in tensors]
    if _are_plain(tensors, storages, nodes):
        write_at_once(storages, nodes, also)
        return
    if len(set(storages)) < len(storages) or any(map(_has_way, tensors, nodes)):
        later: list[Storage] = []
        for tensor, node in zip(tensors, nodes, strict=True):
            assign(tensor, node, later=later)
        at_once(changes((), [(state.together.append, [storage._queued for storage in storages]), *also]))
        if later:
            compute_now(*later)
        return
    values = [_writable(tensor, node) for tensor, node in zip(tensors, nodes, strict=True)]
    while True:
        expected: list[Expected] = []
        contents = values[:]
        for at, tensor in enumerate(tensors):
            if tensor.part is not None or storages[at].needs_grad:
                content, writes = content_of(storages[at])
                expected += [((getattr, storages[at], "_node"), content), ((getattr, storages[at], "writes"), writes)]
                contents[at] = _whole(tensor, values[at], False, False)
        try:
            write_at_once(storages, contents, also, expected)
            return
        except from_inside(KeyError):  # another thread wrote to one meanwhile
            if not expected:
                raise


def _are_plain(tensors: Sequence[TensorBase], storages: Sequence[Storage], nodes: Sequence[Node]) -> bool:
    """Whether each value may be written as it is, to a memory of its own that no gradient flows through: an optimizer's
    hundreds, each of which is looked at once here (`benchmarks/host_time.py`)."""
    if len(set(storages)) < len(storages):
        return False
    tracked, inference = mode.flags[0], mode.inference
    for tensor, storage, node in zip(tensors, storages, nodes, strict=True):
        leaf, content = tensor.leaf, storage._node
        if tensor.part is not None or tensor.detached is not None or node.type is not tensor.spec:
            return False
        if (leaf is not None and (tracked or leaf == FREED)) or (storage.inference and not inference):
            return False
        if storage._outside is not None if content is None else content.needs_grad:
            return False
    return True


def content_of(storage: Storage) -> tuple[Node | None, int]:
    """The pair that `Storage.replace` compares: the content that is read from now on, and how often it was written."""
    content = storage._node
    if content is None and storage._outside is None:
        content = storage._leaf()
    return content, storage.writes


def _has_way(tensor: TensorBase, node: Node) -> bool:
    """Whether it is a detached tensor and gradients flow through what it shows, or is to show."""
    detached = tensor.detached
    return detached is not None and (node.needs_grad or detached.history is not None or tensor.storage.needs_grad)


def _writable(tensor: TensorBase, node: Node) -> Node:
    """The value to write through the tensor, which may be written to and is of the value's type."""
    storage, leaf = tensor.storage, tensor.leaf
    if leaf is not None and leaf != FREED and mode.flags[0]:
        raise _refused(tensor)
    if storage.inference and not mode.inference:
        raise failure("in-place write", "Inplace update to inference tensor outside InferenceMode is not allowed",
                      [("tensor", tensor)], hint="write to a clone() of it")
    if node.type is not tensor.spec:
        raise failure("in-place write", f"the result is {node.type}, but the tensor written to is {tensor.spec}",
                      hint="use the out-of-place op")
    if leaf == FREED and node.needs_grad:  # the tensor's history is that its graph is gone, whatever is written
        node = make(control.stop_gradient, (node,))
    return node


def _refused(tensor: TensorBase) -> Exception:
    """Why this tensor is not written to while gradients are tracked."""
    what, hint = "a leaf variable that requires grad is", "write under genesis.no_grad(), or to a clone()"
    if tensor.leaf < 0:  # type: ignore[operator]
        what = "a view that was taken under no_grad, or before its base required grad, is"
        hint = "take the view and write to it both inside, or outside"
    elif tensor.is_view:
        what = "a view of a leaf variable that requires grad is"
    return failure("in-place write", f"{what} being used in an in-place operation", [("tensor", tensor)], hint=hint)


def _whole(tensor: TensorBase, node: Node, replaces: bool, uniform: bool) -> Node:
    """The storage's content after a value is written through the tensor."""
    before = whole = tensor.storage.node
    detached = tensor.detached
    hidden = detached is None and before.needs_grad and not mode.flags[0]
    if detached is not None:
        whole = detached.read(whole)
    elif hidden:
        whole = make(control.stop_gradient, (whole,))
    if tensor.part is not None:
        try:
            node = tensor.part.write(whole, node, uniform)
        except RuntimeError as error:
            raise failure("in-place write", str(error), [("tensor", tensor)],
                          hint="write to a clone() of the tensor") from None
    if replaces and not hidden:
        shape = node.type.shape
        node = make(movement.assign, (whole, node), ((0,) * len(shape), shape, (1,) * len(shape)))
    if hidden:  # what the content was computed from keeps its gradient
        if before.op is control.overwritten:
            before = before.inputs[0]
        node = make(control.overwritten, (before, node))
    return node


def write_at_once(storages: Sequence[Storage], nodes: Sequence[Node], also: Iterable[Change] = (),
                  expected: Sequence[Expected] = ()) -> None:
    """Give several storages other contents, and make other changes: all of it, or nothing where an exception comes.

    Args:
        storages: each once.
        also: the other changes. What they replace has to be held by the caller.
        expected: see `at_once.changes`.

    Raises:
        KeyError: something is not as expected; nothing was done.
    """
    if state.session is not None:
        session.about_to_write(storages)
    state.touched += 1
    if True in [node.needs_grad for node in nodes]:
        state.tracked_writes += 1
    held = [storage._node for storage in storages]
    found: list[Change] = [attributes(storages, "_node", nodes),
                           attributes(storages, "writes", [storage.writes + 1 for storage in storages])]
    new = [storage for storage in storages if not storage._queued]
    numbers = [next_number() for _ in new]
    if new:
        found += [(state.pending.update, dict(zip(numbers, [storage._reference for storage in new], strict=True))),
                  attributes(new, "_queued", numbers)]
    if len(new) < len(storages):
        found.append((state.rewritten.update, {node.number: storage._queued for storage, node in zip(
            storages, held, strict=True) if storage._queued and node is not None}))
    if len(storages) > 1:
        found.append((state.together.append, numbers if len(new) == len(storages) else
                      [*numbers, *[storage._queued for storage in storages if storage._queued]]))
    failed = [storage for storage in storages if storage.error is not None]
    if failed:
        found.append(attributes(failed, "error", repeat(None)))
    shared = [outside for storage in storages if (outside := storage._outside) is not None]
    if shared:
        found.append(attributes(shared, "through", repeat(None)))
    at_once(changes((), [*found, *also], expected))
    del held
    state.touched += 1
    if state.session is not None and (running := session.active()) is not None:
        for storage in storages:
            running.note_write(storage._reference)
    if shared or state.volatile:
        later = [storage for storage, node in zip(storages, nodes, strict=True)
                 if storage.exported or (state.volatile and node.op is not control.item)]
        if later:
            compute_now(*later)


class Before:
    """Recorded contents of storages, before others are written that may be taken back until they are computed.

    Args:
        storages: will be written once.
        also: changes that put back what goes with the writes.
    """

    def __init__(self, storages: Iterable[Storage], also: Iterable[Change] = ()):
        self._storages, self._also = list(dict.fromkeys(storages)), list(also)
        self._cells = [storage.cell for storage in self._storages]
        self._contents = {name: [getattr(storage, name) for storage in self._storages]
                          for name in ("_node", "_queued", "writes", "error")}

    def restore(self) -> None:
        """Make it so, all at once; nothing where it was not written, or has been written or computed meanwhile."""
        storages, contents = self._storages, self._contents
        since = {storage.writes - writes for storage, writes in zip(storages, contents["writes"], strict=True)}
        if not {1} <= since <= {0, 1} or [storage.cell for storage in storages] != self._cells:
            return
        held = [storage._node for storage in storages]
        at_once(changes((), [*(attributes(storages, name, found) for name, found in contents.items()), *self._also]))
        state.touched += 1
        for node in held:
            if node is not None:
                state.undo.pop(node, None)
