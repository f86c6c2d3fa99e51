"""`Parameter`: the tensor that a module registers and an optimizer updates."""

from __future__ import annotations

from genesis.frontend.recording import new_leaf
from genesis.frontend.state import state
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import not_an_operand
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

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        """A parameter over the storage of `data`."""
        if data is not None and not isinstance(data, Tensor):
            raise not_an_operand(data)
        source = (empty(0) if data is None else data).detach()
        self = object.__new__(cls)
        self.storage, self.type = source.storage, source.type
        self.part = None if source.part is None else source.part.of_leaf()
        self._grad = self.detached = None
        self.is_view = False
        self.leaf = new_leaf(self) if requires_grad else None
        state.parameters[id(self)] = self
        return self

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        """All is done in `__new__`."""

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
