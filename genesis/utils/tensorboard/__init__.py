"""`genesis.utils.tensorboard`: a writer of what TensorBoard shows, over the `tensorboard` package.

In: numbers, images, texts, histograms, each with a step. Out: event files.
"""

from genesis.ir.suggest import suggesting
from genesis.utils.tensorboard.writer import SummaryWriter

__all__ = ["SummaryWriter"]

__getattr__ = suggesting(__name__)
