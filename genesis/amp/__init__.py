"""Mixed precision: low precision where it is fast, float32 where it matters."""

from typing import TYPE_CHECKING, Any

from genesis.amp.autocast import autocast, is_autocast_enabled

if TYPE_CHECKING:
    from genesis.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "is_autocast_enabled"]

if not TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """`GradScaler` is made of tensors, which are above autocast: it is imported when it is asked for."""
        if name != "GradScaler":
            from genesis.ir.suggest import MissingName
            raise MissingName(f"module 'genesis.amp' has no attribute {name!r}", name, lambda: __all__)
        from genesis.amp.grad_scaler import GradScaler
        return GradScaler
