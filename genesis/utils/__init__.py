"""Tools around training: saving and loading, checkpointing of activations, data, profiles of functions.

In: tensors, models, datasets, functions. Out: files, batches, values that backward computes again, tables of
times.
"""

from genesis.ir.suggest import suggesting
from genesis.utils.serialization import load, save

__all__ = ["load", "save"]

LATER = ("checkpoint", "data", "model_zoo", "profile", "tensorboard")
"""Modules that are imported when they are first asked for: programs without them need not wait."""

__getattr__ = suggesting(__name__, LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})
