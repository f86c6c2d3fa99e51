"""`functional_call`, by the name that it had first."""

from __future__ import annotations

from typing import Any

import genesis

__all__ = ["functional_call"]


def functional_call(module: Any, parameters_and_buffers: Any, args: Any = None, kwargs: Any = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """`genesis.func.functional_call`."""
    return genesis.func.functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights,
                                        strict=strict)
