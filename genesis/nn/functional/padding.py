"""Padding."""

from __future__ import annotations

from collections.abc import Sequence

from genesis.ir.errors import failure
from genesis.ir.ops import movement
from genesis.recording import record
from genesis.tensor import Tensor


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """The input with a border.

    Args:
        input: any shape and dtype.
        pad: (before, after) of the last dimension, then of the one before it, and so on. A
            negative number cuts elements off.
        mode: only "constant".
        value: what the border holds, 0 by default.

    Raises:
        ValueError: an odd number of sizes, more than the input has dimensions, another mode.

    >>> import genesis
    >>> pad(genesis.tensor([1, 2]), (1, 2)).tolist()
    [0, 1, 2, 0, 0]
    """
    rank = input.type.ndim
    if mode != "constant":
        raise failure("pad", f"mode {mode!r} is not supported", [("input", input)], hint="mode='constant'",
                      error=ValueError)
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise failure("pad", f"{tuple(pad)} does not give a (before, after) for each of up to {rank} dimensions",
                      [("input", input)], error=ValueError)
    low, high = [0] * rank, [0] * rank
    for position in range(len(pad) // 2):
        low[rank - 1 - position], high[rank - 1 - position] = pad[2 * position], pad[2 * position + 1]
    if min(pad, default=0) < 0:
        cut = tuple(slice(max(0, -a), size - max(0, -b))
                    for a, b, size in zip(low, high, input.type.shape, strict=True))
        input = input[cut]
        low, high = [max(0, n) for n in low], [max(0, n) for n in high]
    result: Tensor = record(movement.pad, (input,), (tuple(low), tuple(high), 0 if value is None else value))
    return result
