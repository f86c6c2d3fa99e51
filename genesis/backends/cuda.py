"""Switches of products and attention on GPUs; they are remembered."""

from __future__ import annotations

from dataclasses import dataclass

from genesis.ir.suggest import suggesting


@dataclass
class MatmulSwitches:
    """How torch's products on GPUs may round. Ours keep float32's bits, and sum low precision in float32.

    Attributes:
        allow_tf32, allow_fp16_reduced_precision_reduction, allow_bf16_reduced_precision_reduction,
        allow_fp16_accumulation, fp32_precision: as set.
    """

    allow_tf32: bool = False
    allow_fp16_reduced_precision_reduction: bool = True
    allow_bf16_reduced_precision_reduction: bool = True
    allow_fp16_accumulation: bool = False
    fp32_precision: str = "none"


matmul = MatmulSwitches()
_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built() -> bool:
    """True: kernels are made for GPUs where there is one."""
    return True


def flash_sdp_enabled() -> bool:
    """As set."""
    return _attention["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Remembered."""
    _attention["flash"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """As set."""
    return _attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Remembered."""
    _attention["mem_efficient"] = enabled


def math_sdp_enabled() -> bool:
    """As set."""
    return _attention["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Remembered."""
    _attention["math"] = enabled


def cudnn_sdp_enabled() -> bool:
    """As set."""
    return _attention["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Remembered."""
    _attention["cudnn"] = enabled


def preferred_linalg_library(backend: str | None = None) -> str:
    """"default": decompositions have one way."""
    return "default"

__getattr__ = suggesting(__name__)
