"""Functions of neural networks, with torch's names and arguments.

In: tensors, weights among them, and options. Out: tensors whose nodes are recorded.
"""

import sys

from genesis.frontend.patches import WatchedModule
from genesis.frontend.public_functions import published as _published
from genesis.nn.functional.attention import *
from genesis.nn.functional.bags import *
from genesis.nn.functional.channel_norms import *
from genesis.nn.functional.classification import *
from genesis.nn.functional.convolution import *
from genesis.nn.functional.ctc import *
from genesis.nn.functional.dense import *
from genesis.nn.functional.distances import *
from genesis.nn.functional.grids import *
from genesis.nn.functional.images import *
from genesis.nn.functional.lookup import *
from genesis.nn.functional.losses import *
from genesis.nn.functional.margins import *
from genesis.nn.functional.multihead import *
from genesis.nn.functional.noise import *
from genesis.nn.functional.norms import *
from genesis.nn.functional.padding import *
from genesis.nn.functional.pooling import *
from genesis.nn.functional.softmax import *

# isort: off
from genesis.ops.activation import (
    celu as celu,
    celu_ as celu_,
    elu as elu,
    elu_ as elu_,
    gelu as gelu,
    glu as glu,
    hardshrink as hardshrink,
    hardsigmoid as hardsigmoid,
    hardswish as hardswish,
    hardtanh as hardtanh,
    hardtanh_ as hardtanh_,
    leaky_relu as leaky_relu,
    leaky_relu_ as leaky_relu_,
    logsigmoid as logsigmoid,
    mish as mish,
    prelu as prelu,
    relu as relu,
    relu6 as relu6,
    relu_ as relu_,
    rrelu as rrelu,
    rrelu_ as rrelu_,
    selu as selu,
    selu_ as selu_,
    silu as silu,
    softplus as softplus,
    softshrink as softshrink,
    softsign as softsign,
    tanhshrink as tanhshrink,
    threshold as threshold,
    threshold_ as threshold_,
)
from genesis.ops.special import sigmoid as sigmoid
from genesis.ops.trigonometry import tanh as tanh
# isort: on

sys.modules[__name__].__class__ = WatchedModule  # layers look functions up here: a compiled call knows of replaced ones
del sys, WatchedModule

__all__ = [name for name, value in list(globals().items()) if callable(value) and not name.startswith("_")]
__getattr__, __dir__ = _published(globals(), __name__)
