"""The registry's rows, a family a file. Importing this package registers every op."""

from genesis.ir.ops import (
    clipping,
    composite,
    contraction,
    control,
    flash_attention,
    indexing,
    leaves,
    movement,
    optimizer,
    pointwise,
    random,
    reduction,
)
