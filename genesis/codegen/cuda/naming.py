"""Kernel names that say what a kernel computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from genesis.codegen.cuda.idioms import idioms
from genesis.ir.node import Node
from genesis.ir.ops.splits import reduce_splits
from genesis.passes.groups import Group

_SILENT: Final = {"cast", "reshape", "expand", "const", "scalar", "input", "iota", "slice", "item"}
"""Ops that say little about what a kernel computes."""

MOST_WORDS: Final = 5
"""Idioms and ops that a name has; the others are counted. Longer names fill a line of a profile."""

_UPDATE: Final = "adamw"
"""An idiom that is a kernel of its own: what else stands in it belongs to the update."""


def kernel_name(group: Group) -> str:
    """A Python name such as `softmax_rows` or `add_mul_gelu`: the idioms of a kernel and its other ops, in order.

    The same ops in the same order give the same name, whatever the shapes.
    """
    words = list(dict.fromkeys(_words(group)))
    if _UPDATE in words:
        words = [_UPDATE]
    shown = words[:MOST_WORDS]
    name = "_".join(shown) + (f"_and_{len(words) - MOST_WORDS}_more" if len(words) > MOST_WORDS else "")
    reduced = any(kind == "r" for _, kind in group.space)
    where = "" if not reduced else "_columns" if group.space[-1][1] == "x" else "_rows"
    return f"{name or _quiet(group.nodes)}{where}"


def _words(group: Group) -> Iterator[str]:
    """The idiom or the op that each node is, in the order of what they compute."""
    idiom_of = idioms(group.nodes)
    for node in group.nodes:
        name = node["how"] if node.op is reduce_splits else node.op.name
        if node in idiom_of or name not in _SILENT:
            yield idiom_of.get(node, name.strip("_"))


def _quiet(nodes: tuple[Node, ...]) -> str:
    """A name for a group of casts and views only."""
    names = {node.op.name for node in nodes}
    return "cast" if "cast" in names else "iota" if "iota" in names else "fill" if "const" in names else "copy"
