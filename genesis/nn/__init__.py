"""Neural networks: modules, their functional forms, initialization and utilities."""

from genesis.nn import functional, init, modules, utils
from genesis.nn.modules import (
    GELU,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    L1Loss,
    LayerNorm,
    Linear,
    Module,
    ModuleDict,
    ModuleList,
    MSELoss,
    NLLLoss,
    ReLU,
    RMSNorm,
    Sequential,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from genesis.nn.parameter import Parameter

__all__ = ["GELU", "BCEWithLogitsLoss", "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "Identity", "L1Loss",
           "LayerNorm", "Linear", "MSELoss", "Module", "ModuleDict", "ModuleList", "NLLLoss", "Parameter", "RMSNorm",
           "ReLU", "Sequential", "SiLU", "Sigmoid", "Softmax", "Tanh", "functional", "init", "modules", "utils"]
