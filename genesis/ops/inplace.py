"""Writing results into a tensor: what the methods with an underscore do.

An in-place op computes as the op does and writes the result through the tensor into its storage, so
every view of that memory sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import emit
from genesis.frontend.writes import assign, content_of, update
from genesis.ir.errors import failure
from genesis.ir.types import CATEGORIES
from genesis.ops.common import cast, operands

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor



def write(tensor: Tensor, op: Any, *others: Any, floating: bool = False) -> Tensor:
    """Compute op(tensor, others) and write it to the tensor, in its dtype."""
    name = op.name + "_"
    while True:  # again, if another thread wrote to the tensor meanwhile
        since = content_of(tensor.storage)
        result = emit(op, operands(name, (tensor, *others), floating))
        if result.type is not tensor.spec:
            result = as_content(name, tensor, result)
        if assign(tensor, result, since=since):
            return tensor


def as_content(name: str, tensor: Tensor, result: Any) -> Any:
    """A computed node in the tensor's dtype, if torch would let it be written there: same shape, no higher category."""
    if result.type is not tensor.spec:
        if result.type.shape != tensor.spec.shape:
            raise failure(name, f"output with shape {list(tensor.spec.shape)} doesn't match the broadcast shape "
                                f"{list(result.type.shape)}", [("tensor", tensor)])
        if CATEGORIES[result.type.dtype.kind] > CATEGORIES[tensor.spec.dtype.kind]:
            raise failure(name, f"result type {result.type.dtype!r} can't be cast to the desired output type "
                                f"{tensor.spec.dtype!r}", [("tensor", tensor)], hint="use the out-of-place op")
        result = cast(result, tensor.spec.dtype)
    return result


def write_back(name: str, tensor: Tensor, compute: Callable[[], Any]) -> Tensor:
    """Write the node that is computed, of the tensor among others, to the tensor."""
    update(tensor, lambda: as_content(name, tensor, compute()))
    return tensor
