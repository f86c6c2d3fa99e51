"""The tensor that users hold. It records what is done to it; the engine computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from numbers import Number
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from genesis.frontend import session
from genesis.frontend.at_once import Change, at_once, attributes, changes
from genesis.frontend.detached import Detached, note_detached
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import enable_grad, mode, no_grad
from genesis.frontend.host_values import host_copy, host_number
from genesis.frontend.layouts import forget
from genesis.frontend.patches import WatchedClass
from genesis.frontend.recording import (
    TensorBase,
    leaf_numbers,
    misplaced,
    note_all_views,
    over,
    read,
    searches,
    set_tensor_class,
    showing,
)
from genesis.frontend.state import state
from genesis.frontend.tensor_methods import TensorMethods
from genesis.frontend.view_geometry import strides_in
from genesis.frontend.writes import assign_all
from genesis.ir.errors import failure, kind_of, not_a_tensor
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves, pointwise
from genesis.ir.sym_int import RUNNING, as_seen
from genesis.ir.types import Device, DType
from genesis.runtime.references import HELD_AND_NAMED

if TYPE_CHECKING:
    from genesis.autograd.methods import AutogradMethods
    from genesis.linalg.methods import MatrixMethods
    from genesis.ops.methods import OpMethods

    class _Methods(OpMethods, AutogradMethods, MatrixMethods):  # type: ignore[misc]
        """The methods that `install` adds, for type checkers."""
else:
    _Methods = TensorBase


class Tensor(_Methods, metaclass=WatchedClass):
    """A multi-dimensional array of one dtype on one device, differentiable, lazily computed.

    Called directly it makes a floating-point tensor from data, as torch.Tensor does:

    >>> import genesis
    >>> genesis.Tensor([1, 2, 3], requires_grad=True)
    tensor([1., 2., 3.], requires_grad=True)
    """

    __slots__ = ("__dict__",)

    _hooks: Any = None
    """Hooks of a leaf, which its gradient goes through (`genesis.autograd.hooks`)."""
    _hooked: Any = None
    """The node that a computed tensor's hooks belong to."""
    _after_hooks: Any = None
    """Hooks of a leaf that are called after its gradient was accumulated."""

    def __init__(self, *data: Any, **options: Any):
        pass

    # Properties

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        shape = self.spec.shape
        return Size(shape) if not RUNNING else Size(map(as_seen, shape))

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.spec.dtype

    @property
    def device(self) -> Device:
        """The device that the elements are on."""
        return self.spec.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.spec.ndim

    @property
    def strides(self) -> tuple[int, ...]:
        """The number of elements to skip for the next one along each dimension."""
        return self.stride()

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return as_seen(self.spec.nbytes)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.spec.dtype.itemsize

    @property
    def _version(self) -> int:
        return self.storage.version

    def dim(self) -> int:
        """Number of dimensions."""
        return self.spec.ndim

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.spec.dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """The strides in elements, or the stride of one dimension."""
        strides = strides_in(self.spec, self.part)
        if RUNNING:
            strides = tuple(map(as_seen, strides))
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """The number of elements before the first one in the storage."""
        return 0 if self.part is None else as_seen(self.part.offset)

    # Gradients

    @property
    def requires_grad(self) -> bool:
        """True if gradients with respect to this tensor, or through it, are tracked."""
        if self.leaf is not None:
            return True
        if self.detached is not None:
            return self.detached.history is not None
        return self.storage.needs_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Make this leaf tensor want gradients, or want none; returns the tensor."""
        if requires_grad == self.requires_grad and (self.leaf is None or self.leaf >= 0 or not requires_grad):
            return self
        if not requires_grad:
            if not self.is_leaf:
                raise failure("requires_grad_", "you can only change requires_grad flags of leaf variables",
                              [("tensor", self)], hint="use detach()")
            session.rebound()
            self.leaf = None
            if self.detached is None and self.storage.needs_grad:  # by what others make of the memory
                self.detached = Detached()
            return self
        if not self.spec.dtype.is_floating_point:
            raise failure("requires_grad_", "only Tensors of floating point dtype can require gradients",
                          [("tensor", self)], hint="cast it with .float() first")
        from genesis.frontend.recording import leaf_of, new_leaf
        if self.storage.inference and not mode.inference:
            raise failure("requires_grad_", "Setting requires_grad=True on inference tensor outside InferenceMode is "
                          "not allowed", [("tensor", self)], hint="use a clone() of it")
        session.rebound()
        was = self.detached
        self.leaf, self.detached, self.is_view = leaf_of(self) or new_leaf(self), None, False
        if self.part is not None:  # others may look at other parts of the storage
            self.part = self.part.of_leaf()
        elif was is None or getrefcount(was) >= HELD_AND_NAMED:  # else no view shares it: `x.detach().requires_grad_()`
            _follow(self, was)
        return self

    @property
    def is_leaf(self) -> bool:
        """True unless it was computed from tensors that require grad."""
        if not self.requires_grad:
            return True
        if not self.leaf:  # None or FREED
            return False
        return not self.is_view or (self.leaf < 0 and (self.part is None or self.part.is_leaf))

    @property
    def grad(self) -> Any:
        """The accumulated gradient, or None."""
        state.grad_looks += 1
        if state.session is not None and (running := session.active()) is not None:
            running.note_grad_read(self)
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise failure("grad", f"assigned grad expected to be a Tensor or None but got grad of type "
                          f"{kind_of(value)}", [("tensor", self)], error=TypeError)
        if value is self:
            raise failure("grad", "can't assign Variable as its own grad", [("tensor", self)])
        if value is not None and (value.spec.shape != self.spec.shape or value.spec.device is not self.spec.device):
            raise failure("grad", f"attempting to assign a gradient of size '{list(value.spec.shape)}' on "
                          f"{value.spec.device} to a tensor of size '{list(self.spec.shape)}' on {self.spec.device}",
                          [("tensor", self), ("grad", value)])
        if value is not None and value.spec.dtype is not self.spec.dtype:
            raise failure("grad", f"attempting to assign a gradient with dtype {value.spec.dtype!r} to a tensor with "
                          f"dtype {self.spec.dtype!r}", [("tensor", self), ("grad", value)])
        if state.session is not None and (running := session.active()) is not None:
            running.note_grad_written(self)
        state.grad_looks += 1
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def retains_grad(self) -> bool:
        """True for a computed tensor whose gradient is kept."""
        return "_retains" in self.__dict__

    def is_inference(self) -> Any:
        """True if the tensor was made under `inference_mode`: outside it cannot be written to."""
        return self.storage.inference

    def detach(self) -> Any:
        """The same memory, without gradients."""
        try:
            result = over(self.storage, self.spec, self.part)
        except AttributeError as error:  # as `genesis.detach` it is given anything
            raise misplaced(error, self) from None
        result.detached = Detached()
        node = self.storage._node
        if node is not None and node.needs_grad:
            note_detached(result)
        return result

    def detach_(self) -> Any:
        """Stop gradients through this tensor from now on; returns the tensor.

        Raises:
            RuntimeError: it is a view.
        """
        session.rebound()
        try:
            is_view = self.is_view
        except AttributeError as error:
            raise misplaced(error, self) from None
        if is_view:
            raise failure("detach_", "Can't detach views in-place", [("tensor", self)], hint="use detach()")
        self.leaf, self.detached, self.is_view = None, Detached(), False
        return self

    @property
    def data(self) -> Any:
        """The same memory, without gradients."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, TensorBase):
            raise not_a_tensor(value)
        session.rebound()
        held = self.storage
        at_once(changes((), data_changes(self, value)))
        del held

    # Reading

    def item(self) -> Any:
        """The one element as a Python number, for which the tensor is computed."""
        if self.spec.numel != 1:
            raise failure("item", f"a tensor with {self.spec.numel} elements cannot be converted to a number",
                          [("tensor", self)], hint="use tolist(), or index one element")
        if state.session is not None and (later := session.stand_in(self, "item")) is not None:
            return later
        return host_number(self)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers, for which the tensor is computed."""
        if state.session is not None and (later := session.stand_in(self, "tolist")) is not None:
            return later
        return host_copy(self).tolist()

    def __bool__(self) -> Any:
        if self.spec.numel != 1:
            raise failure("bool", "the truth value of a tensor with more than one element is ambiguous",
                          [("tensor", self)], hint="use any() or all()")
        return bool(self.item())

    def __int__(self) -> Any:
        self._require_one()
        return int(self.item())

    def __float__(self) -> Any:
        if state.session is not None and self.spec.numel == 1 and (
                later := session.stand_in(self, "__float__")) is not None:
            return later
        self._require_one()
        return float(self.item())

    def _require_one(self) -> None:
        if self.spec.numel != 1:
            raise failure("number", "only one element tensors can be converted to Python scalars", [("tensor", self)],
                          hint="use tolist(), or index one element", error=ValueError)

    def __index__(self) -> Any:
        if self.spec.dtype.kind == "float" or self.spec.numel != 1:
            raise failure("index", "only integer tensors of a single element can be used as an index",
                          [("tensor", self)], error=TypeError)
        return int(self.item())

    def __len__(self) -> Any:
        if not self.spec.ndim:
            raise failure("len", "len() of a 0-d tensor", [("tensor", self)], error=TypeError)
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.spec.ndim:
            raise failure("iter", "iteration over a 0-d tensor", [("tensor", self)], error=TypeError)
        return iter(self.unbind(0))

    def __reversed__(self) -> Any:
        return self.flip(0) if self.spec.ndim else self

    def __delitem__(self, key: Any) -> None:
        raise failure("del", "a tensor does not support deleting items", [("tensor", self)], error=TypeError,
                      hint="index what is to stay")

    def __contains__(self, value: Any) -> Any:
        if not isinstance(value, (TensorBase, Number)):
            raise failure("in", f"it is asked for a tensor or a number, not {type(value).__name__}", [("tensor", self)])
        return bool((self == value).any().item())

    def __format__(self, spec: str) -> str:
        if self.spec.ndim == 0 and not self.is_meta and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __repr__(self) -> str:
        from genesis.frontend.printing import tensor_text
        return tensor_text(self)


def data_changes(tensor: Tensor, value: Tensor) -> list[Change]:
    """The changes that `tensor.data = value` makes. What the tensor shows has to be held meanwhile.

    Raises:
        RuntimeError: gradients flow through the tensor, and cannot through the value.
    """
    if (wanted := tensor.requires_grad) and not value.spec.dtype.is_floating_point:
        raise failure("data", "data set to a tensor that requires gradients must be floating point or complex dtype",
                      [("tensor", tensor), ("data", value)], hint="detach() it first")
    found = showing(tensor, value)
    if tensor.leaf is None:  # the value's history is not taken over
        detached = Detached()
        if wanted:
            detached.keep(_history_over(tensor, value))
        found.append((setattr, tensor, "detached", detached))
    return found


def _history_over(tensor: Tensor, value: Tensor) -> Node:
    """The history of a computed tensor, as that of the whole memory that the value shows."""
    if tensor.spec.shape != value.spec.shape or tensor.spec.device is not value.spec.device:
        raise failure("data", "the data of a tensor that was computed with gradients keep their shape and device",
                      [("tensor", tensor), ("data", value)], hint="detach() it first, or bind the name anew")
    with enable_grad():
        node = read(tensor)
    forget()  # no operand of the next result
    if value.spec.dtype is not tensor.spec.dtype:
        node = make(pointwise.cast, (node,), (value.spec.dtype,))
    if value.part is None:
        return node
    whole = value.storage.type
    return value.part.write(leaves.full(whole.shape, 0, whole.dtype, whole.device), node)


def gradients_of(tensors: Sequence[Tensor]) -> list[Any]:
    """`grad` of each."""
    if state.session is not None:  # which notes what is looked at
        return [tensor.grad for tensor in tensors]
    state.grad_looks += 1
    return [tensor._grad for tensor in tensors]


def clear_gradients(tensors: Iterable[Tensor], set_to_none: bool = True) -> None:
    """Forget the gradients of these tensors, or overwrite them with 0: all, or none where an exception comes."""
    listed = list(tensors)
    if not set_to_none:
        found = {x.storage: x for x in gradients_of(listed) if x is not None}
        with no_grad():
            zeros = [x.detach() for x in found.values()]
            assign_all(zeros, [leaves.full(x.spec.shape, 0, x.spec.dtype, x.spec.device) for x in zeros])
        return
    if state.session is not None and (running := session.active()) is not None:
        for x in listed:
            running.note_grad_written(x)
    held = [x._grad for x in listed]
    state.grad_looks += 1
    at_once(changes((), [attributes(listed, "_grad", repeat(None))]))
    state.grad_looks += 1
    del held
    engine.let_go()


def _follow(leaf: Tensor, was: Detached | None) -> None:
    """Views that were taken of a tensor before it wanted gradients require grad from now on, and pass none on.

    A detached tensor's are those that share its `Detached`.
    """
    storage = leaf.storage
    if storage.noted is None and storage.viewed == searches.number and (
            was is not None or getrefcount(storage) > HELD_AND_NAMED):
        note_all_views()
    if storage.noted is None:
        storage.noted = {}
    for reference in list(storage.noted.values()):
        view = reference()
        if view is not None and view.storage is storage and view.is_view and view.leaf is None and view.detached is was:
            view.leaf = -next(leaf_numbers)
            if view.part is not None:
                view.part = view.part.of_leaf()


class Size(tuple):
    """A shape, which prints as torch's does."""

    __slots__ = ()

    def numel(self) -> int:
        """Product of the sizes."""
        count = 1
        for size in self:
            count *= size
        return count

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if type(index) is slice else found

    def __add__(self, other: Any) -> Any:
        return Size((*self, *other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Any:
        return Size(tuple(self) * times)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"genesis.Size({list(self)})"


_methods = TensorMethods(Tensor)
install, install_later = _methods.install, _methods.install_later
set_tensor_class(Tensor)
__all__ = ["Size", "Tensor"]
