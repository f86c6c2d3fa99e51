"""What templates share: the block sizes of a product's kernel, its rounding, and lines of text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from genesis.config import config
from genesis.ir.types import DType, float32

LOG2_E: Final = math.log2(math.e)
LN_2: Final = math.log(2)


@dataclass(frozen=True)
class Tile:
    """Block sizes of C and of the sum, warps, and how many blocks are loaded ahead."""

    i: int
    j: int
    k: int
    num_warps: int
    num_stages: int

    @property
    def name(self) -> str:
        """Its parameters, as tables of choices write them."""
        return f"{self.i}x{self.j}x{self.k} warps={self.num_warps} stages={self.num_stages}"


def rounding(dtype: DType) -> str:
    """The argument of a product in Triton that says how its operands are rounded; none for those of low precision."""
    return f', input_precision="{config.float32_products}"' if dtype is float32 else ""


def indented(lines: list[str]) -> list[str]:
    """The lines as the body of a loop."""
    return ["    " + line for line in lines]
