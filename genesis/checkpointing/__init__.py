"""Checkpoints of training runs: written whole or not at all, verified before they are used or others are deleted.

In come objects with `state_dict()`, out goes a directory for each checkpoint, which `resume` loads into such objects.
(`genesis.utils.checkpoint` is another thing, torch's: values that backward computes again.)
"""

from genesis.checkpointing.manager import CheckpointManager, Resumed
from genesis.checkpointing.one_file import load_checkpoint, save_checkpoint
from genesis.ir.suggest import suggesting

__all__ = ["CheckpointManager", "Resumed", "load_checkpoint", "save_checkpoint"]

__getattr__ = suggesting(__name__)
