"""Tools around training: saving and loading, checkpointing of activations."""

from genesis.utils.serialization import load, save

__all__ = ["load", "save"]
