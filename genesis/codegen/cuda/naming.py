"""Readable kernel names from what a kernel computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops.splits import reduce_splits
from genesis.passes.groups import Group

_KNOWN: Final = (
    ("cross_entropy", {"max", "exp", "sum", "log", "gather"}),
    ("log_softmax", {"max", "exp", "sum", "log"}),
    ("softmax", {"max", "exp", "sum", "div"}),
    ("layer_norm", {"rsqrt", "sum", "sub", "mul"}),
    ("rms_norm", {"rsqrt", "sum", "mul"}),
    ("adamw", {"sqrt", "div", "mul", "sub", "add"}),
)
"""(name, the ops that must be there), the first that fits."""

_SILENT: Final = {"cast", "reshape", "expand", "const", "scalar", "input", "iota", "slice", "item"}
LONGEST: Final = 5


def kernel_name(group: Group) -> str:
    """A Python name such as `softmax_rows` or `add_mul_gelu`.

    The same ops in the same order give the same name, whatever the shapes.
    """
    ops = list(dict.fromkeys(_loud(group.nodes)))
    present = set(ops)
    name = next((name for name, needed in _KNOWN if needed <= present and len(ops) <= 3 * len(needed)), "")
    if not name:
        shown = ops[:LONGEST]
        name = "_".join(shown) + (f"_and_{len(ops) - LONGEST}_more" if len(ops) > LONGEST else "")
    reduced = any(kind == "r" for _, kind in group.space)
    where = "" if not reduced else "_columns" if group.space[-1][1] == "x" else "_rows"
    return f"{name or _quiet(group.nodes)}{where}"


def _loud(nodes: Iterable[Node]) -> Iterable[str]:
    names = (node["how"] if node.op is reduce_splits else node.op.name for node in nodes)
    return (name.strip("_") for name in names if name not in _SILENT)


def _quiet(nodes: Iterable[Node]) -> str:
    """A name for a group of casts and views only."""
    names = {node.op.name for node in nodes}
    return "cast" if "cast" in names else "iota" if "iota" in names else "fill" if "const" in names else "copy"
