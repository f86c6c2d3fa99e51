"""`Parameter`: the tensor that a module registers and an optimizer updates."""

from __future__ import annotations

from typing import Any

from genesis.ops.creation import empty, tensor
from genesis.recording import new_leaf
from genesis.tensor import Tensor


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
        source = (empty(0) if data is None else data).detach()
        self = object.__new__(cls)
        self.storage, self.type, self.part = source.storage, source.type, source.part
        self.detached, self.is_view = False, False
        self._grad = None
        self.leaf = new_leaf(self) if requires_grad else None
        return self

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        """All is done in `__new__`."""

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        copied = memo.get(id(self))
        if copied is None:
            copied = memo[id(self)] = Parameter(self.detach().clone(), self.requires_grad)
        return copied

    def __reduce__(self) -> Any:
        _, (array, device, requires_grad) = super().__reduce__()
        return _from_pickle, (array, device, requires_grad)


def _from_pickle(array: Any, device: str, requires_grad: bool) -> Parameter:
    return Parameter(tensor(array, device=device), requires_grad)
