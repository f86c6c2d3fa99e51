"""Sums of two 16-bit integers in one register, taken apart before NVIDIA's assembler sees them.

LLVM makes them (`add.s16x2`) of index arithmetic on small numbers, as kernels have it that are windows of an image. Of
ptxas 12.8 and 12.9 such a sum with a constant lost the constant where it was added to another such sum
(`VIADD.16x2 R16, R8, 0x0` for 0xff00ff), and the kernel's bounds with it: on an H200 gradients of `conv2d` were 0 in
their first column, and a modulated convolution's were 2 % off. Two sums of 16 bits are assembled rightly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

_PACKED: Final = re.compile(r"\badd\.([su]16)x2\s+(%\w+),\s*(%\w+),\s*(%\w+);")


def taken_apart(ptx: str) -> str:
    """The same program with each packed sum written as two.

    Example:
        >>> taken_apart("add.s16x2 %r3, %r1, %r2;")
        '{ .reg .b16 %pa<4>; mov.b32 {%pa0, %pa1}, %r1; mov.b32 {%pa2, %pa3}, %r2; add.s16 %pa0, %pa0, %pa2; \
add.s16 %pa1, %pa1, %pa3; mov.b32 %r3, {%pa0, %pa1}; }'
    """
    return _PACKED.sub(r"{ .reg .b16 %pa<4>; mov.b32 {%pa0, %pa1}, \3; mov.b32 {%pa2, %pa3}, \4; "
                       r"add.\1 %pa0, %pa0, %pa2; add.\1 %pa1, %pa1, %pa3; mov.b32 \2, {%pa0, %pa1}; }", ptx)


def before_assembling(backend: Any = None, stages: dict[str, Callable[[str, Any], bytes]] | None = None,
                      *others: Any) -> tuple[str, str]:
    """Triton's hook for its stages (`knobs.runtime.add_stages_inspection_hook`): the assembler gets what `taken_apart`
    gives. Asked with nothing, it says what the hook adds to a key of Triton's cache."""
    if stages is not None:
        assemble = stages["cubin"]
        stages["cubin"] = lambda ptx, metadata: assemble(taken_apart(ptx), metadata)
    return __name__, __name__
