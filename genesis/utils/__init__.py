"""Tools around training: saving and loading, checkpointing of activations, data, profiles of functions."""

from importlib import import_module
from typing import Any

from genesis.utils.serialization import load, save

__all__ = ["load", "save"]

LATER = ("checkpoint", "data", "profile")
"""Modules that are imported when they are first asked for: programs without them need not wait."""


def __getattr__(name: str) -> Any:
    if name in LATER:
        return import_module(f"genesis.utils.{name}")
    raise AttributeError(f"module 'genesis.utils' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})
