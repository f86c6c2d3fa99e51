"""Group → kernel text: which emitter serves which kind of group."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.choices import noting, stamp
from genesis.codegen.cuda.concatenations import emit_concatenation
from genesis.codegen.cuda.early_loads import emit_early_loop, settled_inputs
from genesis.codegen.cuda.gpu_model import H200, GpuModel
from genesis.codegen.cuda.loops import emit_loop
from genesis.codegen.cuda.many_tensors import emit_foreach, emit_norm_parts, emit_sums_of_columns
from genesis.codegen.cuda.side_by_side import emit_side_by_side
from genesis.codegen.cuda.source import (
    Exchange,
    From,
    KernelSource,
    MatrixMap,
    TensorTable,
    along_one_dimension,
    without_waiting,
)
from genesis.codegen.cuda.symbolic_sizes import with_size_arguments
from genesis.codegen.cuda.templates.attention import emit_attention
from genesis.codegen.cuda.templates.attention_backward import emit_attention_backward
from genesis.codegen.cuda.templates.convolution import emit_convolution
from genesis.codegen.cuda.templates.long_sort import emit_long_sort
from genesis.codegen.cuda.templates.matmul import emit_matmul
from genesis.codegen.cuda.templates.ragged import RAGGED, emit_ragged
from genesis.codegen.cuda.templates.scan import emit_scan
from genesis.codegen.cuda.templates.scatter import emit_scatter
from genesis.codegen.cuda.templates.segments import emit_segment
from genesis.codegen.cuda.templates.sort import emit_sort
from genesis.config import config
from genesis.ir.node import Node, literal
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group
from genesis.passes.structural_memo import group_structure, memoized


def emit(group: Group, gpu: GpuModel = H200, settled: Container[Node] = frozenset()) -> KernelSource:
    """The kernel that computes a group on a GPU like `gpu`. Needs no GPU and no places.

    Groups of one structure (of repeated layers) have one text, and each its own arguments.

    Args:
        settled: the program's inputs that nothing in it writes: a kernel may read them before it waits.
    """
    early = settled_inputs(group, settled)
    found = None if group.kind in ("foreach", "norm_parts", "sums_of_columns") else _structure(group, gpu, early)
    if found is None:
        return emit_anew(group, gpu, early)
    key, nodes = found
    place = {node: i for i, node in enumerate(nodes)}

    def answer() -> tuple[KernelSource, tuple[int | None, ...]] | None:
        source = emit_anew(group, gpu, early)
        memories = [x.node if isinstance(x, (MatrixMap, From)) else x for x in source.args]
        places = tuple(place.get(x, -1) if isinstance(x, Node) else None for x in memories)
        tables = any(isinstance(x, TensorTable) and any(isinstance(entry, Node) for entry in x.entries)
                     for x in source.args)
        return None if tables or -1 in places else (replace(source, args=tuple(
            x if at is None else _of(x, NOWHERE) for x, at in zip(source.args, places, strict=True))), places)

    kept = memoized(key, answer)
    if kept is None:
        return emit_anew(group, gpu, early)
    source, places = kept
    return replace(source, args=tuple([x if at is None else _of(x, nodes[at])
                                       for x, at in zip(source.args, places, strict=True)]))


NOWHERE: Final = literal(0)
"""Stands for the memory of an argument whose kernel's text is kept for other groups."""


def _of(argument: Node | From | int | TensorTable | MatrixMap | Exchange, node: Node) -> Node | From | MatrixMap:
    """The argument in this memory."""
    return replace(argument, node=node) if isinstance(argument, (MatrixMap, From)) else node


def emit_anew(group: Group, gpu: GpuModel, early: frozenset[Node] = frozenset()) -> KernelSource:
    """The kernel as `emit` makes it, of a group whose inputs `early` may be read before it waits, without looking for
    one that is kept."""
    with noting() as taken:
        emitted = _EARLY[group.kind](group, gpu, early) if early else _EMITTERS[group.kind](group, gpu)
    source = replace(with_size_arguments(along_one_dimension(emitted)), choices=tuple([x.text for x in taken]))
    return source if gpu.dependent_launch else without_waiting(source)


def _structure(group: Group, gpu: GpuModel, early: frozenset[Node]) -> tuple[Hashable, list[Node]] | None:
    """(what decides a group's text, the nodes that arguments may be: in an order that the text decides, too)."""
    shown = {x: i for i, x in enumerate(group.inputs)} | {stored_as(x): i for i, x in enumerate(group.inputs)}
    found = group_structure(group.nodes, shown)
    if found is None:
        return None
    rows, place = found
    lines = tuple([node.source for node in group.nodes])
    members = tuple([(x.space, *(tuple([place[y] for y in nodes]) for nodes in (x.inputs, x.outputs, x.nodes)))
                     for x in group.members])
    types, outputs = tuple([x.type for x in group.inputs]), tuple([place[x] for x in group.outputs])
    return (("kernel", gpu, config.key(), stamp(), group.kind, group.space, rows, lines, types, outputs, members,
             tuple([x in early for x in group.inputs]),
             tuple([(place[x.part], x.whole.type, x.address) for x in group.slices])), [*group.inputs, *group.nodes])


_EMITTERS: dict[str, Callable[[Group, GpuModel], KernelSource]] = {
    "loop": lambda group, gpu: emit_concatenation(group, gpu) or emit_loop(group, gpu=gpu),
    "foreach": lambda group, gpu: emit_foreach(group),
    "norm_parts": lambda group, gpu: emit_norm_parts(group),
    "sums_of_columns": lambda group, gpu: emit_sums_of_columns(group),
    "side_by_side": emit_side_by_side,
    "matmul": lambda group, gpu: (emit_ragged if any(x.op in RAGGED for x in group.nodes) else emit_matmul)(group, gpu),
    "attention": emit_attention,
    "attention_backward": emit_attention_backward,
    "convolution": emit_convolution,
    "scan": emit_scan,
    "scatter": emit_scatter,
    "segment": lambda group, gpu: emit_segment(group),
    "sort": lambda group, gpu: emit_sort(group),
    "long_sort": lambda group, gpu: emit_long_sort(group),
}

_EARLY: dict[str, Callable[[Group, GpuModel, frozenset[Node]], KernelSource]] = {
    "loop": emit_early_loop,
    "side_by_side": emit_side_by_side,
}
