"""The modules, a family a file."""

from genesis.nn.modules.activation import GELU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from genesis.nn.modules.container import ModuleDict, ModuleList, Sequential
from genesis.nn.modules.dropout import Dropout
from genesis.nn.modules.linear import Flatten, Identity, Linear
from genesis.nn.modules.loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from genesis.nn.modules.module import Module
from genesis.nn.modules.normalization import LayerNorm, RMSNorm
from genesis.nn.modules.sparse import Embedding

__all__ = ["GELU", "BCEWithLogitsLoss", "CrossEntropyLoss", "Dropout", "Embedding", "Flatten", "Identity", "L1Loss",
           "LayerNorm", "Linear", "MSELoss", "Module", "ModuleDict", "ModuleList", "NLLLoss", "RMSNorm", "ReLU",
           "Sequential", "SiLU", "Sigmoid", "Softmax", "Tanh"]
