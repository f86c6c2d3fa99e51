"""Views: which part of a storage a tensor shows, as the movement ops that lead there.

Reading a view emits them, writing through one emits them and their inverses. A leaf tensor that shows all of its
storage is read through a `watch` node, which is used again when the memory has got another content.
"""

from __future__ import annotations

from operator import lt
from sys import getrefcount
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, forget_equal, make, next_node_number
from genesis.ir.ops import control, indexing, leaves, movement
from genesis.ir.types import Device, int64
from genesis.runtime.references import HELD_AND_NAMED

if TYPE_CHECKING:
    from genesis.frontend.storage import Storage
    from genesis.ir.node import Op

ViewStep = tuple["Op | _Strided", tuple]
"""(the op, its attributes)."""


class View:
    """A part of a storage: strides and offset in elements, as torch reports them, and the
    movement ops that select it from the whole.

    `shapes`: what each step is taken of; None, or empty, where that is not known.
    `leaf_steps`: how many of these lead to the leaf tensor that this is a view of, when that is a part itself.
    `turned`: the elements may lie in another order than row-major, so that results may, too
    (`genesis.frontend.layouts`).
    """

    __slots__ = ("leaf_steps", "offset", "shapes", "steps", "strides", "turned")

    def __init__(self, strides: tuple[int, ...], offset: int, steps: tuple[ViewStep, ...], leaf_steps: int = 0,
                 shapes: tuple[tuple[int, ...] | None, ...] = ()):
        self.shapes = shapes
        self.strides, self.offset, self.steps, self.leaf_steps = strides, offset, steps, leaf_steps
        self.turned = 0 in strides or any(map(lt, strides, strides[1:]))

    def of_leaf(self) -> View:
        """The same part, shown by a leaf tensor: its gradient has the part's shape, not the whole's."""
        return type(self)(self.strides, self.offset, self.steps, len(self.steps), self.shapes)

    @property
    def is_leaf(self) -> bool:
        """True if it is the part that a leaf tensor shows, not a view of that."""
        return self.leaf_steps == len(self.steps)

    def read(self, whole: Node) -> Node:
        """The part, given the whole."""
        for op, attrs in self.steps:
            whole = _applied(op, attrs, whole)
        return whole

    def watch(self, whole: Node, leaf: int) -> Node:
        """The part, given the whole, as part of the leaf tensor with this number."""
        for op, attrs in self.steps[:self.leaf_steps]:
            whole = _applied(op, attrs, whole)
        whole = make(control.watch, (whole,), (leaf,))
        for op, attrs in self.steps[self.leaf_steps:]:
            whole = _applied(op, attrs, whole)
        return whole

    def write(self, whole: Node, part: Node, uniform: bool = False) -> Node:
        """The whole with this part replaced. `uniform`: all elements are equal.

        Raises RuntimeError if elements share memory, so that the order of writes would matter.
        """
        if any(op in (movement.expand, movement.pad, STRIDED) for op, _ in self.steps):
            return self._write_elements(whole, part, uniform)
        parents = [whole]
        for op, attrs in self.steps[:-1]:
            parents.append(_applied(op, attrs, parents[-1]))
        for (op, attrs), parent in zip(reversed(self.steps), reversed(parents), strict=True):
            part = _undo(op, attrs, parent, part)
        return part

    def _write_elements(self, whole: Node, part: Node, uniform: bool) -> Node:
        """The whole with each element of the part written to its place in memory."""
        shape = part.type.shape
        if not uniform and any(stride == 0 and size > 1 for size, stride in zip(shape, self.strides, strict=True)):
            raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a "
                               "single memory location")
        return _put(whole, part, _places(shape, self.strides, self.offset, part.type.device))


class Layout(View):
    """All of a storage, its elements in another order than row-major: the tensor is no view of another."""

    __slots__ = ()


class _Strided:
    """The step of a view that no movement op selects: attributes (shape, strides, offset), in elements of the whole."""

    name = "as_strided"


STRIDED: Final = _Strided()

VIEWS: Final = frozenset({movement.reshape, movement.permute, movement.slice, movement.expand})
"""The ops that reading a view records, but for those of `as_strided` and of memory from outside."""


def _applied(op: Op | _Strided, attrs: tuple, whole: Node) -> Node:
    """The node that a view's step selects of the whole."""
    if op is not STRIDED:
        return make(op, (whole,), attrs)  # type: ignore[arg-type]  # an `isinstance` would cost each read
    flat = movement.reshape(whole, shape=(whole.type.numel,))
    shape, strides, offset = attrs
    return indexing.take(flat, _places(shape, strides, offset, whole.type.device), axis=0)


def _places(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, device: Device) -> Node:
    """The position of each element in memory."""
    place = leaves.full(shape, offset, int64, device)
    for axis, stride in enumerate(strides):
        place = place + leaves.iota(shape=shape, axis=axis, dtype=int64, device=device) * stride
    return place


def _put(whole: Node, part: Node, places: Node) -> Node:
    """The whole with the elements at these places replaced."""
    count = part.type.numel
    flat = movement.reshape(whole, shape=(whole.type.numel,))
    written = indexing.index_copy(flat, movement.reshape(places, shape=(count,)),
                                  movement.reshape(part, shape=(count,)), axis=0)
    return movement.reshape(written, shape=whole.type.shape)


def _undo(op: Op | _Strided, attrs: tuple, parent: Node, part: Node) -> Node:
    """The parent with op(parent) replaced by `part`."""
    if op is movement.reshape:
        return make(movement.reshape, (part,), (parent.type.shape,))
    if op is movement.permute:
        return make(movement.permute, (part,), (movement.inverse(attrs[0]),))
    if op is movement.slice:
        return make(movement.assign, (parent, part), attrs)
    if op is STRIDED:
        shape, strides, offset = attrs
        return _put(parent, part, _places(shape, strides, offset, part.type.device))
    raise RuntimeError(f"cannot write through {op.name}")


def read_as_leaf(storage: Storage, content: Node, leaf: int) -> Node:
    """`watched`, or the node that reads this content so already; `frontend.recording.read` has it in its own lines."""
    watching = storage.watching
    if watching is not None and watching.inputs[0] is content and watching.attrs[0] == leaf:
        return watching
    watching = None  # who holds it is counted
    return watched(storage, content, leaf)


def watched(storage: Storage, content: Node, leaf: int) -> Node:
    """The node that reads the whole storage as the leaf tensor with this number, remembered as `Storage.watching`.

    A step writes to hundreds of parameters, each of which the next forward reads through such a node: to make one, and
    to let the table of equal nodes know and forget it, takes 1.6 µs and seven objects of Python's, a quarter of what
    its collector looks at in a small model's step (`benchmarks/host_time.py`). The one of the content before has the
    same type and number. Where nothing but the storage holds it any more, it becomes the new one. Nobody gets hold of
    such a node but by asking here: another thread or a signal handler that does so meanwhile holds it or finds it held.
    """
    before = storage.watching
    if (before is None or getrefcount(before) != HELD_AND_NAMED or before.attrs[0] != leaf
            or before.type is not content.type or before.hooks is not None or before.boundary is not None):
        made = make(control.watch, (content,), (leaf,))
        storage.watching = made if made.hooks is None and made.boundary is None else None
        return made
    if not before.shown:  # the table of equal nodes has it, by the content before
        forget_equal((before,))
        before.shown = True
    before.buffer = before.source = None
    before.number = next_node_number()
    held = before.inputs  # so that nothing is freed in between
    before.inputs = (content,)
    del held
    return before
