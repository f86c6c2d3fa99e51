"""`Variable`, which torch had before tensors had gradients: calling it gives a tensor, and every tensor is one."""

from __future__ import annotations

from typing import Any

from genesis.frontend.tensor import Tensor


class _Meta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_Meta):
    """The tensor with `requires_grad` as given.

    >>> import genesis
    >>> x = Variable(genesis.ones(2), requires_grad=True)
    >>> x.requires_grad, isinstance(x, Variable)
    (True, True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        """A detached view of the data; `volatile` is accepted, as torch does."""
        if data is None:
            from genesis.ops.creation import empty
            data = empty(0)
        return data.detach().requires_grad_(requires_grad) if requires_grad or data.requires_grad else data.detach()
