"""Models built from `genesis.nn`."""

from genesis.models.gpt import GPT, GPTConfig

__all__ = ["GPT", "GPTConfig"]
