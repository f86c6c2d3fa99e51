"""Reductions and scans of interpreted kernels, a slice at a time.

Triton's interpreter knows a few functions that numpy has; any other one it calls for every single element. Here numpy
has the functions of the prelude, too, and what is left is called once for each place along the axis, with all the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from triton import language
    from triton.runtime.interpreter import ReduceOps, ScanOps

_REDUCES_AS: dict[str, Callable[..., np.ndarray]] = {
    "g_max": np.max, "g_min": np.min, "g_product": np.prod, "_xor_combine": np.bitwise_xor.reduce}


def reducing(apply: Callable[..., object]) -> Callable[..., object]:
    """The interpreter's reductions, by numpy where it has the function."""
    def call(reduction: ReduceOps, operands: Sequence[language.tensor]) -> object:
        function = _REDUCES_AS.get(getattr(reduction.combine_fn, "__name__", ""))
        if function is None:
            return apply(reduction, operands)
        return reduction.min_max(operands[0], val_reduce_op=function)
    return call


def scan(scans: ScanOps, operands: Sequence[language.tensor]) -> list[language.tensor]:
    """The states after each place along the axis, from the first to the last."""
    axis = scans.axis
    rows = [np.moveaxis(x.handle.data, axis, 0) for x in operands]
    found = [np.empty_like(data) for data in rows]
    for state, data in zip(found, rows, strict=True):
        state[:1] = data[:1]
    for i in range(1, len(rows[0])):
        before, now = ([scans.to_tensor(data[at], x.dtype) for data, x in zip(arrays, operands, strict=True)]
                       for arrays, at in ((found, i - 1), (rows, i)))
        after = scans.combine_fn.fn(*before, *now)
        for state, value in zip(found, after if isinstance(after, tuple) else (after,), strict=True):
            state[i] = np.reshape(value.handle.data, state.shape[1:])
    return [scans.to_tensor(np.moveaxis(state, 0, axis), x.dtype) for state, x in zip(found, operands, strict=True)]
