"""CUDA: what it supports, and a schedule of groups → kernel launches over planned memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200, GpuModel
from genesis.codegen.cuda.lowerings import LOOP_OPS
from genesis.codegen.cuda.source import (
    Exchange,
    From,
    KernelSource,
    MatrixMap,
    TensorTable,
    letting_next_begin,
    waiting_last,
)
from genesis.codegen.cuda.templates.long_lines import sums_fit
from genesis.codegen.cuda.templates.row_digits import in_one_program
from genesis.codegen.cuda.templates.row_sums import looked_through
from genesis.codegen.cuda.templates.scatter import ROWS, few_columns
from genesis.codegen.cuda.templates.segments import lines_fit
from genesis.ir.flops import as_it_is, flops_of_nodes, is_product
from genesis.ir.graph import Graph
from genesis.ir.node import OPS, Node
from genesis.ir.ops.checked import line_of
from genesis.ir.ops.collectives import messages
from genesis.ir.ops.exact_sums import exact_fits, sums_and_positions
from genesis.ir.ops.line_sums import scales_sums
from genesis.ir.ops.row_number import report
from genesis.ir.ops.row_takes import may_share
from genesis.ir.ops.sorting import in_one_tile
from genesis.ir.ops.sum_forms import IF_ALLOWED, IN_ANY_ORDER, faster_by_block, rather_by_lines
from genesis.ir.place import Place
from genesis.ir.sym_int import hint, most
from genesis.ir.types import float32, int64, tensor_type
from genesis.passes.fusion.views import stored_as
from genesis.passes.graph.channels_last import DOTS
from genesis.passes.graph.patterns import flash_refusal
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.plan_memory import MemoryPlan
from genesis.passes.memory.schedule import may_wait_last
from genesis.passes.moved_bytes import moved_bytes
from genesis.runtime import plan
from genesis.runtime.plan import Check, Collective, Copy, KernelImage, Launch, Step, Table

Compile = Callable[[Sequence[KernelSource]], Sequence[KernelImage]]

LOWERED: Final = LOOP_OPS | {name for name, op in OPS.items() if op.opaque is not None}
"""Every op with a CUDA lowering; legalize decomposes the others."""


def supports(node: Node, gpu: GpuModel = H200) -> bool:
    """True for ops with a kernel for this GPU, or a line in one."""
    if node.op.name in FLASH:
        start = FLASH[node.op.name]
        q, _, v = node.inputs[start:start + 3]
        return flash_refusal(q.type, v.type, node["scale"]) is None and (
            not start or all(x.dtype is float32 for x in node.inputs[start + 3:start + 5]))
    if node.op.name in ("sort", "topk") and in_one_program(node, gpu):
        return True
    limit = LIMITS.get(node.op.name)
    return limit(node) if limit is not None else node.op.name in LOWERED


FEW_ROWS: Final = 256
"""Maximum row indices of a write that every program searches for its rows; more are sorted first."""

FEW_ELEMENTS: Final = 32
"""Maximum length, along the axis, of an element-wise index that every program searches; longer ones are sorted."""

FEW_ADDED: Final = 8
"""The same where sums of lines or columns are an alternative, which reads each index once, and checks it: each of 20
sums read all 16 of its column's (H200: scatter_add along 0 of 16 onto float32[20, 144, 200] 12.3 µs after a check of
4.1, torch.compile 9.6)."""

SMALL: Final = 1 << 20
"""Maximum elements of a result that is written anew as a whole; of a larger one only the rows that are hit."""


ADDED_ANEW: Final = 1 << 23
"""Maximum elements of a result of index_add that is written anew as a whole: to copy it before rows are added takes as
long, and four more launches find and add these (bf16[17, 123, 184, 8], 46 positions: 7 launches for 2)."""


def few_rows(node: Node, anew: int = SMALL) -> bool:
    """Does every program search the index for its rows? `anew`: elements that are rather written than looked for."""
    whole = node.shape[node["axis"]] <= ROWS and _beside(node)
    return bool(node.inputs[1].type.numel <= FEW_ROWS and (whole or node.type.numel <= anew))


def _few_elements(node: Node, most_positions: int) -> bool:
    """Does every program search an element-wise index for its elements?"""
    return bool(node.inputs[1].shape[node["axis"]] <= most_positions and node.type.numel <= SMALL)


def _in_columns(node: Node) -> bool:
    """Are elements that are added those of whole lines or columns, and floats?"""
    axis = node["axis"]
    base, index = (shape[:axis] + shape[axis + 1:] for shape in (node.shape, node.inputs[1].shape))
    return base == index and scales_sums(node.dtype)


def _beside(node: Node) -> bool:
    """Are rows so short, and so many side by side, that a program takes them across the outer sizes?"""
    axis, shape = node["axis"], node.shape
    return few_columns(prod(shape[:axis]), prod(shape[axis + 1:]))


MANY_LINES: Final = 1 << 14
"""Lines from which on few elements of each are rather taken as rows of few columns, a thread for each: a warp takes
some 500 instructions for eight lines of six (262,272 of them are 36 µs of an H200's, reckoned; a check of the index by
itself is 2.3)."""


def _in_lines(node: Node) -> bool:
    """Are rows single elements that are added line by line? The index is checked there, too."""
    rows, inner = node.shape[node["axis"]], prod(node.shape[node["axis"] + 1:])
    if not (inner.__class__ is int and inner == 1):
        return False
    lines = hint(prod(node.shape[:node["axis"]]))
    return most(rows) > ROWS or most(node.inputs[1].type.numel) > 2 * ROWS or lines < MANY_LINES


def _lines_of(node: Node) -> tuple[int, int, int, int]:
    """(lines, the sums of one, its positions, columns beside each other) of a lines_summed."""
    return node.shape[0], node.shape[1], node.inputs[1].shape[1], prod(node.shape[2:])


def _one_row(node: Node) -> bool:
    """Is one row of what is in memory written? Then the kernel that makes the row writes it there (`row_put`)."""
    count = node.inputs[1].type.numel
    return count.__class__ is int and count == 1 and node.inputs[0].op.name != "const"


LIMITS: dict[str, Callable[[Node], bool]] = {
    "lines_added": lambda node: lines_fit(*(most(x.shape[1]) for x in node.inputs[:2])),
    "lines_summed": lambda node: sums_fit(*_lines_of(node), node.dtype) and not faster_by_block(*_lines_of(node)),
    "exact_sums": lambda node: exact_fits(*sums_and_positions(*node.inputs[:2]), node.dtype),
    "taken_in_rows": lambda node: may_share(node.inputs[1].type),
    "rows_added": lambda node: node.dtype in IN_ANY_ORDER | IF_ALLOWED,
    "rows_summed": lambda node: looked_through(*node.inputs[:2]) and not rather_by_lines(*node.inputs[:2]),
    "index_add": lambda node: few_rows(node, ADDED_ANEW) and _beside(node) and not _in_lines(node),
    "index_copy": lambda node: few_rows(node) and not _one_row(node),
    "scatter": lambda node: _few_elements(node, FEW_ELEMENTS),
    "scatter_add": lambda node: _few_elements(node, FEW_ADDED if _in_columns(node) else FEW_ELEMENTS),
    **dict.fromkeys(("convolution_last", "convolution_input_last", "convolution_weight_last"),
                    lambda node: node.inputs[0].dtype.name in DOTS and bool(node.type.numel)),
    "sort": lambda node: in_one_tile(node.inputs[0].type, node["axis"]),
    "topk": lambda node: in_one_tile(node.inputs[0].type, node["axis"]),
    **dict.fromkeys(("logaddexp", "logaddexp2"), lambda node: node.dtype is float32),
}
"""Ops with a kernel for some operands; with others they are decomposed. Of forms that sums may take which one is faster
is asked of `ir/ops` (`faster_by_block`, `rather_by_lines`), where the decompositions choose among the others; what is
asked here is whether a kernel fits."""

FLASH = {"flash_attention": 0, "flash_attention_dq": 1, "flash_attention_dkv": 1}
"""Attention's ops → where q, k and v start among the operands; they have kernels for some types."""


