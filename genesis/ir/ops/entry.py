"""The entry of a pointwise op: what every one of them states beside its type, derivative and samples.

A row that leaves one of these out cannot be written: an op without a weight would silently count as an addition.
`tests/ops/test_entries.py` holds them against what tensors and devices do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.ir.node import Autocast, Op, Types


def pointwise(name: str, infer: Callable[..., Types], *, weight: int, number: Callable[..., Any] | None,
                    rounds: bool, autocast: Autocast | None, in_place: bool, **more: Any) -> Op:
    """Register a pointwise op.

    Args:
        weight: what an element costs in a kernel next to an addition; of an op with a decomposition, the sum of that.
        number: (*Python numbers, **attributes) → the number that the op gives. Where it raises, the result is the
            `reference`'s by IEEE arithmetic. None: the op is computed on tensors only.
        rounds: the result is no more exact than its operands need be: where a kernel only ever shows it rounded to
            16 bits, the operands may be in their low-precision forms too.
        autocast: the precision that autocast runs it in; None: that of its operands.
        in_place: tensors have it as a method with an underscore.
        more: what `Op` takes.
    """
    return Op(name, "pointwise", infer, weight=weight, number=number, rounds=rounds, autocast=autocast,
              in_place=in_place, **more)
