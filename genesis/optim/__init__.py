"""Optimizers and learning rate schedules.

In: parameters with gradients. Out: one recorded op for all parameters of a dtype, and the end of a step, which runs it.
"""

from genesis.ir.suggest import suggesting
from genesis.ir.torch_modules import fill
from genesis.optim import lr_scheduler, swa_utils
from genesis.optim.adafactor import Adafactor
from genesis.optim.adam import Adam, AdamW
from genesis.optim.adaptive import Adadelta, Adagrad, Adamax, NAdam, RAdam, RMSprop, Rprop
from genesis.optim.averaged_sgd import ASGD
from genesis.optim.lbfgs import LBFGS
from genesis.optim.muon import Muon
from genesis.optim.optimizer import Optimizer
from genesis.optim.sgd import SGD
from genesis.optim.sparse_adam import SparseAdam

__all__ = ["ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam",
           "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils"]

fill(__name__, "optim", ("adam", "lbfgs", "sgd", "sparse_adam"))

__getattr__ = suggesting(__name__)
