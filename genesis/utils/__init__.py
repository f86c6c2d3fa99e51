"""Tools around training: saving and loading, checkpointing of activations, loaders of data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genesis.frontend.later import later_names
from genesis.utils.serialization import load, save

if TYPE_CHECKING:
    from genesis.utils import checkpoint as checkpoint
    from genesis.utils import data as data

__all__ = ["load", "save"]

if not TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """A module in here that is imported when somebody first asks for it."""
        if name not in later_names(__name__):
            from genesis.ir.suggest import MissingName
            raise MissingName(f"module 'genesis.utils' has no attribute {name!r}", name,
                              lambda: [*__all__, *later_names("genesis.utils")])
        return import_module(f"genesis.utils.{name}")
