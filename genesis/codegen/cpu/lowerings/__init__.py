"""How the CPU runs each op: one torch call, a row an op.

In: a node. Out: the torch call that computes it, or None.

An op that the table does not hold, or refuses for these operands, is decomposed by the legalize
pass. `lowering_for` is the question that pass asks.
"""

from __future__ import annotations

from typing import Any, Final

from genesis.codegen.cpu.lowerings.activation import ACTIVATION
from genesis.codegen.cpu.lowerings.channel_norm import CHANNEL_NORM
from genesis.codegen.cpu.lowerings.clipping import CLIPPING
from genesis.codegen.cpu.lowerings.collectives import COLLECTIVES
from genesis.codegen.cpu.lowerings.composite import COMPOSITE
from genesis.codegen.cpu.lowerings.contraction import CONTRACTION
from genesis.codegen.cpu.lowerings.convolution import CONVOLUTION
from genesis.codegen.cpu.lowerings.decompositions import DECOMPOSITIONS
from genesis.codegen.cpu.lowerings.dtypes import torch_dtype
from genesis.codegen.cpu.lowerings.indexing import INDEXING
from genesis.codegen.cpu.lowerings.movement import MOVEMENT, shares_memory
from genesis.codegen.cpu.lowerings.optimizer import OPTIMIZER
from genesis.codegen.cpu.lowerings.pointwise import POINTWISE
from genesis.codegen.cpu.lowerings.pooling import POOLING
from genesis.codegen.cpu.lowerings.random import RANDOM
from genesis.codegen.cpu.lowerings.recurrent import RECURRENT
from genesis.codegen.cpu.lowerings.reduction import REDUCTION
from genesis.codegen.cpu.lowerings.resample import RESAMPLE
from genesis.codegen.cpu.lowerings.scan import SCAN
from genesis.codegen.cpu.lowerings.sorting import SORTING
from genesis.codegen.cpu.lowerings.table import Lowering
from genesis.codegen.cpu.lowerings.update_rules import UPDATE_RULES
from genesis.ir.numbers import fold_numbers

LOWERINGS: Final[dict[str, Lowering]] = {
    **MOVEMENT,
    **POINTWISE,
    **REDUCTION,
    **INDEXING,
    **RECURRENT,
    **SCAN,
    **SORTING,
    **CONTRACTION,
    **CONVOLUTION,
    **DECOMPOSITIONS,
    **RESAMPLE,
    **ACTIVATION,
    **CHANNEL_NORM,
    **POOLING,
    **RANDOM,
    **COMPOSITE,
    **CLIPPING,
    **COLLECTIVES,
    **OPTIMIZER,
    **UPDATE_RULES,
}


def lowering_for(op: str, types: tuple[Any, ...], attributes: dict[str, Any]) -> Lowering | None:
    """The lowering for an op with operands of these types, or None when it must be decomposed.

    >>> from genesis.ir.types import parse_type
    >>> lowering_for("tanh", (parse_type("f32[4]"),), {}).kind
    'out'
    >>> lowering_for("flash_attention", (), {}) is None
    True
    """
    found = LOWERINGS.get(op)
    if found is None or (found.supports is not None and not found.supports(types, attributes)):
        return None
    return found


__all__ = ["LOWERINGS", "Lowering", "fold_numbers", "lowering_for", "shares_memory", "torch_dtype"]
