"""Tools around training: saving and loading, checkpointing of activations, data, profiles of functions."""

from genesis.ir.suggest import suggesting
from genesis.utils.serialization import load, save

__all__ = ["load", "save"]

LATER = ("checkpoint", "data", "model_zoo", "profile", "tensorboard")
"""Modules that are imported when they are first asked for: programs without them need not wait."""

__getattr__ = suggesting(__name__, LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})
