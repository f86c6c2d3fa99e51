"""Matrix products, scans, and writes through an index."""

from __future__ import annotations

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.ir import OPS, Graph
from genesis.ir.ops import leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.types import bfloat16, dtype_named, float32, float64, int32, int64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed, torch_dtype
from tests.codegen.cuda.programs import GPU, an_input, check, inputs, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.sweeping import by_default, each_value

SIZES = [((), 5, 7, 3), ((), 33, 40, 17), ((2, 3), 4, 5, 6), ((), 1, 1, 1), ((2,), 0, 3, 4), ((2,), 3, 0, 4),
         ((), 70, 3, 70)]


@pytest.mark.parametrize(("batch", "rows", "depth", "columns"), SIZES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8"])
def test_matmul(batch: tuple[int, ...], rows: int, depth: int, columns: int, dtype: str) -> None:
    a = an_input(0, (*batch, rows, depth), dtype_named(dtype))
    b = an_input(1, (*batch, depth, columns), dtype_named(dtype))
    check([a, b], matmul(a, b))


def test_a_transposed_operand_is_read_where_it_lies() -> None:
    x, weight = inputs((5, 7), (3, 7))
    schedule = check([x, weight], matmul(x, swap_last(weight)))
    assert kinds(schedule) == ["matmul"]


def test_heads_and_slices_are_read_where_they_lie() -> None:
    """Attention of a packed projection: q, k, v are slices of one tensor, split into heads."""
    packed, weight = inputs((2, 4, 3 * 6), (5, 6))
    parts = []
    for i in range(3):
        part = movement.slice(packed, starts=(0, 0, 6 * i), stops=(2, 4, 6 * i + 6), steps=(1, 1, 1))
        parts.append(movement.permute(movement.reshape(part, shape=(2, 4, 2, 3)), axes=(0, 2, 1, 3)))
    q, k, v = parts
    out = matmul(matmul(q, swap_last(k)), v)
    joined = movement.reshape(movement.permute(out, axes=(0, 2, 1, 3)), shape=(8, 6))
    schedule = check([packed, weight], matmul(joined, swap_last(weight)))
    assert kinds(schedule) == ["matmul"] * 3


def test_an_operand_that_is_computed_is_stored_first() -> None:
    x, y = inputs((4, 5), (5, 6))
    schedule = check([x, y], matmul(p.exp(x), movement.flip(y, axes=(0,))))
    assert kinds(schedule)[-1] == "matmul" and len(schedule.groups) == 2


def test_flat_products_keep_every_multiprocessor_busy() -> None:
    """Few rows: the time is that of reading the other matrix, which all have to take part in."""
    def programs(rows: int, columns: int) -> int:
        a, b = inputs((rows, 1024), (1024, columns), dtype=bfloat16)
        return emit(fuse(Graph((a, b), (matmul(a, b),))).groups[0]).grid[0]
    assert [programs(64, columns) for columns in (1024, 2048, 3072)] == [64, 128, 96]
    assert programs(256, 1020) == 64, "larger products keep their tiles, by pointers of 64 × 64"


def test_a_broadcast_batch_is_not_copied() -> None:
    x, weight = inputs((3, 4, 5), (1, 5, 6))
    assert kinds(check([x, weight], matmul(x, movement.expand(weight, shape=(3, 5, 6))))) == ["matmul"]


@by_default("dtype0", "dtype1", "dtype2")
@pytest.mark.parametrize("dtype", [float32, bfloat16, float64, int64, int32])
def test_matmul_compiles_for_hopper(dtype) -> None:
    a, b = inputs((1024, 768), (768, 768), dtype=dtype)
    kernel = emit(fuse(Graph((a, b), (matmul(a, swap_last(b)),))).groups[0])
    assert ('input_precision="ieee"' in kernel.readable) == ("tl.dot_fma" in kernel.source) == (dtype is float32)
    assert compile_cubin(kernel)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64", "uint8", "int8"])
@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((3, 4, 5), 1), ((3, 4, 5), 2), ((3, 4, 5), 0), ((2, 0), 1),
                                             ((1, 1), 0), ((3, 70), 1), ((70, 3), 0), ((0, 4), 1)])
