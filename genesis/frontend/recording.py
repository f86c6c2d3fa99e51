"""Recording: from tensors and numbers to nodes, and from nodes to tensors.

This is the hot path of an eager-looking program: every op that a user calls goes through
`record` (or `read` and `wrap`), about 5 µs each.
"""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.detached import Detached, without_history
from genesis.frontend.grad_mode import mode
from genesis.frontend.layouts import forget, is_dense, laid_out, note, result_layout
from genesis.frontend.state import state
from genesis.frontend.storage import Cell, Storage, compute_now, storage_of
from genesis.frontend.views import VIEWS, View, watched
from genesis.ir.errors import Misfit, failure, is_foreign, not_a_tensor, not_an_operand
from genesis.ir.node import Node, Op, make, make_apart
from genesis.ir.numbers import as_number, number
from genesis.ir.ops import control, recompute
from genesis.ir.result_types import set_operand_class
from genesis.ir.source import here, here_in
from genesis.ir.types import DType, TensorType, not_a_dtype

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

_NUMBERS = (bool, int, float)
leaf_numbers, region_numbers = itertools.count(1), itertools.count(1)
FREED = 0
"""The leaf number that stands for a graph whose backward has run."""


class TensorBase:
    """The base of tensors, with what recording needs: a storage, the part of it that is shown, and how gradients flow.

    Attributes:
        storage: the memory it looks at.
        spec: shape, dtype and device of what it shows.
        part: the part of the storage that it shows, None for all of it.
        leaf: number of the leaf tensor that reading it watches, or None. Negative for a view that was taken under
            no_grad of what requires grad: no gradient goes on from it.
        detached: how gradients flow through a tensor that was detached, and its views; None for others.
    """

    __slots__ = ("__weakref__", "_grad", "detached", "is_view", "leaf", "name", "part", "spec", "storage")

    storage: Storage
    spec: TensorType
    part: View | None
    leaf: int | None
    detached: Detached | None
    is_view: bool
    _grad: Any


set_operand_class(TensorBase)
_tensor_class: type[TensorBase] = TensorBase
_new_tensor: Final = object.__new__

MOST_NOTED: Final = 256
"""Views of a storage that are noted before those that ended are looked for. A new one often has an ended one's address,
and takes its place."""


def set_tensor_class(cls: type[TensorBase]) -> None:
    """Set the class of the tensors that `wrap` makes; `frontend/tensor.py` calls this."""
    global _tensor_class
    _tensor_class = cls


def new_leaf(tensor: Any) -> int:
    """A number for a tensor that wants gradients."""
    leaf = next(leaf_numbers)
    state.watched[leaf] = tensor
    if len(_last_leaf) > 2 * len(state.watched) + 1024:
        for place, number in list(_last_leaf.items()):
            if number not in state.watched:
                _last_leaf.pop(place, None)
    _last_leaf[id(tensor)] = leaf
    return leaf


_last_leaf: dict[int, int] = {}
"""Where a tensor is in memory → the last number that the tensor there got."""


def leaf_of(tensor: Any) -> int | None:
    """The number that a tensor got when it wanted gradients before, None if it never did."""
    number = _last_leaf.get(id(tensor))
    return number if number is not None and state.watched.get(number) is tensor else None


def read(tensor: TensorBase) -> Node:
    """The node of what the tensor shows now, as the grad mode lets gradients through."""
    try:
        storage = tensor.storage
        node = storage._node
    except AttributeError:  # a `try` costs nothing where nothing is raised
        raise not_a_tensor(tensor) from None
    if node is None:
        node = storage._leaf()
    if tensor.leaf is not None:
        if mode.flags[0]:
            part = tensor.part
            if node.needs_grad:  # it shares the memory of a computed tensor, and is a leaf of its own
                node = make(control.stop_gradient, (node,))
            if part is not None:
                node = part.watch(node, tensor.leaf)
            else:
                watching = storage.watching
                if watching is not None and watching.inputs[0] is node and watching.attrs[0] == tensor.leaf:
                    node = watching
                else:
                    watching = None  # who holds it is counted
                    node = watched(storage, node, tensor.leaf)
            if state.regions:
                node = entered(storage, node)
            return node if part is None or not part.turned else note(node, part)
        if node.needs_grad:
            node = make(control.stop_gradient, (node,))
    elif tensor.detached is not None:
        node = tensor.detached.read(node)
    elif node.needs_grad and not mode.flags[0]:
        node = without_history(node)
    part = tensor.part
    if part is None:
        return node if not state.regions else entered(storage, node)
    node = part.read(node)
    if state.regions:
        node = entered(storage, node)
    return note(node, part) if part.turned else node


