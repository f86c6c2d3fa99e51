"""Torch's names for checkpoints of runs of many processes (`genesis.checkpointing` writes them).

In: state dicts and a folder. Out: files in it, or tensors that are filled from them.
"""

from genesis.ir.suggest import suggesting

__getattr__ = suggesting(__name__)
