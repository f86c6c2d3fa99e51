"""A kernel alone as a plan of one launch, over inputs of its own, with sizes as they are at hand: to be timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from genesis.codegen.cuda.lower import argument
from genesis.codegen.cuda.source import From, KernelSource, MatrixMap, TensorTable
from genesis.ir.node import Node
from genesis.ir.ops.row_number import report
from genesis.ir.place import Place
from genesis.ir.sym_int import value_of
from genesis.ir.types import TensorType, tensor_type
from genesis.passes.groups import Group
from genesis.runtime import plan
from genesis.runtime.plan import KernelImage, Launch, Plan


def plan_of_one(source: KernelSource, image: KernelImage, group: Group) -> Plan | None:
    """The plan that launches a group's kernel over memory of its own, each value in one that is an input; None if there
    is nothing to launch. A result that lies in a larger value has all of that value's memory."""
    grid = tuple(map(value_of, source.grid))
    nodes = list(dict.fromkeys(_memories(source)))
    numbers = [x for x in source.args if isinstance(x, Node) and x.op.name == "scalar"]
    if not prod(grid) or not nodes:
        return None
    wholes = {x.part: x.whole.type for x in group.slices}
    inputs = tuple(_at_hand(wholes.get(node, node.type)) for node in nodes)
    places = {node: Place("input", i, 0, type) for i, (node, type) in enumerate(zip(nodes, inputs, strict=True))}
    count = max((x["index"] + 1 for x in numbers), default=0)
    types = {x["index"]: x.type for x in numbers}
    if len(types) < count:  # numbers that it does not read have some type
        types = {index: types.get(index, numbers[0].type) for index in range(count)}
    arguments = tuple(_settled(argument(x, places)) for x in source.args)
    launch = Launch(image, arguments, (grid[0], grid[1], grid[2]), source.label)
    return Plan(inputs[0].device, inputs, (), (), tuple(types[index] for index in range(count)), (launch,), 0)


def _memories(source: KernelSource) -> Iterator[Node]:
    """The values in memory that a kernel is given."""
    for x in source.args:
        if isinstance(x, (MatrixMap, From)):
            yield x.node
        elif isinstance(x, TensorTable):
            yield from (entry for entry in x.entries if isinstance(entry, Node))
        elif isinstance(x, Node) and x.op is not report and x.op.name != "scalar":
            yield x


def _at_hand(type: TensorType) -> TensorType:
    return tensor_type(tuple(map(value_of, type.shape)), type.dtype, type.device)


def _settled(x: Place | int | plan.Table | plan.MatrixMap) -> Place | int | plan.Table | plan.MatrixMap:
    """An argument without symbols."""
    if isinstance(x, plan.MatrixMap):
        return replace(x, shape=(value_of(x.shape[0]), value_of(x.shape[1])), stride=value_of(x.stride),
                       start=value_of(x.start), outer=tuple((value_of(a), value_of(b)) for a, b in x.outer))
    if isinstance(x, plan.Table):
        return replace(x, entries=tuple(_of_check(entry) if isinstance(entry, plan.Check) else entry
                                        if isinstance(entry, Place) else value_of(entry) for entry in x.entries))
    if isinstance(x, Place):  # one that begins at an element of a memory has symbols where that has
        return replace(x, offset=value_of(x.offset), type=_at_hand(x.type))
    return value_of(x)


def _of_check(x: plan.Check) -> plan.Check:
    return replace(x, size=value_of(x.size))
