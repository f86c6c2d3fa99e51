"""Learning rate schedules, with torch's names and arguments.

In: an optimizer and the number of a step. Out: the learning rates of its groups.
"""

from genesis.ir.suggest import suggesting
from genesis.optim.lr_scheduler.base import LRScheduler
from genesis.optim.lr_scheduler.combined import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from genesis.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from genesis.optim.lr_scheduler.formulas import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

__all__ = ["ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR",
           "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR",
           "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR"]

_LRScheduler = LRScheduler
"""`LRScheduler` by its older name, which schedules of users derive from."""

__getattr__ = suggesting(__name__)
