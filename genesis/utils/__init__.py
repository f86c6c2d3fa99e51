"""What is useful around training: saving and loading."""

from genesis.utils.serialization import load, save

__all__ = ["load", "save"]
