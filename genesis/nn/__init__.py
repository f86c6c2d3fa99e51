"""Neural networks: modules, their functional forms, initialization and utilities.

In: tensors, and parameters that modules hold. Out: tensors; written with `genesis.ops` as a user would.
"""

from genesis.ir.suggest import suggesting
from genesis.nn import functional, init, modules, utils
from genesis.nn.modules import *
from genesis.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "functional", "init", "modules",
           "utils"]
__all__ += modules.__all__

BatchNorm = modules.BatchNorm1d
"""The name without dimensions: features are in the second dimension of two or three."""

__getattr__ = suggesting(__name__, ("attention", "parallel"))  # which few programs need
