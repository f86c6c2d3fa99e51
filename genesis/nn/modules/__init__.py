"""The modules, a family a file; each is listed once, in `__all__` of its file.

In: sizes and options, then tensors. Out: modules with parameters, then tensors.
"""

from genesis.ir.suggest import suggesting
from genesis.ir.torch_modules import fill
from genesis.nn.modules import utils as utils
from genesis.nn.modules.activation import *
from genesis.nn.modules.adaptive_softmax import *
from genesis.nn.modules.channel_norm import *
from genesis.nn.modules.container import *
from genesis.nn.modules.conv import *
from genesis.nn.modules.data_parallel import *
from genesis.nn.modules.distance import *
from genesis.nn.modules.dropout import *
from genesis.nn.modules.feed_forward import *
from genesis.nn.modules.images import *
from genesis.nn.modules.lazy import *
from genesis.nn.modules.linear import *
from genesis.nn.modules.loss import *
from genesis.nn.modules.margin_loss import *
from genesis.nn.modules.module import Module as Module
from genesis.nn.modules.multihead import *
from genesis.nn.modules.normalization import *
from genesis.nn.modules.padding import *
from genesis.nn.modules.parameters import *
from genesis.nn.modules.pooling import *
from genesis.nn.modules.recurrent import *
from genesis.nn.modules.regression_loss import *
from genesis.nn.modules.rnn import *
from genesis.nn.modules.rotary import *
from genesis.nn.modules.sparse import *
from genesis.nn.modules.sync_batch_norm import *
from genesis.nn.modules.transformer import *

fill(__name__, "nn", ("activation", "container", "conv", "lazy", "linear", "loss", "module", "normalization", "pooling",
                      "rnn", "sparse", "dropout", "padding", "distance", "transformer"))

__all__ = [name for name, value in list(globals().items()) if isinstance(value, type)]

__getattr__ = suggesting(__name__)