@pytest.mark.parametrize("op", [r.cumsum, r.cumprod])
def test_scans(op, shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x = an_input(0, shape, dtype_named(dtype))
    data = some(x) if op is r.cumsum else some(x).clamp(0, 2)
    check([x], op(x, axis=axis), data=[data], tolerance=2e-2 if dtype == "bfloat16" else 1e-4)


def test_a_scan_longer_than_a_block_carries_on() -> None:
    x, = inputs((2, 2100))
    check([x], r.cumsum(x, axis=1), tolerance=1e-4)
    check([x], r.cumsum(x, axis=1), data=[torch.ones(2, 2100)], tolerance=0)


def test_a_scan_computes_what_only_it_reads() -> None:
    x, = inputs((3, 9))
    assert kinds(check([x], p.exp(r.cumsum(p.sin(x), axis=1)))) == ["scan", "loop"]


ROWS = [((7, 5), 0, (4,)), ((3, 7, 5), 1, (2, 3)), ((3, 7), 1, (6,)), ((7,), 0, (9,)), ((7, 5), 0, (0,)),
        ((1, 3), 0, (4,))]
ELEMENTS = [((7, 5), 0, (4, 3)), ((3, 7, 5), 1, (3, 9, 2)), ((3, 7), 1, (3, 1)), ((7,), 0, (9,)), ((7, 5), 0, (0, 5))]


@each_value
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize(("name", "shape", "axis", "where"),
                         [(name, *case) for name in ("index_add", "index_copy") for case in ROWS]
                         + [(name, *case) for name in ("scatter_add", "scatter") for case in ELEMENTS])
def test_writes_through_an_index(name: str, shape: tuple[int, ...], axis: int, where: tuple[int, ...],
                                 dtype: str) -> None:
    if dtype == "bool" and name.endswith("add"):
        pytest.skip("addition is not defined")
    by_row = name.startswith("index")
    base = an_input(0, shape, dtype_named(dtype))
    index = an_input(1, where, int64)
    source = an_input(2, shape[:axis] + where + shape[axis + 1:] if by_row else where, dtype_named(dtype))
    data = [some(base), torch.randint(0, shape[axis], where), some(source)]
    check([base, index, source], OPS[name](base, index, source, axis=axis), data=data)
    zeros = leaves.full(shape, 0, dtype_named(dtype), GPU)
    check([base, index, source], OPS[name](zeros, index, source, axis=axis), data=data)


def test_equal_indices_add_up_in_order_and_the_last_wins() -> None:
    index = torch.tensor([2, 0, 2, 2])
    source = torch.tensor([[1e8], [5.0], [1.0], [-1e8]])
    base, i, s = an_input(0, (3, 1)), an_input(1, (4,), int64), an_input(2, (4, 1))
    data = [torch.zeros(3, 1), index, source]
    added = fuse(decomposed(Graph((base, i, s), (OPS["index_add"](base, i, s, axis=0),))))
    assert kinds(added) == ["scatter"]
    found, = run_schedule(added, data)
    assert found.tolist() == [[5.0], [0.0], [0.0]]  # in another order, or in float64, 1e8 + 1 - 1e8 is 1
    check([base, i, s], OPS["index_copy"](base, i, s, axis=0), data=data, tolerance=0)


@pytest.mark.parametrize("name", ["index_add", "scatter_add"])
def test_scatters_compile_for_hopper(name: str) -> None:
    where = (16384,) if name == "index_add" else (16384, 768)
    source, index = an_input(0, (16384, 768), bfloat16), an_input(1, where, int64)
    out = OPS[name](leaves.full((50257, 768), 0, bfloat16, GPU), index, source, axis=0)
    schedule = fuse(Graph((source, index), (out,)))
    assert compile_cubin(emit(schedule.groups[-1]))


def test_take_and_gather_are_read_inside_a_loop() -> None:
    table, i, j = an_input(0, (9, 4)), an_input(1, (2, 3), int32), an_input(2, (3, 4), int64)
    rows = OPS["take"](table, i, axis=0)
    picked = OPS["gather"](table, j, axis=0)
    data = [some(table), torch.randint(0, 9, (2, 3)).to(torch.int32), torch.randint(0, 9, (3, 4))]
    schedule = check([table, i, j], rows * 2.0 + movement.expand(p.exp(picked), shape=(2, 3, 4)), data=data)
    assert set(kinds(schedule)) == {"loop"} and torch_dtype(i.dtype) is torch.int32


def test_an_index_out_of_range_reads_no_foreign_memory() -> None:
    table, i = an_input(0, (3, 2)), an_input(1, (2,), int64)
    schedule = fuse(Graph((table, i), (OPS["take"](table, i, axis=0) * 1.0,)))
    data = torch.arange(6.0).reshape(3, 2)
    found, = run_schedule(schedule, [data, torch.tensor([10**12, -5])])
    assert found.tolist() == [[4.0, 5.0], [0.0, 1.0]]
