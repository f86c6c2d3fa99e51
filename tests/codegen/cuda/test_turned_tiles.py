"""Transposes of many axes: which axes a tile takes in which order, what it touches of memory, and every value."""

from __future__ import annotations

import itertools
from random import Random

import numpy
import pytest
import torch

import genesis
from genesis.codegen.cuda import turned_tiles
from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Store
from genesis.codegen.cuda.tiles import tile
from genesis.engine.backends import FakeCUDABackend
from genesis.ir import DType, Graph, Node
from genesis.ir.ops import movement
from genesis.ir.size_trace import Trace
from genesis.ir.types import bfloat16, float16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.index_map import Expr
from genesis.passes.groups import Group
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.machine_code import instructions
from tests.codegen.cuda.programs import an_input, check, inputs
from tests.codegen.cuda.run_interpreted import compile_cubin

SECTOR = 32


def turned(shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType, more: int = 0) -> tuple[Node, Node]:
    """An input, of rows that are `more` longer, and twice what is permuted of it."""
    x = an_input(0, (*shape[:-1], shape[-1] + more), dtype)
    part = movement.slice(x, starts=(0,) * len(shape), stops=shape, steps=(1,) * len(shape)) if more else x
    return x, movement.permute(part, axes=axes) * 2.0


def group_of(*nodes: Node) -> Group:
    """The one group of a program of its inputs, then its result."""
    group, = fuse(Graph(nodes[:-1], nodes[-1:])).groups
    return group


def blocks_of(group: Group) -> tuple[Kernel, Blocks]:
    """The kernel in tiles, and its blocks."""
    found = tile(group, build(group), H200)
    assert found is not None
    return found


def values(e: Expr, places: dict[str, numpy.ndarray]) -> numpy.ndarray:
    """An index expression at places of coordinates."""
    found = numpy.full(numpy.broadcast_shapes(*(x.shape for x in places.values())), e.constant, numpy.int64)
    for atom, k in e.terms:
        inner = places[atom.name] if atom.inner is None else values(atom.inner, places)
        found = found + k * (inner // atom.number if atom.kind == "div" else
                             inner % atom.number if atom.kind == "mod" else inner)
    return found


