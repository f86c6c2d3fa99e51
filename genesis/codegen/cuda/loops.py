"""Loop groups → kernels.

How many elements are kept, and how many are reduced when these lie outermost, are arguments of a kernel. So the
batch size is not in its text: another one of the same class (1, a multiple of 16, other; 64 bits or 32; a row of
`blocks.py`) runs the same kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from genesis.codegen.cuda.addresses import in_two_dimensions
from genesis.codegen.cuda.block_sizes import VECTOR, Blocks
from genesis.codegen.cuda.blocks import choose_blocks
from genesis.codegen.cuda.build_kernel import build, over
from genesis.codegen.cuda.carried import carry_lines
from genesis.codegen.cuda.emitter import Body
from genesis.codegen.cuda.gpu_model import H200, GpuModel
from genesis.codegen.cuda.held_columns import held_columns
from genesis.codegen.cuda.kernel_ir import Argument, Kernel, Load
from genesis.codegen.cuda.last_programs import alternatives, branches, last_apart
from genesis.codegen.cuda.lowerings import POINTER
from genesis.codegen.cuda.naming import kernel_name
from genesis.codegen.cuda.packed_rows import PackedRows
from genesis.codegen.cuda.prefetch import next_row_lines, prefetch_lines
from genesis.codegen.cuda.prelude import prelude_for
from genesis.codegen.cuda.reduction_loops import Program
from genesis.codegen.cuda.row_edges import ask_for_vectors, block_lines, start_lines
from genesis.codegen.cuda.rows_across import reserved_bytes, rows_across
from genesis.codegen.cuda.rows_across import start_lines as shared_lines
from genesis.codegen.cuda.shifted import is_shifted, neighbours_of
from genesis.codegen.cuda.source import HEADER, RELEASE, WAIT, From, KernelSource
from genesis.codegen.cuda.starts import with_starts
from genesis.codegen.cuda.tiles import tile
from genesis.codegen.cuda.unrolled import build_unrolled, unrolled
from genesis.ir.node import Node
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import as_written
from genesis.ir.types import int64
from genesis.passes.fusion.index_map import Atom
from genesis.passes.groups import Group

INT32_LIMIT: Final = 2**31

BEHIND: Final = 1 << 24
"""Positions behind the last element that a kernel counts to, at most: the lanes of its last block, or of a block that a
loop of programs comes to when it ends. With the sign that they get beyond 32 bits they would pass for the first."""

WINDOW_BYTES: Final = 4
"""Bytes of neighbouring results of windows that a thread has: all lanes of a warp together read a line of memory."""


@dataclass(frozen=True)
class LoopParts:
    """A loop group's kernel before it is put together, alone or beside others (`side_by_side.py`).

    Attributes:
        source: all but the module's text.
        before: the lines that do not wait for the kernels before.
        lines: the others.
        words: bytes of shared memory that its rows go through (`rows_across.py`).
    """

    source: KernelSource
    before: list[str]
    lines: list[str]
    words: int = 0


def emit_loop(group: Group, blocks: Blocks | None = None, gpu: GpuModel = H200) -> KernelSource:
    """The kernel of a loop group; `blocks` overrides the choice of block sizes."""
    parts = loop_parts(group, blocks, gpu)
    source = parts.source
    return replace(source, source=module(source.name, source.signature, parts.lines, before=parts.before))


def loop_parts(group: Group, blocks: Blocks | None = None, gpu: GpuModel = H200) -> LoopParts:
    """What the kernel of a loop group is put together from."""
    kernel = build(group)
    ask_for_vectors(kernel)
    if blocks is None:
        blocks = rows_across(kernel, gpu)
    if blocks is None:
        windows = unrolled(group, kernel)
        kernel = windows or kernel
        count = 1 if windows is None or windows.column is None else windows.column.count
        remake = over if windows is None else partial(build_unrolled, count=count)
        kernel, blocks = tile(group, kernel, gpu, remake) or (
            kernel, held_columns(kernel, choose_blocks(kernel, gpu), gpu))
    index64 = needs_int64(kernel) or any_needs_int64(*(x.whole.type.numel for x in group.slices))
    kernel, starts = with_starts(kernel)
    pointers = {argument.name: POINTER[argument.node.dtype.name] for argument in kernel.arguments}
    body: Body = PackedRows(kernel, blocks, index64) if blocks.packed else Program(kernel, blocks, index64)
    lines = [*next_row_lines(kernel, blocks, gpu), *_lines(body)]
    name = kernel_name(group)
    constexprs = {"XBLOCK": blocks.x, **({"RBLOCK": blocks.r} if kernel.has_r else {})}
    sizes = {"x_size": kernel.x_size, **({"r_size": kernel.r_size} if body.r_size == "r_size" else {})}
    signature = {**pointers, **{size: integer_type(value) for size, value in sizes.items()},
                 **dict.fromkeys(constexprs, "constexpr")}
    aligned = [argument.name for argument in kernel.arguments if argument.role != "number"]
    along = {"x"} if blocks.packed else _read_along(kernel)
    bounds = {size: value for size, value in sizes.items() if size.removesuffix("_size") in along}
    aligned += multiples_of_16(bounds)
    empty = not kernel.x_size or all(node.type.numel == 0 for node in group.outputs)
    source = KernelSource(
        name, "", signature, constexprs, (*(_memory(x, starts) for x in kernel.arguments), *sizes.values()),
        tuple(aligned), (0, 1, 1) if empty else _grid(body), blocks.num_warps, label=name,
        eights=tuple(multiples_of_8(bounds)), lesser=lesser_divisors(bounds))
    words = reserved_bytes(kernel, blocks) if blocks.across else 0
    return LoopParts(source, prefetch_lines(kernel, blocks, gpu), lines, words)


def _memory(argument: Argument, starts: dict[str, int]) -> Node | From:
    """What the kernel is given for an argument, of which it reads nothing before the start."""
    return From(argument.node, starts[argument.name]) if argument.name in starts else argument.node


def _lines(body: Body) -> list[str]:
    """The kernel's lines."""
    if isinstance(body, PackedRows):
        return body.program_lines()
    assert isinstance(body, Program)
    if is_shifted(body.shift):
        near, x, *masked = [*_x_lines(body), *body.lines()]
        whole = Program(body.kernel, body.blocks, body.index_type is int64, whole=True)
        inside = f"({body.first} >= {body.shift}) & (x_size + {body.shift} - {body.first} >= XBLOCK)"
        return [near, x, *alternatives(inside, whole.lines(), masked)]
    lines = [*_x_lines(body), *_r_lines(body), *_carry_lines(body), *body.lines()]
    if last_apart(body.kernel, body.blocks):
        first = 1 + ("near = " in lines[1])
        whole = Program(body.kernel, body.blocks, body.index_type is int64, whole=True)
        lines = [*lines[:first], *branches(body.first, whole.lines(), lines[first:])]
    return lines