def read_all(tensors: Iterable[TensorBase]) -> list[Node]:
    """`read` of each. Most of an optimizer's hundreds are whole memories, of which no gradient is taken."""
    if mode.flags[0] or state.regions:
        return list(map(read, tensors))
    found = []
    for tensor in tensors:
        try:
            whole = tensor.part is None and tensor.detached is None
        except AttributeError:
            raise not_a_tensor(tensor) from None
        node = None
        if whole:
            storage = tensor.storage
            node = storage._node
            if node is None:
                node = storage._leaf()
        found.append(read(tensor) if node is None or node.needs_grad else node)
    return found


def require_tensors(*values: Any) -> None:
    """Raise TypeError if one of these is no tensor; None, an argument that was left out, may be among them.

    For functions of several operands, whose recording takes long beside it. One that looks at a shape and records a
    single op does without: what it misses is told by the function that users call (`public_functions.py`).
    """
    for value in values:
        if not isinstance(value, TensorBase) and value is not None:
            raise not_a_tensor(value)


def misplaced(error: AttributeError, *tensors: Any, dtype: Any = None) -> Exception:
    """What to raise for an attribute that was missing: which of the tensors, or the dtype, is of another library.

    A function that looks at a shape before it reads its operand asks this in an `except`, which costs nothing where
    nothing is raised. If all are what they should be, the error is one of ours and stays.
    """
    asked = getattr(error.obj, "__self__", error.obj)  # torch's `type` is a method, which has no `shape`
    for tensor in (*tensors, asked) if is_foreign(asked) else tensors:
        if not isinstance(tensor, TensorBase):
            return not_a_tensor(tensor)
    return error if dtype is None or isinstance(dtype, DType) else not_a_dtype(dtype)


class Region:
    """A part of the program, while it is recorded, that backward computes again (`genesis.checkpoint`).

    Attributes:
        number: tells its boundaries from another region's.
        own: the storages that it made. What it reads of others comes in through an `enter`.
        renewals: what backward has to make anew when it comes to the region's results (`boundaries.Renewal`).
    """

    def __init__(self) -> None:
        self.number = next(region_numbers)
        self.own: weakref.WeakSet[Storage] = weakref.WeakSet()
        self.renewals: list[Any] = []
        self._thread = threading.get_ident()

    def here(self) -> bool:
        """Whether this thread records the region."""
        return self._thread == threading.get_ident()


def entered(storage: Storage, node: Node) -> Node:
    """The node that is read of a storage, as the regions around see it."""
    for region in state.regions:
        if storage not in region.own and region.here():
            node = make(recompute.enter, (node,), (region.number,))
    return node


def operand(x: Any) -> Node:
    """The node of a tensor or a Python number."""
    if isinstance(x, TensorBase):
        return read(x)
    if x.__class__ in _NUMBERS:
        return number(x)
    if x.__class__ is Node:
        return x
    plain = as_number(x)
    if plain is None:
        raise not_an_operand(x)
    return number(plain)


_READ_THROUGH = frozenset({control.watch, control.overwritten, *VIEWS})


def wrap(node: Node) -> Tensor:
    """A new tensor whose content is the node's value.

    A node that gradients flow through is this tensor's own from now on: recording its op again makes another one. What
    a tensor shows already, or reads through a view, gets an `alias`.
    """
    kind, part = node.type, None
    if state.turned:
        node, part = result_layout(node)
    if node.needs_grad:
        if node.shown or node.op in _READ_THROUGH:
            node = make(control.alias, (node,), (next(leaf_numbers),), node.source)
        node.shown = True
    tensor = _new_tensor(_tensor_class)
    tensor.storage = storage_of(node)
    tensor.spec, tensor.part = kind, part
    tensor._grad = tensor.leaf = tensor.detached = None
    tensor.is_view = False
    for region in state.regions:
        if region.here():
            region.own.add(tensor.storage)
    if state.volatile:
        compute_now(tensor.storage)
    return tensor  # type: ignore[return-value]


def wrap_laid_out(node: Node, strides: tuple[int, ...] | None) -> Tensor:
    """`wrap`, with the elements in memory in the order of these dense strides; None is row-major."""
    forget()
    stored, part = laid_out(node, strides)
    tensor = wrap(stored)
    tensor.spec, tensor.part = node.type, part
    return tensor


def wrap_as(x: TensorBase, gradient: Node) -> Tensor:
    """A gradient by x, with x's strides if x is dense, else row-major: what torch promises of `.grad`."""
    part = x.part
    if part is None or not part.turned:
        return wrap(gradient)
    return wrap_laid_out(gradient, part.strides if is_dense(x.spec.shape, part.strides) else None)


def wrap_memory(memory: Any, type: TensorType) -> Tensor:
    """A new tensor over memory that holds its content already."""
    return over(Storage(type, None, Cell(memory)), type, None)


def over(storage: Storage, type: TensorType, part: View | None) -> Tensor:
    """A new tensor that shows a part of an existing storage."""
    tensor = _new_tensor(_tensor_class)
    tensor.storage, tensor.spec, tensor.part = storage, type, part
    tensor._grad = tensor.leaf = tensor.detached = None
    tensor.is_view = False
    return tensor  # type: ignore[return-value]