def sectors(kernel: Kernel, blocks: Blocks, wanted: type) -> float:
    """Bytes of sectors that tiles touch with each of their loads (or stores) together, by bytes that they want."""
    random, touched, bytes_wanted = Random(0), 0, 0
    dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
    for _ in range(20):
        x = random.randrange(-(-kernel.x_size // blocks.x)) * blocks.x + numpy.arange(blocks.x)[:, None]
        r = random.randrange(-(-kernel.r_size // blocks.r)) * blocks.r + numpy.arange(blocks.r)[None, :]
        inside = (x < kernel.x_size) & (r < kernel.r_size)
        for s in kernel.statements:
            if isinstance(s, wanted):
                at = values(s.address, {"x": x, "r": r})[inside] * dtypes[s.argument].itemsize  # type: ignore[attr-defined]
                touched += len(numpy.unique(at // SECTOR)) * SECTOR
                bytes_wanted += at.size * dtypes[s.argument].itemsize  # type: ignore[attr-defined]
    return touched / bytes_wanted


CLIFFS = [((176, 56, 57, 7), (3, 1, 2, 0), float32, 0), ((344, 1024, 8, 5), (3, 2, 0, 1), float32, 0),
          ((547, 182, 3, 5, 5), (0, 2, 4, 1, 3), bfloat16, 0), ((19, 32, 90, 355, 2), (4, 0, 3, 2, 1), bfloat16, 0),
          ((104, 22, 80, 79, 3), (0, 4, 1, 3, 2), float16, 0), ((951, 13, 338, 6), (0, 3, 2, 1), bfloat16, 3),
          ((6, 56, 8, 512, 2), (2, 4, 0, 3, 1), float32, 1), ((986, 233, 7), (2, 0, 1), float32, 0)]
"""Shapes, orders, dtypes and elements by which rows are longer: tiles in the result's order touched 3 to 16 times what
they wanted."""


@pytest.mark.parametrize(("shape", "axes", "dtype", "more"), CLIFFS)
def test_a_tile_touches_little_more_of_memory_than_it_wants(shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType,
                                                            more: int) -> None:
    x, y = turned(shape, axes, dtype, more)
    kernel, blocks = blocks_of(group_of(x, y))
    assert sectors(kernel, blocks, Load) < 1.7 * (shape[-1] + more) / shape[-1]
    assert sectors(kernel, blocks, Store) < 1.7


def test_rows_are_counted_in_the_order_of_the_operand_that_is_turned() -> None:
    x, y = turned((176, 56, 57, 7), (3, 1, 2, 0), float32)
    kernel, blocks = blocks_of(group_of(x, y))
    [load], [store] = kernel.loads("xr"), [s for s in kernel.statements if isinstance(s, Store)]
    assert str(load.address) == "r*22344 + x"
    assert str(store.address) == "r + x%7*561792 + x//7*176"
    assert min(blocks.x, blocks.r) >= 32


def test_two_axes_are_what_they_were() -> None:
    """What has one order and one number of columns keeps the tiles that were measured."""
    x, y = turned((4096, 4096), (1, 0), bfloat16)
    kernel, blocks = blocks_of(group_of(x, y))
    assert (blocks.x, blocks.r) == (128, 128) and str(kernel.loads("xr")[0].address) == "r*4096 + x"


def test_a_batch_of_transposes_is_loaded_in_vectors() -> None:
    """Rows of all batches are counted by one coordinate, whose mask cut vectors off: 64 loads of two bytes a thread
    where there are eight of 16 (sm_90)."""
    x, y = turned((200, 32, 28, 304), (0, 3, 2, 1), bfloat16)
    source = emit(group_of(x, y))
    assert "x_size" in source.aligned
    loads = [line for _, line in instructions(compile_cubin(source)) if "LDG.E" in line]
    assert loads and all("LDG.E.128" in line for line in loads)


def test_rows_that_are_flipped_are_not_cut_into_sectors() -> None:
    """Blocks of 16 are the largest that idle little in rows of 68: 7.5 µs for 14 MB (H200; torch.compile 4.7)."""
    x = an_input(0, (2419, 21, 68), float16)
    kernel, blocks = blocks_of(group_of(x, movement.flip(x, axes=(1,))))
    assert blocks.r >= 256 and sectors(kernel, blocks, Load) < 1.1 and sectors(kernel, blocks, Store) < 1.1


@pytest.mark.parametrize("axes", [(1,), (0, 1), (0,)])
def test_values_of_flips(axes: tuple[int, ...]) -> None:
    x, = inputs((9, 21, 68), dtype=float16)
    check([x], movement.flip(x, axes=axes))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best tile is taken, however good the usual one is."""
    monkeypatch.setattr(turned_tiles, "BETTER", float("inf"))
    monkeypatch.setattr(turned_tiles, "GOOD", float("inf"))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("axes", [axes for axes in itertools.permutations(range(4)) if axes[-1] != 3])
def test_values_in_every_order_of_four_axes(axes: tuple[int, ...]) -> None:
    x = an_input(0, (3, 20, 5, 6))
    part = movement.slice(x, starts=(0,) * 4, stops=(3, 20, 5, 5), steps=(1,) * 4)
    y = movement.permute(part, axes=axes)
    other = an_input(1, y.shape)
    check([x, other], y - other)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", range(12))
def test_values_of_drawn_permutes(seed: int) -> None:
    random = Random(seed)
    shape = tuple(random.choice((1, 2, 3, 5, 7, 8, 16, 29)) for _ in range(random.choice((3, 4, 5))))
    axes = tuple(random.sample(range(len(shape)), len(shape)))
    x, y = turned(shape, axes, random.choice((float32, bfloat16)), random.choice((0, 1, 3)))
    check([x], y)


@pytest.mark.usefixtures("always")
def test_a_reordered_tile_compiles() -> None:
    x, y = turned((17, 6, 57, 7), (3, 1, 2, 0), float32)
    source = emit(group_of(x, y))
    assert "RBLOCK" in source.constexprs and compile_cubin(source)


def test_a_broadcast_alone_is_not_turned() -> None:
    x, row = inputs((640, 1000), (640, 1))
    y = x * movement.expand(row, shape=(640, 1000))
    group = group_of(x, row, y)
    assert turned_tiles.axes_of(build(group)) is None or turned_tiles.turned_tile(
        build(group), build(group), None, 4096, H200) is None


def test_a_first_size_that_is_an_argument_is_a_tile_s_row() -> None:
    """Programs are captured with a symbol for the first size."""
    with Trace(N=176, M=56, K=57, L=7) as trace:
        trace.literals = frozenset("MKL")
        x = an_input(0, tuple(trace.symbol(name) for name in "NMKL"), float32)
        source = emit(group_of(x, movement.permute(x, axes=(3, 1, 2, 0)) * 2.0))
    assert "in0 + (r * 22344 + x)" in source.source and "(x % 7) * size" in source.source
    moved = [line for _, line in instructions(compile_cubin(source)) if "STG.E" in line or "LDG.E" in line]
    assert moved and all("G.E.128" in line for line in moved)


@pytest.mark.parametrize(("size", "block"), [(14, 16), (7, 8), (5, 8), (20, 32)])
def test_few_columns_that_are_an_argument_are_one_block(size: int, block: int) -> None:
    """Of 14 columns blocks of 8 stored 16 bytes at a time, and 12."""
    with Trace(N=size, M=1 << 18) as trace:
        trace.literals = frozenset("M")
        x = an_input(0, (trace.symbol("N"), trace.symbol("M")), bfloat16)
        _, blocks = blocks_of(group_of(x, movement.permute(x, axes=(1, 0)) * 2.0))
    assert blocks.r == block


@pytest.mark.usefixtures("always")
def test_sizes_that_change_have_right_values() -> None:
    """On a pretended GPU: one program for each order of axes, first sizes of one class and of others."""
    generator = torch.Generator().manual_seed(0)
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 24)):
        for first in (5, 7, 14, 20, 24, 37):
            data = torch.randn((first, 6, 9, 5), generator=generator)
            for axes in ((3, 1, 2, 0), (0, 3, 1, 2), (2, 0, 3, 1), (1, 3, 2, 0)):
                x = genesis.tensor(data.tolist(), device="cuda")
                y = (x[..., :4] * 2).permute(*axes).contiguous()
                assert torch.equal(torch.tensor(y.tolist()), (data[..., :4] * 2).permute(*axes)), (first, axes)
