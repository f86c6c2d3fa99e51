"""What a kernel takes, as it is reckoned before there is one: to move its bytes or to multiply, and to be launched.

All times are in microseconds, as those of `product_times.py` are.
"""

from __future__ import annotations

from typing import Final

from genesis.ir.flops import flops_of, is_product
from genesis.ir.node import Node
from genesis.ir.ops.flash_attention import flash_attention_dkv, flash_attention_dq
from genesis.ir.sym_int import hint
from genesis.passes.gpu import Gpu
from genesis.passes.groups import Group

LAUNCH: Final = 2.4
"""Microseconds of one more small kernel of a graph, its launch and its end (H200, 2026-11)."""

COPY: Final = 3.5
"""Microseconds that a copy of an operand takes beside those for its bytes."""

BACKWARD: Final = (flash_attention_dq, flash_attention_dkv)
"""Attention's gradients. Causal ones compute half of the products, at about half of the speed: steps' times were
reckoned right with all of them (H200, 2026-11)."""


def bytes_of(group: Group) -> int:
    """Bytes that a group reads and writes, each value once."""
    return 0 if group.runs_nothing else sum(int(hint(x.type.nbytes)) for x in (*group.inputs, *group.outputs))


def group_microseconds(group: Group, gpu: Gpu) -> float:
    """What a group's kernel takes: it moves its bytes, or multiplies, whichever takes longer, and is launched and ends.
    Views take nothing."""
    if group.runs_nothing:
        return 0.0
    flops = sum(_weighed(node) for node in filter(is_product, group.nodes))
    return LAUNCH + 1e6 * max(bytes_of(group) / gpu.copy_rate, flops / gpu.product_rate)


def _weighed(node: Node) -> int:
    """A product's operations, as many as its time is reckoned by."""
    return int(flops_of(node)) * (2 if node.op in BACKWARD and node["causal"] else 1)


def copy_microseconds(x: Node, gpu: Gpu) -> float:
    """What a kernel takes that copies a value: it reads and writes its bytes."""
    return COPY + 2e6 * hint(x.type.nbytes) / gpu.copy_rate
