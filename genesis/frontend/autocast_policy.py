"""Autocast: whether it is on, and how it casts operands.

Which ops it runs in a low precision and which in float32 is a field of their entries (`Op.autocast`), by torch's
table for CUDA, and holds on every device. This imports nothing but the types, so that whoever records an op can ask it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend.switching import SPARE
from genesis.ir.types import DType, float32, float64

if TYPE_CHECKING:
    from genesis.ir.node import Op


class _State(threading.local):
    """This thread's autocast.

    Attributes:
        policy: the place in `policies` of what holds, and spare bytes (`switching.py`).
    """

    def __init__(self) -> None:
        self.policy = bytearray(1 + SPARE)

    @property
    def dtypes(self) -> dict[str, DType] | None:
        """Device type → the low precision there; None when autocast is off everywhere."""
        return policies[self.policy[0]]


policies: Final[list[dict[str, DType] | None]] = [None]
"""What autocast may do: first nothing, then what a context has asked for. A handful: dtypes of types of devices."""


state = _State()
"""Autocast, in this thread."""


def cast_for(op: Op, *operands: Any) -> tuple[Any, ...]:
    """The operands in the dtype in which autocast wants this op, as they are where it is off.

    Only floating-point tensors on autocast's device types change, and float64, which somebody
    asked for, does not. Numbers and None pass.

    >>> from genesis.ir import OPS
    >>> cast_for(OPS["linear"], 2.0, None)
    (2.0, None)
    """
    policy = op.autocast
    if policy is None or not state.policy[0] or (dtypes := state.dtypes) is None:
        return operands
    return tuple([_cast(x, dtypes, policy == "low") for x in operands])


def low_precision(*operands: Any) -> tuple[Any, ...]:
    """The operands of a matrix product: its time is in the product, and its sums are in float32 anyway."""
    dtypes = state.dtypes
    return operands if dtypes is None else tuple([_cast(x, dtypes, True) for x in operands])


def in_float32(*operands: Any) -> tuple[Any, ...]:
    """The operands of a function that loses too much in a low precision, and is made of ops that would not ask."""
    dtypes = state.dtypes
    return operands if dtypes is None else tuple([_cast(x, dtypes, False) for x in operands])


def _cast(x: Any, dtypes: dict[str, DType], low: bool) -> Any:
    kind = getattr(x, "spec", None)
    if kind is None or kind.dtype.kind != "float" or kind.dtype is float64 or kind.device.type not in dtypes:
        return x
    wanted = dtypes[kind.device.type] if low else float32
    return x if kind.dtype is wanted else x.to(wanted)