def may_overwrite(group: Group, output: Node, operand: Node) -> bool:
    """True if the kernel can write this output over this operand's memory."""
    return (output, operand) in group.in_place


def lower(schedule: Schedule, memory: MemoryPlan, compile: Compile,
          gpu: GpuModel = H200) -> tuple[Step, ...]:
    """The launches, copies and collectives that run a schedule.

    Args:
        compile: what makes images of sources.
        gpu: what they run on.
    """
    return steps_of(schedule, memory, kernels_of(schedule, compile, gpu))


Kernels = Sequence[tuple[KernelSource | None, KernelImage | None]]
"""(source, image) of each group's kernel; the image is None where the grid is empty, both where there is none."""


def kernels_of(schedule: Schedule, compile: Compile, gpu: GpuModel) -> Kernels:
    """The kernels of a schedule, compiled."""
    settled = settled_in(schedule.graph)
    sources = [None if group.kind in ("collective", "joined") else emit(group, gpu, settled if place else frozenset())
               for place, group in enumerate(schedule.groups)]
    if gpu.dependent_launch:
        sources = [waiting_last(source) if source is not None and place and may_wait_last(
            group, schedule.groups[place - 1]) else source
            for place, (group, source) in enumerate(zip(schedule.groups, sources, strict=True))]
        sources = [source if source is None or after is None else letting_next_begin(source, after, gpu)
                   for source, after in zip(sources, [*sources, None][1:], strict=True)]
    launched = [source for source in sources if source is not None and all(source.grid)]
    images = dict(zip(map(id, launched), compile(launched), strict=True))
    return [(source, images.get(id(source))) for source in sources]


