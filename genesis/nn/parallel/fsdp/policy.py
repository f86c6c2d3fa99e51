"""The dtypes in which a sharded module computes and reduces."""

from __future__ import annotations

from dataclasses import dataclass

from genesis.ir.types import DType


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of a module whose parameters are sharded; None leaves one as it is.

    Args:
        param_dtype: of the gathered parameters, in which forward and backward compute. Parts keep their own.
        reduce_dtype: in which gradients are reduced; that of the gradients, if it is None.
        output_dtype: floating-point results of forward are cast to it.
        cast_forward_inputs: floating-point arguments of forward are cast to `param_dtype`.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True
