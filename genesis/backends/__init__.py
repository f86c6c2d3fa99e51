"""`genesis.backends`: the switches of torch's libraries, which programs set before they train.

In: switches. Out: what they were set to.

What is set is remembered. There is one way to compute each program, so that no switch changes a result; deterministic
programs are `genesis.use_deterministic_algorithms`.

>>> import genesis
>>> genesis.backends.cudnn.benchmark = True
>>> genesis.backends.mps.is_available()
False
"""

from genesis.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp
from genesis.ir.suggest import suggesting

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]

__getattr__ = suggesting(__name__)
