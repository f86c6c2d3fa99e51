"""cuDNN's switches. Genesis makes its own kernels, and asks nothing of cuDNN: they are remembered.

Attributes:
    enabled, benchmark, deterministic, allow_tf32: as set.
"""

from __future__ import annotations

from genesis.ir.suggest import suggesting
from genesis.runtime.contexts import Temporary, items

__path__: list[str] = []
"""No folder: an import of a module below comes to the finder that says what to use instead (`ir/absent.py`)."""

enabled = True
benchmark = False
benchmark_limit: int | None = 10
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: no kernel is cuDNN's."""
    return False


def version() -> int | None:
    """None: there is no cuDNN."""
    return None


def is_acceptable(tensor: object) -> bool:
    """False: cuDNN computes nothing."""
    return False


def flags(enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False,
          allow_tf32: bool = True) -> Temporary:
    """Sets the switches inside."""
    return items(globals(), {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit,
                             "deterministic": deterministic, "allow_tf32": allow_tf32})

__getattr__ = suggesting(__name__)
