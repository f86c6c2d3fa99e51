"""Neural networks: modules, their functional forms, initialization and utilities."""

from genesis.ir.suggest import suggesting
from genesis.nn import functional, init, modules, utils
from genesis.nn.modules import *
from genesis.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter", "functional", "init", "modules", "utils"]
__all__ += modules.__all__

__getattr__ = suggesting(__name__, ("parallel",))  # which few programs need
