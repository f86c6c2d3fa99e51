"""`Parameter`: the tensor that a module registers and an optimizer updates; `Buffer`, which is not updated."""

from __future__ import annotations

from typing import Any

from genesis.frontend.draw_parts import sharded
from genesis.frontend.recording import new_leaf
from genesis.frontend.state import state
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure, not_an_operand
from genesis.ir.suggest import suggesting
from genesis.ir.types import DType
from genesis.ops.creation import empty


class Parameter(Tensor):
    """A leaf tensor over the memory of `data`; assigning it to a module's attribute registers it.

    Args:
        data: the initial value, shared and not copied. None makes an empty parameter.
        requires_grad: False for a parameter that is saved and moved but not trained.

    >>> import genesis
    >>> weight = Parameter(genesis.ones(2, 3))
    >>> weight.requires_grad, weight.is_leaf
    (True, True)
    """

    __slots__ = ()

    _gradient_is_copied = False

    sharding: Any = None
    """Which part of which tensor it is (`genesis.distributed.tensor.Layout`); None: it is a tensor of its own."""

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        """A parameter over the storage of `data`."""
        if data is not None and not isinstance(data, Tensor):
            raise not_an_operand(data)
        if requires_grad and data is not None and not data.spec.dtype.is_floating_point:
            raise failure("Parameter", "only Tensors of floating point dtype can require gradients", [("data", data)],
                          hint="Parameter(data, requires_grad=False)")
        source = (empty(0) if data is None else data).detach()
        self = object.__new__(cls)
        self.storage, self.spec = source.storage, source.spec
        self.part = None if source.part is None else source.part.of_leaf()
        self._grad = self.detached = None
        self.is_view = False
        self.leaf = new_leaf(self) if requires_grad else None
        state.parameters[id(self)] = self
        return self

    def __init__(self, *args: Any, **options: Any):
        """All is done in `__new__`, which has refused what it does not know: that of a subclass may take more."""

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class ShardedParameter(Parameter):
    """A parameter that is a rank's part of a tensor: optimizers see it as any other.

    Args:
        data: the part, shared and not copied.
        layout: where it is (`genesis.distributed.tensor.Layout`).
        requires_grad: as of `Parameter`.
    """

    def __new__(cls, data: Tensor, layout: Any, requires_grad: bool = True) -> ShardedParameter:
        """A parameter over the storage of `data`."""
        self: ShardedParameter = super().__new__(cls, data, requires_grad)  # type: ignore[assignment]
        self.sharding = layout
        sharded[id(self)] = self
        return self

    def __init__(self, data: Tensor, layout: Any, requires_grad: bool = True):
        """All is done in `__new__`."""

    def __deepcopy__(self, memo: dict[int, Any]) -> ShardedParameter:
        """A copy that is the same part, of another tensor of that shape."""
        copied: ShardedParameter = super().__deepcopy__(memo)
        sharded[id(copied)] = copied
        return copied

    @property
    def device_mesh(self) -> Any:
        """The ranks that have the parts."""
        return self.sharding.mesh

    @property
    def placements(self) -> tuple[Any, ...]:
        """How it lies along each dimension of the mesh."""
        return tuple(self.sharding.placements)

    def to_local(self) -> Tensor:
        """This rank's part, which it is."""
        return self.detach()

    def full_tensor(self) -> Tensor:
        """The whole tensor, of shape `sharding.shape`: a collective, which all ranks of the mesh call. No gradient
        flows through it."""
        return self.sharding.gathered(self)


class Buffer(Tensor):
    """A tensor that a module registers as a buffer where it is assigned to an attribute; over the memory of `data`.

    Args:
        data: the value, shared and not copied. None makes an empty buffer.
        persistent: False leaves it out of the state dict.

    >>> import genesis
    >>> from genesis import nn
    >>> module = nn.Module()
    >>> module.mean = nn.Buffer(genesis.zeros(2))
    >>> list(module.state_dict())
    ['mean']
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        """A buffer over the storage of `data`."""
        if data is not None and not isinstance(data, Tensor):
            raise not_an_operand(data)
        source = (empty(0) if data is None else data).detach()
        self = object.__new__(cls)
        self.storage, self.spec, self.part = source.storage, source.spec, source.part
        self._grad = self.detached = self.leaf = None
        self.is_view = False
        self.persistent = persistent
        return self

    def __init__(self, *args: Any, **options: Any):
        """All is done in `__new__`, which has refused what it does not know: that of a subclass may take more."""


class _Uninitialized:
    """What has no shape yet: its first assignment of `data` gives it one."""

    @property
    def shape(self) -> Any:
        """Not known."""
        raise RuntimeError("Can't access the shape of an uninitialized parameter or buffer. Call `forward` to "
                           "initialize the parameters before accessing their attributes.")



class UninitializedParameter(_Uninitialized, Parameter):
    """The parameter of a lazy layer before its first input."""

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: DType | None = None) -> Any:
        """An empty parameter."""
        return super().__new__(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: DType | None = None):
        """All is done in `__new__`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "data":
            object.__setattr__(self, "__class__", Parameter)
        Parameter.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return "<UninitializedParameter>"


class UninitializedBuffer(_Uninitialized, Buffer):
    """The buffer of a lazy layer before its first input."""

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: DType | None = None,
                persistent: bool = True) -> Any:
        """An empty buffer."""
        return super().__new__(cls, empty(0, device=device, dtype=dtype), persistent=persistent)

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: DType | None = None,
                 persistent: bool = True):
        """All is done in `__new__`."""

    def __repr__(self) -> str:
        return "<UninitializedBuffer>"

def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, _Uninitialized)


__getattr__ = suggesting(__name__)
