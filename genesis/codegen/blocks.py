"""How much of a loop's iteration space one program takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genesis.codegen.kernel_ir import Kernel

PERSISTENT: Final = 8192
"""Most elements of a block of rows that is held in registers from load to store."""

PROGRAMS: Final = 264
"""Programs that keep a GPU busy: two for each of an H200's 132 multiprocessors."""


@dataclass(frozen=True)
class Blocks:
    """Block sizes, powers of two. `looped`: the program walks over r in steps of `r`."""

    x: int
    r: int
    looped: bool
    num_warps: int


def power_of_two(n: int) -> int:
    """The smallest power of two ≥ n, at least 1."""
    return 1 << max(n - 1, 0).bit_length()


def _between(low: int, n: int, high: int) -> int:
    return max(low, min(n, high))


def choose_blocks(kernel: Kernel) -> Blocks:
    """Block sizes for a kernel. Which coordinate is fastest in memory decides the block's shape."""
    x_size, r_size = kernel.x_size, kernel.r_size
    if not kernel.has_r:
        return _flat(x_size)
    fastest = kernel.space[-1][1] if kernel.space else "r"
    if fastest == "x" and x_size > 1:
        return _columns(x_size, r_size)
    return _rows(x_size, r_size)


def _flat(x_size: int) -> Blocks:
    block = _between(1, power_of_two(x_size), 1024 if x_size >= 1024 * PROGRAMS else 256)
    return Blocks(block, 1, False, _between(1, block // 128, 4))


def _rows(x_size: int, r_size: int) -> Blocks:
    r_block = power_of_two(r_size)
    if r_block > PERSISTENT:
        return Blocks(1, 2048, True, 8)
    x_block = _between(1, 2048 // r_block, power_of_two(x_size))
    while x_block > 1 and x_size < x_block * PROGRAMS:
        x_block //= 2
    return Blocks(x_block, r_block, False, _between(1, x_block * r_block // 512, 16))


def _columns(x_size: int, r_size: int) -> Blocks:
    x_block = _between(1, power_of_two(x_size), 64)
    while x_block > 16 and x_size < x_block * PROGRAMS:
        x_block //= 2
    r_block = power_of_two(r_size)
    looped = x_block * r_block > PERSISTENT
    if looped:
        r_block = 4096 // x_block
    return Blocks(x_block, r_block, looped, _between(1, x_block * r_block // 512, 8))
