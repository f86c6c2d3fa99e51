"""Settings of the process under torch's names: threads of the CPU's kernels, and what float32 products may round."""

from __future__ import annotations

from genesis.config import config
from genesis.ir.errors import failure

__all__ = [
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_num_threads",
]

_precision = "highest"
_PRODUCTS = {"highest": "ieee", "high": "tf32", "medium": "tf32"}
"""torch's words → `config.float32_products`."""


def set_num_threads(num: int) -> None:
    """How many threads the CPU's kernels use; they are torch's.

    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    """
    import torch
    torch.set_num_threads(num)


def get_num_threads() -> int:
    """How many threads the CPU's kernels use."""
    import torch
    return torch.get_num_threads()


def set_num_interop_threads(num: int) -> None:
    """Accepted: the calls of a plan are made one after the other."""


def get_num_interop_threads() -> int:
    """1: the calls of a plan are made one after the other."""
    return 1


def set_flush_denormal(mode: bool) -> bool:
    """Whether the CPU's kernels take denormal numbers for 0. False where the processor cannot be told."""
    import torch
    return torch.set_flush_denormal(mode)


def set_float32_matmul_precision(precision: str) -> None:
    """How GPUs round the operands of float32 matrix products that are computed from now on, those included that were
    recorded before and not read yet.

    Args:
        precision: "highest" keeps all bits, "high" and "medium" round to TF32's 10 bits behind the point, as torch does
            on NVIDIA GPUs. `genesis.config.float32_products` has one more choice.

    Raises:
        RuntimeError: another word.

    >>> set_float32_matmul_precision("high")
    >>> import genesis
    >>> genesis.backends.cuda.matmul.allow_tf32, genesis.config.float32_products
    (True, 'tf32')
    >>> set_float32_matmul_precision("highest")
    """
    global _precision
    if precision not in _PRODUCTS:
        raise failure("set_float32_matmul_precision", f"{precision!r} is not one of 'highest', 'high' and 'medium'")
    config.float32_products = _PRODUCTS[precision]
    _precision = precision


def get_float32_matmul_precision() -> str:
    """What was set last, also by `backends.cuda.matmul.allow_tf32`; "highest" at first."""
    if _PRODUCTS[_precision] == config.float32_products:
        return _precision
    return "highest" if config.float32_products == "ieee" else "high"