def view_of(tensor: TensorBase, type: TensorType, part: View) -> Tensor:
    """A new tensor that is a view of another one: over the same storage, with its leaf."""
    view = _new_tensor(_tensor_class)
    view.storage = storage = tensor.storage
    view.spec, view.part, view._grad, view.is_view = type, part, None, True
    view.leaf, view.detached = tensor.leaf, tensor.detached
    if view.leaf is None and ((node := storage._node) is None or not node.needs_grad):
        if storage.noted is not None:
            note_view(view)
        else:
            storage.viewed = searches.number
    return view  # type: ignore[return-value]


class Searches:
    """Searches for views among all objects.

    Attributes:
        number: of the next one.
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 1


searches: Final = Searches()


def note_view(view: TensorBase) -> None:
    """Note a view that wants no gradients, as it does once its base does.

    What never was a leaf that wanted some learns no more than that there are views: a reference would cost each of
    them 0.3 µs, and such a base is searched for them once (`note_all_views`).
    """
    storage = view.storage
    noted = storage.noted
    if noted is None:
        storage.viewed = searches.number
        return
    if len(noted) > MOST_NOTED:
        for number, reference in list(noted.items()):
            if reference() is None:
                noted.pop(number, None)
    noted[id(view)] = weakref.ref(view)


def note_all_views() -> None:
    """Look for views that want no gradients among all objects (0.1 s for a million), and note each."""
    searches.number += 1
    for x in gc.get_objects():
        if issubclass(type(x), TensorBase) and hasattr(x, "is_view") and x.is_view and x.leaf is None:
            if x.storage.noted is None:
                x.storage.noted = {}
            note_view(x)


def owned(result: Any) -> Any:
    """The result of an op that copies, which may show a part of a memory of its own: it is no view of anybody's."""
    if result.leaf is None:
        result.is_view = False
    return result


def show(tensor: TensorBase, like: TensorBase) -> None:
    """Make the tensor show what another one shows; a leaf stays a leaf, and its gradient gets that shape."""
    held = tensor.storage
    at_once(changes((), showing(tensor, like)))
    del held


def showing(tensor: TensorBase, like: TensorBase) -> list[Change]:
    """The changes that make the tensor show what another one shows; see `show`."""
    part = like.part
    if part is not None and tensor.leaf is not None and not tensor.is_view:
        part = part.of_leaf()
    return [(setattr, tensor, "storage", like.storage), (setattr, tensor, "spec", like.spec),
            (setattr, tensor, "part", part)]


def emit(op: Op, nodes: tuple[Node, ...], attrs: tuple = (), inside: int = 2, called: str = "") -> Node:
    """The node for an op of the user's, with the user's line; a mismatch raises the four-part error.

    Args:
        inside: see `here`. Our caller is no user's function, but may be called by one.
        called: the public function, for errors, where the op's name is another one.
    """
    try:
        if op.differentiable:
            for node in nodes:
                if node.needs_grad:
                    return make_apart(op, nodes, attrs, here(inside))
        return make(op, nodes, attrs, here(inside))
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        raise _unfit(called or op.name, nodes, error) from None


def _unfit(called: str, nodes: Sequence[Node], error: Exception) -> Exception:
    operands = [(f"operand {i}", node) for i, node in enumerate(nodes)]
    if isinstance(error, Misfit):
        return failure(called, str(error), operands, hint=error.hint)
    return failure(called, str(error), operands, error=type(error))


def record(op: Op, inputs: Sequence[Any], attrs: tuple = (), called: str = "") -> Any:
    """Record the op on tensors and numbers, which already have the dtypes and shapes it wants.

    Args:
        called: the public function, for errors, where the op's name is another one.

    Returns:
        A tensor, or a tuple of tensors for an op with several results.
    """
    nodes = tuple([read(x) if x.__class__ is _tensor_class else operand(x) for x in inputs])  # most are: a call less
    node = emit(op, nodes, attrs, 3, called)  # only functions of Genesis call this
    if type(node.type) is tuple:
        return wrap_all([make(control.item, (node,), (i,), node.source) for i in range(len(node.type))])
    return wrap(node)


def record_in(called: str, op: Op, inputs: Sequence[Any], attrs: tuple = ()) -> Tensor:
    """`record` of an op with one result that is a part of a public function, for errors to name that function also
    where the user's line calls a module."""
    nodes = tuple([operand(x) for x in inputs])
    try:
        return wrap(make(op, nodes, attrs, here_in(called)))
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        raise _unfit(called, nodes, error) from None


def wrap_all(nodes: Sequence[Node]) -> tuple[Tensor, ...]:
    """New tensors for the results of one op: what reads memory that may change computes all of them at once."""
    if not state.volatile:
        return tuple(map(wrap, nodes))
    read_from = state.volatile[:]
    state.volatile.clear()
    made = tuple(map(wrap, nodes))
    state.volatile[:] = read_from
    compute_now(*[tensor.storage for tensor in made])
    return made
