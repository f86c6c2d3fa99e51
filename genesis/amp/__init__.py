"""Mixed precision: low precision where it is fast, float32 where it matters.

In: the block or function that a context is around. Out: casts, recorded as the ops' entries say; scaled losses and
gradients.
"""

from typing import TYPE_CHECKING, Any

from genesis.amp.autocast import autocast, enable_autocast, is_autocast_available, is_autocast_enabled
from genesis.amp.custom import custom_bwd, custom_fwd

if TYPE_CHECKING:
    from genesis.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "enable_autocast", "is_autocast_available",
           "is_autocast_enabled"]

if not TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """`GradScaler` is made of tensors, which are above autocast: it is imported when it is asked for."""
        if name == "GradScaler":
            from genesis.amp.grad_scaler import GradScaler
            return GradScaler
        from genesis.ir.suggest import suggesting
        return suggesting("genesis.amp")(name)
