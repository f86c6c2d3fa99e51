"""Torch's names for checkpoints of runs of many processes (`genesis.checkpointing` writes them)."""
