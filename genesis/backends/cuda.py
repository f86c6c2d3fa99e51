"""Switches of products and attention on GPUs: TF32 is switched, the others are remembered."""

from __future__ import annotations

from dataclasses import dataclass

from genesis.config import config
from genesis.frontend.runtime_settings import set_float32_matmul_precision
from genesis.ir.suggest import suggesting


@dataclass
class MatmulSwitches:
    """How products on GPUs may round.

    Attributes:
        allow_fp16_reduced_precision_reduction, allow_bf16_reduced_precision_reduction, allow_fp16_accumulation: as set;
            low precision is summed in float32 whatever they say.

    >>> import genesis
    >>> genesis.backends.cuda.matmul.allow_tf32 = True
    >>> genesis.get_float32_matmul_precision(), genesis.backends.cuda.matmul.fp32_precision
    ('high', 'tf32')
    >>> genesis.backends.cuda.matmul.allow_tf32 = False
    """

    allow_fp16_reduced_precision_reduction: bool = True
    allow_bf16_reduced_precision_reduction: bool = True
    allow_fp16_accumulation: bool = False

    @property
    def allow_tf32(self) -> bool:
        """Whether the operands of float32 products are rounded to TF32, as `config.float32_products` says."""
        return config.float32_products == "tf32"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_float32_matmul_precision("high" if allowed else "highest")

    @property
    def fp32_precision(self) -> str:
        """The same as a word: "ieee" or "tf32", and "bf16x3" here. "none" sets "ieee"."""
        return config.float32_products

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        config.float32_products = "ieee" if precision == "none" else precision


matmul = MatmulSwitches()
_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built() -> bool:
    """True: kernels are made for GPUs where there is one."""
    return True


def flash_sdp_enabled() -> bool:
    """Whether it is said to be allowed: kernels are chosen by other rules."""
    return _attention["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Remembered."""
    _attention["flash"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """Whether it is said to be allowed: kernels are chosen by other rules."""
    return _attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Remembered."""
    _attention["mem_efficient"] = enabled


def math_sdp_enabled() -> bool:
    """Whether it is said to be allowed: kernels are chosen by other rules."""
    return _attention["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Remembered."""
    _attention["math"] = enabled


def cudnn_sdp_enabled() -> bool:
    """Whether it is said to be allowed: kernels are chosen by other rules."""
    return _attention["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Remembered."""
    _attention["cudnn"] = enabled


def preferred_linalg_library(backend: str | None = None) -> str:
    """"default": decompositions have one way."""
    return "default"

__getattr__ = suggesting(__name__)
