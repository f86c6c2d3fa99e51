"""Torch's names for checkpoints of runs of many processes (`genesis.checkpointing` writes them)."""

from genesis.ir.suggest import suggesting

__getattr__ = suggesting(__name__)