def settled_in(graph: Graph) -> frozenset[Node]:
    """The program's inputs that nothing in it writes."""
    return frozenset(graph.inputs).difference(target for target, _ in graph.updates)


def steps_of(schedule: Schedule, memory: MemoryPlan, kernels: Kernels) -> tuple[Step, ...]:
    """The launches of a schedule's kernels over planned memory, and the copies between them."""
    copies: dict[int, list[Copy]] = {}
    for index, node, place in memory.copies:
        copies.setdefault(index, []).append(Copy(memory.places[node], place))
    starts: dict[int, list[Copy]] = {}
    for index, origin, place in memory.starts:
        starts.setdefault(index, []).append(Copy(origin, place))
    steps: list[Step] = [Copy(source, destination) for source, destination in memory.before]
    for index, (group, (source, image)) in enumerate(zip(schedule.groups, kernels, strict=True)):
        steps += starts.get(index, ())
        if group.kind == "collective":
            steps.append(_collective(group, memory))
        elif source is not None and image is not None:
            arguments = tuple(argument(x, memory.places) for x in source.args)
            exchanged = [x for x in arguments if isinstance(x, Place) and x.where == "exchange"]
            steps.append(Launch(image, arguments, source.grid, source.label,
                                (*(memory.places[x] for x in group.outputs), *exchanged), origin_of(group),
                                tuple(dict.fromkeys(memory.places[x.part] for x in group.slices)), source.choices,
                                flops_of_nodes(group.nodes, as_it_is),  # type: ignore[arg-type]  # filled in later
                                any(map(is_product, group.nodes)),
                                moved_bytes(group)))  # type: ignore[arg-type]
        steps += copies.get(index, ())
    return (*steps, *(Copy(source, destination) for source, destination in memory.after))


def _collective(group: Group, memory: MemoryPlan) -> Collective:
    """The step of a collective: its operands are in memory, row-major."""
    node = group.nodes[-1].inputs[0]
    known = {stored_as(x): memory.places[x] for x in group.inputs}
    attributes = node.attributes
    more = "".join(f", {attributes[name]}" for name in ("reduce", "peer") if name in attributes)
    sent, received = attributes.get("sent", ()), attributes.get("received", ())
    shown = () if "sent" in attributes else tuple(x.type for x in node.inputs[:-1])
    if node.op is messages:
        sent, received, shown = attributes["to"], attributes["sources"], (*shown, *node.types[:-1])
    return Collective(node.op.name, attributes["communicator"], tuple(known[stored_as(x)] for x in node.inputs),
                      tuple(memory.places[x] for x in group.outputs), attributes.get("reduce", ""),
                      attributes.get("peer", 0), sent, received, more, str(node.source or ""), shown)


def origin_of(group: Group) -> str:
    """The last op of the group that is more than a view, and the line that recorded it."""
    found = [node for node in group.nodes if node.source is not None and node.op.kind not in ("leaf", "movement")]
    return f"{found[-1].op.name} at {line_of(found[-1].source)}" if found else ""


def _later(place: Place, start: int) -> Place:
    """The part of a place that begins at one of its elements."""
    type = place.type
    return Place(place.where, place.index, place.offset + start * type.dtype.itemsize,
                 tensor_type((type.numel - start,), type.dtype, type.device))


def argument(value: Node | From | int | TensorTable | MatrixMap | Exchange,
             places: Mapping[Node, Place]) -> Place | int | Table | plan.MatrixMap:
    """A kernel's argument as a launch has it, where values are at these places."""
    if isinstance(value, MatrixMap):
        return plan.MatrixMap(places[value.node], value.shape, value.stride, value.start, value.block,
                              value.outer)
    if isinstance(value, From):
        return _later(places[value.node], value.start)
    if isinstance(value, Exchange):
        return Place("exchange", 0, value.offset, value.type)
    if isinstance(value, TensorTable):
        return Table(tuple([places[x] if isinstance(x, Node) else x for x in value.entries]))
    if not isinstance(value, Node):
        return value
    if value.op is report:
        word = Place("errors", 0, 0, tensor_type((), int64, value["device"]))
        return Table((word, Check(value["name"], value["size"], value["dim"], value["line"])))
    if value.op.name == "scalar":
        return Place("numbers", value["index"], 8 * value["index"], value.type)
    return places[value]