def _read_along(kernel: Kernel) -> set[str]:
    """The coordinates that neighbours in memory differ in, whose bounds cut vectors off: the last, and others where a
    load runs across the rows."""
    last = kernel.space[-1][1] if kernel.has_r and kernel.space else "x"
    counted = [_coordinate(atom) for load in kernel.loads("xr") for atom, k in load.address.terms if k == 1]
    return {last, *(name for name in counted if name)}


def _coordinate(atom: Atom) -> str:
    """The coordinate that an atom counts up, or the remainder of which it is; "" if neither."""
    inner = atom.inner.terms[0][0] if atom.kind == "mod" and atom.inner is not None and atom.inner.is_atom else atom
    return inner.name if inner.kind == "var" else ""


def _grid(body: Body) -> tuple[int, int, int]:
    """A program for each block of x; several where they share r; one for each split of whole rows."""
    splits = body.kernel.splits
    if splits is not None and splits.over == "x":
        return splits.count, 1, 1
    if body.blocks.packed:
        return -(-body.kernel.x_size * body.kernel.r_size // body.blocks.packed), 1, 1
    blocks = -(-(body.kernel.x_size + body.shift) // (body.blocks.run or body.blocks.x))
    if in_two_dimensions(body.kernel, body.blocks):
        return body.tiles, blocks, 1
    return blocks * body.tiles, 1 if splits is None else splits.count, 1


def integer_type(value: int) -> str:
    """The type of a size as a kernel's argument: 64 bits only where they are needed. Where a row of a concatenation
    begins is counted back from its first part's end, and so may lie far below 0.

    >>> integer_type(2**31 - 1), integer_type(2**31), integer_type(-6_400_000_000)
    ('i32', 'i64', 'i64')
    """
    return "i32" if -INT32_LIMIT <= value < INT32_LIMIT else "i64"


def any_needs_int64(*sizes: int) -> bool:
    """Do positions in one of these sizes need 64 bits?"""
    return any(size >= INT32_LIMIT - BEHIND for size in sizes)  # which is the largest may depend on symbolic ones


def multiples_of_16(sizes: dict[str, int]) -> list[str]:
    """The sizes that a kernel may take for multiples of 16: with that it finds out which accesses are aligned."""
    return [size for size, value in sizes.items() if is_multiple(as_written(value), 16)]


def multiples_of_8(sizes: dict[str, int]) -> list[str]:
    """The others that it may take for multiples of 8: rows of 16-bit values are read in whole vectors there."""
    return [size for size, value in sizes.items()
            if is_multiple(as_written(value), 8) and not is_multiple(as_written(value), 16)]


def lesser_divisors(sizes: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The others, and the 4 or 2 that is known to divide each. Of 3100 columns a mask then leaves a thread's four
    together: without it 32-bit values that lie in whole vectors were loaded one by one.

    >>> lesser_divisors({"x_size": 3100, "r_size": 6600})
    (('x_size', 4),)
    """
    found = ((size, next((n for n in (8, 4, 2) if is_multiple(as_written(value), n)), 1))
             for size, value in sizes.items())
    return tuple((size, divisor) for size, divisor in found if divisor in (2, 4))


def module(name: str, signature: dict[str, str], lines: list[str], more: str = "", before: Sequence[str] = ()) -> str:
    """A module's text: the imports, the helpers that the lines use, the kernel. Lines `before` do not wait."""
    text = f"@triton.jit\ndef {name}({parameters_of(signature)}):\n"
    text += "".join(f"    {line}\n" for line in (*before, WAIT, RELEASE, *lines))
    return "\n\n".join(part.strip("\n") + "\n" for part in (HEADER, prelude_for(text + more), more, text) if part)


def parameters_of(signature: dict[str, str]) -> str:
    """A kernel's parameters as text.

    >>> parameters_of({"in0": "*fp32", "XBLOCK": "constexpr"})
    'in0, XBLOCK: tl.constexpr'
    """
    return ", ".join(f"{p}: tl.constexpr" if kind == "constexpr" else p for p, kind in signature.items())


def needs_int64(kernel: Kernel) -> bool:
    """Does some address or position exceed 32 bits?"""
    elements = [argument.node.type.numel for argument in kernel.arguments]
    return any_needs_int64(kernel.x_size * kernel.r_size, *elements)


def _x_lines(body: Program) -> list[str]:
    splits = body.kernel.splits
    if splits is not None and splits.over == "x":
        return []
    row = body.program_of_x
    program = "tl.program_id(0).to(tl.int64)" if body.index_type is int64 else "tl.program_id(0)"
    first = [f"program = {program}"] if row.startswith("program ") else []
    block = "tl.arange(0, XBLOCK)" + ("" if body.flat else "[None, :]" if body.blocks.across else "[:, None]")
    if body.blocks.run:
        inside = f"{block} < {body.blocks.run}"
        inside = f"({inside}) & (x < {body.x_size})" if body.blocks.across else inside
        return [f"x = {row} * {body.blocks.run} + {block}", f"x_mask = {inside}"]
    x = f"{row} * XBLOCK + {block}"
    if is_shifted(body.shift):
        return [f"near = {_neighbours(x, body)}", f"x = near - {body.shift}", "x_mask = (x >= 0) & (x < x_size)"]
    column = body.kernel.column
    below = [column.line(body.at(column.block, "x"))] if column is not None else []
    near = [f"near = {body.told(x, 'x')}"] if body.counts_near() else []
    mask = f"x_mask = x < {body.x_size}"
    lines = [*first, f"x = {_neighbours(x, body) if body.flat else x}", *near, *below, mask]
    return lines + start_lines(body.kernel.r_size, body.vector, _integer(body)) if body.vector else lines


def _neighbours(coordinate: str, body: Body) -> str:
    """The coordinate that neighbouring lanes differ in. Of pieces of memory that begin anywhere a thread has
    neighbours of one word (`shifted.py`). Of windows a thread has only as many neighbours as make
    `WINDOW_BYTES`: what it reads of them begins anywhere and comes one by one, each time of neighbours in all lanes.
    Shorter runs begin at multiples of less: Triton takes what it knows of a run's first element to hold for each.
    A block of rows says that there are neighbours at all, two at the least, and that they begin at multiples of one:
    of runs of one in both directions Triton has lanes go from row to row (H200: avg_pool2d 3 by 1 of 200 images of
    112 × 112 float32 19.6 µs, 8 by its instructions). Not so of taps that are whole rows, which are read in vectors."""
    if body.flat and (count := neighbours_of(body.kernel, body.shift)):
        return _counted(coordinate, count)
    if body.tells_of_r():
        return body.told(coordinate, "r")
    in_vectors = not body.flat and all(_in_rows_of_vectors(load) for load in body.kernel.loads("xr"))
    if not body.kernel.folds or in_vectors:
        return coordinate
    itemsize = min(argument.node.dtype.itemsize for argument in body.kernel.arguments if argument.role != "number")
    count = max(1, WINDOW_BYTES // itemsize)
    if body.flat:
        return _counted(coordinate, count)
    return f"tl.max_contiguous(tl.multiple_of({coordinate}, [1, {count}]), [1, {max(count, 2)}])"


def _counted(coordinate: str, count: int) -> str:
    """A flat loop's coordinate of which Triton is told that a thread has so many neighbours."""
    return f"tl.max_contiguous(tl.multiple_of({coordinate}, {count}), {count})"


def _in_rows_of_vectors(load: Load) -> bool:
    """Whether a load of a block of rows runs along r, in rows that begin at multiples of a vector."""
    elements = VECTOR // load.out.dtype.itemsize
    along = [atom for atom, k in load.address.terms if k == 1 and atom.kind == "var" and atom.name == "r"]
    return bool(along) and is_multiple(load.address.constant, elements) and all(
        atom is along[0] or is_multiple(k, elements) for atom, k in load.address.terms)


def _carry_lines(body: Program) -> list[str]:
    row = f"{body.program_of_row} * RBLOCK" if body.program_of_row else "0"
    return carry_lines(body.kernel, body.blocks, {"x": f"{body.program_of_x} * XBLOCK", "r": row})


def _integer(body: Body) -> str:
    return ".to(tl.int64)" if body.index_type is int64 else ""


def _r_lines(body: Body) -> list[str]:
    if body.flat or body.blocks.looped:
        return []
    if body.vector:
        return block_lines(body.kernel, body.blocks, body.r_size, body.vector, _integer(body))
    if body.blocks.across:
        lines = [f"r = tl.arange(0, RBLOCK)[:, None]{_integer(body)}", f"r_mask = r < {body.r_size}"]
        return [*lines, *shared_lines(body.kernel, body.blocks, _integer(body))]
    start = f"{body.program_of_row} * RBLOCK + " if body.program_of_row else ""
    r = f"{start}tl.arange(0, RBLOCK)[None, :]{_integer(body)}"
    lines = [f"r = {_neighbours(r, body)}"]
    return [*lines, f"r_mask = {body.inside_row()}"] if body.ragged_r else lines
