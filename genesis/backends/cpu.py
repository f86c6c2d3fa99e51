"""The processor."""

import platform

from genesis.ir.suggest import suggesting


def get_cpu_capability() -> str:
    """The instruction set that the CPU's kernels use, as torch, whose kernels they are, names it."""
    import torch
    return torch.backends.cpu.get_cpu_capability()


def get_cpu_name() -> str:
    """The processor's name, as far as Python knows it."""
    return platform.processor() or platform.machine()

__getattr__ = suggesting(__name__)
