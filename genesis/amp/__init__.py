"""Mixed precision: low precision where it is fast, float32 where it matters."""

from genesis.amp.autocast import autocast, is_autocast_enabled

__all__ = ["autocast", "is_autocast_enabled"]
