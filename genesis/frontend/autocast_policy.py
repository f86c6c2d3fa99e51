"""Which ops autocast runs in a low precision, which in float32, and whether it is on.

The table follows torch's for CUDA, and holds on every device. It imports nothing but the types,
so that whoever records an op can ask it: `a, b = cast_for("matmul", a, b)`.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from genesis.ir.types import DType, float32, float64

LOW: Final = frozenset({"matmul", "linear", "sdpa", "convolution"})
"""Ops whose time is in matrix products and whose sums are in float32 anyway: the low precision."""

WIDE: Final = frozenset({
    "softmax", "log_softmax", "cross_entropy", "layer_norm", "rms_norm", "group_norm",  # sums of many terms
    "sum", "prod", "cumsum", "cumprod", "norm",
    "exp", "expm1", "log", "log2", "log10", "log1p", "pow", "reciprocal", "rsqrt",  # a wide range of values
    "tan", "acos", "asin", "sinh", "cosh",
    "mse_loss", "l1_loss", "nll_loss", "binary_cross_entropy_with_logits", "smooth_l1_loss", "huber_loss", "kl_div",
    "poisson_nll_loss", "margin_ranking_loss", "hinge_embedding_loss", "cosine_embedding_loss", "triplet_margin_loss",
    "multi_margin_loss", "cosine_similarity", "softplus",
})
"""Ops that lose too much in a low precision: float32. All others run in the dtype that comes."""


class _State(threading.local):
    """`dtypes`: device type → the low precision there; None when autocast is off everywhere."""

    dtypes: dict[str, DType] | None = None


state = _State()
"""Autocast, in this thread."""


def cast_for(op: str, *operands: Any) -> tuple[Any, ...]:
    """The operands in the dtype in which autocast wants this op, as they are where it is off.

    Only floating-point tensors on autocast's device types change, and float64, which somebody
    asked for, does not. Numbers and None pass.

    >>> cast_for("linear", 2.0, None)
    (2.0, None)
    """
    dtypes = state.dtypes
    if dtypes is None or (op not in LOW and op not in WIDE):
        return operands
    return tuple([_cast(x, dtypes, op in LOW) for x in operands])


def low_precision(*operands: Any) -> tuple[Any, ...]:
    """The operands of a matrix product: `cast_for("matmul", ...)`."""
    return operands if state.dtypes is None else cast_for("matmul", *operands)


def _cast(x: Any, dtypes: dict[str, DType], low: bool) -> Any:
    kind = getattr(x, "type", None)
    if kind is None or kind.dtype.kind != "float" or kind.dtype is float64 or kind.device.type not in dtypes:
        return x
    wanted = dtypes[kind.device.type] if low else float32
    return x if kind.dtype is wanted else x.to(wanted)
