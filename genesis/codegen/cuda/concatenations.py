"""A concatenation of several parts as loops side by side: each part's programs read it and write it where it lies.

As one loop over the result every element asks, for each part, whether it lies there, and has a load for it: of eight
parts, eight loads under masks and seven choices an element. Here a program has one part, and no condition.

    before: where(x % 24 < 8, load(in0), where(x % 24 < 16, load(in1), load(in2)))
    after:  program < 40: out[rows of part 0] = load(in0)    else program < 80: out[rows of part 1] = load(in1)    …
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from genesis.codegen.cuda.block_sizes import about
from genesis.codegen.cuda.chosen_parts import emit_chosen_parts
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import LoopParts, loop_parts
from genesis.codegen.cuda.naming import kernel_name
from genesis.codegen.cuda.side_by_side import put_beside
from genesis.codegen.cuda.source import KernelSource
from genesis.ir.node import Node
from genesis.ir.ops import movement
from genesis.passes.fusion.index_map import flatten, offset, unflatten, variable
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group, Slice

FEWEST: Final = 3
"""Parts from which on they are side by side: of two, one loop reaches the memory's rate (H200, 2026-11: 8.6 µs for 33
MB), of eight it takes three times as long."""

FEWEST_RUNS: Final = 2
"""Parts from which on they are side by side if each is one piece of memory: a program has no condition, and where the
second part begins at no vector, it alone is shifted (`shifted.py`). One loop in rows of 4801 float16 took 7 µs for 6 MB
(H200). So it is if one is permuted: its own loop is of square tiles, where in one loop for both it is read a sector for
each element (H200, two of 26 MB: 59.6 µs, torch.compile 42)."""

MOST: Final = 64
"""The most parts: each is a function of its own in the kernel's text, and takes time to compile."""

LEAST_RUN: Final = 128
"""Bytes of a part between two others, at least: a line of memory. Elements of shorter ones choose where they are read
(`chosen_parts.py`). Where that is not possible, shorter ones are written by one program together, but for those of
`MANY` parts, and of parts of which one is permuted (H200: eight parts of 32 bytes 15.3 µs, in one loop 28.3; eight of
36, of which two are permuted, 24.7 and 63.9; but three of 64 23.5 and 20.7)."""

SECTOR: Final = 32
"""Bytes that memory is written in: of what is a part of it, both halves are written alone."""

SHORTEST_RUN: Final = 16
"""The same of `MANY` parts of two-byte elements, which come one by one in one loop: those parts have their programs in
turn, so that what each writes of a sector meets in the L2. (Reckoned: 64 MB of eight parts of 46 bytes are 33 µs of
instructions in one loop, and 9 in programs of their own; of 24 bytes of float32 12.8 µs and 14.4.)"""

MANY: Final = 6
"""Parts from which on one loop has more loads and choices for an element than programs of their own cost."""


def emit_concatenation(group: Group, gpu: GpuModel) -> KernelSource | None:
    """The kernel of a loop that concatenates, with its parts side by side; None where one loop is better."""
    if not _only_concatenates(group):
        return None
    whole = group.outputs[0]
    concat, found = stored_as(whole), _slices(whole)
    if not _are_runs(whole) and min(map(_run, found), default=LEAST_RUN) < LEAST_RUN:
        axis, inner = concat["axis"], prod(concat.shape[concat["axis"] + 1:])
        parts = [(inner * x.part.shape[axis], _member(group, x)) for x in found]
        chosen = emit_chosen_parts(group, whole, inner * concat.shape[axis], parts)
        if chosen is not None:
            return chosen
    if not _apart(whole, found):
        return None
    share = replace(gpu, multiprocessors=max(1, gpu.multiprocessors // len(found)))  # what a part has of the GPU
    return put_beside([_written_to(whole, loop_parts(_member(group, x), gpu=share)) for x in found], kernel_name(group),
                      in_turn=not _are_runs(whole))


def _apart(whole: Node, found: Sequence[Slice]) -> bool:
    """Whether parts have programs of their own."""
    turned = any(_is_turned(x.part) for x in found)
    fewest = FEWEST_RUNS if _are_runs(whole) or turned else FEWEST
    return fewest <= len(found) <= MOST and all(_run(x) >= _least_run(x, turned, len(found)) for x in found)


def _least_run(found: Slice, turned: bool, parts: int) -> int:
    """Bytes that a part has side by side at least, where each part has programs of its own."""
    if parts >= MANY:
        return 0 if turned else SECTOR if found.part.dtype.itemsize > 2 else SHORTEST_RUN
    return SECTOR if turned else LEAST_RUN


def _only_concatenates(group: Group) -> bool:
    """Whether a group's loop has one result, in memory of its own, which is nothing but a concatenation."""
    plain = len(group.outputs) == 1 and not (group.slices or group.starts_from)
    return plain and all(kind == "x" for _, kind in group.space) and stored_as(group.outputs[0]).op is movement.concat


def _slices(whole: Node) -> list[Slice]:
    """The parts that a value concatenates, and where each lies in it."""
    concat = stored_as(whole)
    axis, found, start = concat["axis"], [], 0
    for x in concat.inputs:
        if x.type.numel:
            point = list(unflatten(variable("e", x.type.numel), x.shape))
            point[axis] = offset(point[axis], start)
            found.append(Slice(x, whole, flatten(point, concat.shape)))
        start += x.shape[axis]
    return found


def _are_runs(whole: Node) -> bool:
    """Whether each part is one piece of memory in the whole."""
    concat = stored_as(whole)
    return all(size == 1 for size in concat.shape[:concat["axis"]])


def _is_turned(part: Node) -> bool:
    """Whether a part is a view of what lies in another order."""
    while part.op.kind == "movement" and len(part.inputs) == 1:
        if part.op is movement.permute:
            return True
        part = part.inputs[0]
    return False


def _run(found: Slice) -> int:
    """Bytes of a part that lie side by side in the whole, about."""
    axis = stored_as(found.whole)["axis"]
    return prod(map(about, found.part.shape[axis:])) * found.part.dtype.itemsize


def _member(group: Group, found: Slice) -> Group:
    """The loop that makes one part."""
    memory = {stored_as(x): x for x in group.inputs}
    needed = _needed(found.part, memory)
    inputs = tuple(x for x in group.inputs if stored_as(x) in needed)
    nodes = tuple(x for x in group.nodes if x in needed and stored_as(x) not in memory) or (found.part,)
    return replace(group, nodes=nodes, inputs=inputs, outputs=(found.part,), slices=(found,),
                   space=((found.part.type.numel, "x"),))


def _needed(node: Node, memory: Container[Node]) -> set[Node]:
    """What a node is computed from, itself too, down to values in memory."""
    found: set[Node] = set()
    pending = [node]
    while pending:
        x = pending.pop()
        if stored_as(x) in memory:
            found.add(stored_as(x))
        elif x not in found:
            found.add(x)
            pending += x.inputs
    return found


def _written_to(whole: Node, parts: LoopParts) -> LoopParts:
    """The loop, with the memory of the whole as what it writes to."""
    names = [name for name, kind in parts.source.signature.items() if kind != "constexpr"]
    args = tuple([whole if name.startswith("out") else x for name, x in zip(names, parts.source.args, strict=True)])
    return replace(parts, source=replace(parts.source, args=args))
