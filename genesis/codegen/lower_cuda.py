"""CUDA: what it supports, and a schedule of groups → kernel launches over planned memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from genesis.codegen.compile_cuda import Cache, compile_sources
from genesis.codegen.emit import emit
from genesis.codegen.source import KernelSource, TensorTable
from genesis.codegen.triton_lowerings import LOWERED
from genesis.config import config
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.place import Place
from genesis.ir.types import float32
from genesis.passes.fuse import fuse
from genesis.passes.groups import Group, Schedule
from genesis.passes.patterns import flash_refusal
from genesis.passes.pipeline import Backend
from genesis.passes.plan_memory import MemoryPlan
from genesis.passes.split_reductions import split_reductions
from genesis.runtime.plan import Copy, KernelImage, Launch, Table

Compile = Callable[[Sequence[KernelSource]], Sequence[KernelImage]]


def supports(node: Node) -> bool:
    """True for ops with a kernel, or a line in one."""
    if node.op.name in FLASH:
        q, _, v = node.inputs[FLASH[node.op.name]:][:3]
        return not flash_refusal(q.type, v.type, node["scale"]) and all(
            x.dtype is float32 for x in node.inputs[FLASH[node.op.name] + 3:])
    return node.op.name in LOWERED


FLASH = {"flash_attention": 0, "flash_attention_dq": 1, "flash_attention_dkv": 1}
"""Attention's ops → where q, k and v start among the operands; they have kernels for some types."""


def may_overwrite(group: Group, output: Node, operand: Node) -> bool:
    """True if the kernel can write this output over this operand's memory."""
    return (output, operand) in group.in_place


def prepare(graph: Graph) -> Graph:
    """The last rewrites before grouping."""
    return split_reductions(graph)


def group(graph: Graph) -> Schedule:
    """The kernels, in order."""
    return fuse(graph, merge=config.fuse)


BACKEND = Backend("cuda", supports, prepare, group, may_overwrite, ("flash_attention", "flash_attention_backward"))


def lower(schedule: Schedule, memory: MemoryPlan, store: Cache | None = None,
          compile: Compile | None = None) -> tuple[Launch | Copy, ...]:
    """The launches and copies that run a schedule.

    Args:
        store: compiled kernels of earlier processes.
        compile: what makes images of sources; by default Triton in worker processes.
    """
    sources = [emit(group) for group in schedule.groups]
    launched = [source for source in sources if all(source.grid)]
    images = dict(zip(map(id, launched), (compile or partial(compile_sources, store=store))(launched), strict=True))
    copies: dict[int, list[Copy]] = {}
    for index, node, place in memory.copies:
        copies.setdefault(index, []).append(Copy(memory.places[node], place))
    steps: list[Launch | Copy] = [Copy(source, destination) for source, destination in memory.before]
    for index, source in enumerate(sources):
        if id(source) in images:
            steps.append(Launch(images[id(source)], tuple(_argument(x, memory) for x in source.args), source.grid,
                                source.label))
        steps += copies.get(index, ())
    return (*steps, *(Copy(source, destination) for source, destination in memory.after))


def _argument(value: Node | int | TensorTable, memory: MemoryPlan) -> Place | int | Table:
    if isinstance(value, int):
        return value
    if isinstance(value, TensorTable):
        return Table(tuple(x if isinstance(x, int) else memory.places[x] for x in value.entries))
    if value.op.name == "scalar":
        return Place("numbers", value["index"], 8 * value["index"], value.type)
    return memory.places[value]
