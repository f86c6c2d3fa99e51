"""Copying and pickling tensors: tensors over one memory stay so, in `copy.deepcopy` and in one pickle."""

from __future__ import annotations

import copyreg
from typing import Any

from genesis.frontend.detached import Detached
from genesis.frontend.engine_protocol import engine
from genesis.frontend.host_values import host_copy
from genesis.frontend.recording import TensorBase, over
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.views import View
from genesis.ir.errors import failure
from genesis.ir.types import TensorType


def _rebuilt(cls: type, storage: Storage, type: TensorType, part: View | None, requires_grad: bool,
             names: dict[str, Any]) -> Any:
    """A tensor of the class over a storage. `names`: attributes that the user set."""
    tensor: Any = over(storage, type, part)
    tensor.__class__ = cls
    if requires_grad:
        tensor.requires_grad_()
    for name, value in names.items():
        setattr(tensor, name, value)
    return tensor


def _attributes(tensor: Any) -> dict[str, Any]:
    """The attributes that the user set on the tensor."""
    found = dict(getattr(tensor, "__dict__", ()))
    if hasattr(tensor, "name"):
        found["name"] = tensor.name
    return found


def reduce_storage(storage: Storage) -> tuple[Any, ...]:
    """The content, on the host. A storage is found once in a pickle, however many tensors are over it."""
    return _storage_of, (storage.type, _content(storage))


def _content(storage: Storage) -> Any:
    return host_copy(over(storage, storage.type, None)).reshape(-1).view("uint8")


def _storage_of(type: TensorType, content: Any) -> Storage:
    memory = engine.allocate(type.nbytes, type.device)
    if type.nbytes:
        memory.copy_from_host(content)
    return Storage(type, None, Cell(memory))


copyreg.pickle(Storage, reduce_storage)


class CopyingMethods(TensorBase):
    """The methods of a tensor that `copy` and `pickle` call."""

    __slots__ = ()

    _gradient_is_copied = True
    """Whether a deep copy has a copy of the gradient: of tensors, but not of parameters, as in torch, so that a copied
    model adds its gradients to none."""

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        """The storage is part of the pickle once; strides and requires_grad are kept, gradients and history not."""
        return _rebuilt, (type(self), self.storage, self.spec, self.part, self.requires_grad, _attributes(self))

    def __copy__(self: Any) -> Any:
        """A new tensor over the same memory."""
        rebuild, arguments = self.__reduce_ex__(4)
        return rebuild(*arguments)

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        """A copy with memory of its own, and of the gradient unless it is a parameter. Copies share memory where the
        originals do.

        Raises:
            RuntimeError: the tensor was computed with gradients; a copy would be cut off from them.
        """
        if not self.is_leaf:
            raise failure("deepcopy", "only tensors created explicitly by the user support the deepcopy protocol",
                          [("tensor", self)], hint="use detach().clone()")
        copied = memo.get(id(self))
        if copied is not None:
            return copied
        from copy import deepcopy
        storage = memo.get(id(self.storage))
        if storage is None:
            whole = over(self.storage, self.storage.type, None)
            whole.detached = Detached()
            storage = memo[id(self.storage)] = whole.clone().storage
        names = deepcopy(_attributes(self), memo)
        copied = memo[id(self)] = _rebuilt(type(self), storage, self.spec, self.part, self.requires_grad, names)
        if self._grad is not None and self._gradient_is_copied:
            copied._grad = deepcopy(self._grad, memo)
        return copied
