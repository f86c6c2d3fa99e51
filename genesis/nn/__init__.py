"""Neural networks: modules, their functional forms, initialization and utilities."""

from genesis.ir.suggest import suggesting
from genesis.nn import functional, init, modules, utils
from genesis.nn.modules import *  # noqa: F403  (what a layer's file defines is listed once, in modules/__init__)
from genesis.nn.parameter import Parameter

__all__ = ["Parameter", "functional", "init", "modules", "utils"]
__all__ += modules.__all__

__getattr__ = suggesting(__name__)
