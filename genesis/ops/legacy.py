"""Names that torch keeps for older programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.default_dtypes import default_dtype
from genesis.ir.errors import failure
from genesis.ir.types import DType, float64
from genesis.ops.creation import DeviceLike, finish
from genesis.ops.out import into
from genesis.ops.ranges import arange

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["range", "typename"]


def range(start: float = 0, end: float | None = None, step: float = 1, *, dtype: DType | None = None,
          device: DeviceLike = None, requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """start, start + step, … up to end, which is among them; torch asks to use `arange`, whose end is not.

    >>> import genesis
    >>> genesis.range(1, 3)
    tensor([1., 2., 3.])
    """
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) * step < 0:
        reason = "step must be nonzero" if step == 0 else "upper bound and lower bound inconsistent with step sign"
        raise failure("range", reason, [("start", start), ("end", end), ("step", step)])
    kind = dtype or default_dtype("float")
    count = int((end - start) / step) + 1
    made = start + step * arange(count, dtype=float64, device=device)
    return into(out, finish(made.to(kind), requires_grad))


def typename(obj: Any) -> str:
    """The name of a class, or of an object's, with its module; of a tensor's, the older class by its dtype.

    >>> import genesis
    >>> genesis.typename(genesis.ones(2)), genesis.typename([1])
    ('genesis.FloatTensor', 'list')
    """
    if hasattr(obj, "spec") and hasattr(obj, "type") and not isinstance(obj, type):
        found: str = obj.type()
        return found
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
