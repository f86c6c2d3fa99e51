"""How many whole rows a program of a reduction takes, and with how many warps.

`blocks.py` has a rule, which comes first; the model has no better than that the others are near it. They are tried
where times decide (`config.tune`): twice or half as many rows, twice or half as many warps.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.choices import Candidate, choose, size_class
from genesis.codegen.cuda.kernel_ir import Kernel
from genesis.ir.sym_int import hint

if TYPE_CHECKING:
    from genesis.codegen.cuda.block_sizes import Blocks
    from genesis.codegen.cuda.gpu_model import GpuModel

MOST_ELEMENTS: Final = 16384
"""Elements of a block, at most: registers hold them from load to store."""

MOST_EACH: Final = 128
"""Elements of a thread, at most."""

MOST_WARPS: Final = 32
"""Warps of a program, at most: what a GPU takes."""

STEP: Final = 0.05
"""How much longer the model takes a candidate to be for each doubling away from the rule's."""


def choose_rows(rule: Blocks, kernel: Kernel, gpu: GpuModel) -> Blocks:
    """The blocks of whole rows, of which the rule's are one candidate."""
    def candidate(blocks: Blocks) -> Candidate[Blocks]:
        copied = hint(kernel.x_size) * hint(kernel.r_size) * max(kernel.bytes_each, 1) / (gpu.copy_rate / 1e6)
        away = abs(log2(blocks.x / rule.x)) + abs(log2(blocks.num_warps / rule.num_warps))
        return Candidate(f"{blocks.x}x{blocks.r} warps={blocks.num_warps}", blocks, copied * (1 + STEP * away))

    def others() -> list[Candidate[Blocks]]:
        near = [replace(rule, x=x, num_warps=warps) for x in (rule.x, 2 * rule.x, rule.x // 2, 4 * rule.x)
                for warps in (rule.num_warps, 2 * rule.num_warps, rule.num_warps // 2)]
        return [candidate(x) for x in near if x != rule and _fits(x, hint(kernel.x_size))]

    return choose("rows", _words(kernel, rule), gpu, candidate(rule), others)


def _fits(blocks: Blocks, rows: int) -> bool:
    elements = blocks.x * blocks.r
    return (1 <= blocks.x <= rows and elements <= MOST_ELEMENTS and 1 <= blocks.num_warps <= MOST_WARPS
            and 1 <= elements / (32 * blocks.num_warps) <= MOST_EACH)


def _words(kernel: Kernel, rule: Blocks) -> dict[str, str | int]:
    """The problem: the rule's block, what is read and written for an element, and how much is computed of it."""
    stores = bool(kernel.stores("xr"))
    return {"rule": f"{rule.x}x{rule.r}", "rows": size_class(kernel.x_size), "operands": len(kernel.loads("xr")),
            "bytes": kernel.bytes_each, "writes": "rows" if stores else "values", "ops": size_class(kernel.weight)}
