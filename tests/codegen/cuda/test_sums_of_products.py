"""Sums of products: one kernel whose loop goes from one pair of operands to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.source import KernelSource
from genesis.ir import Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops.contraction import matmul_sum, swap_last
from genesis.ir.types import bfloat16, float32, float64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.gluon_threads import run_gluon
from tests.codegen.cuda.programs import an_input, inputs, some
from tests.codegen.cuda.run_interpreted import _memory, compile_cubin, empty, run_source
from tests.codegen.cuda.test_attention import stack_bytes
from tests.codegen.cuda.test_streamed_matmul import FORMS, SHARED, SMALL, only_form  # noqa: F401
from tests.sweeping import by_default

DEPTHS = {"of one block and less": (64, 24), "of three unequal": (136, 72, 200), "first the less": (16, 192)}


def pairs(depths: tuple[int, ...], turned: tuple[bool, bool] = (False, False), rows: int = 264,
          columns: int = 400) -> tuple[tuple[Node, ...], Node]:
    """(operands, the sum of their products)."""
    shapes = [x for depth in depths for x in ((depth, rows) if turned[0] else (rows, depth),
                                              (columns, depth) if turned[1] else (depth, columns))]
    operands = inputs(*shapes, dtype=bfloat16)
    return operands, matmul_sum(*(swap_last(x) if turned[i % 2] else x for i, x in enumerate(operands)))


def check(operands: tuple[Node, ...], result: Node, want: Callable[..., torch.Tensor],
          run: Callable[..., None] = run_source) -> KernelSource:
    """One kernel, with the values of float64."""
    graph = decomposed(Graph(operands, (result,)))
    group, = fuse(graph, gpu=SMALL).groups
    kernel = emit(group, SMALL)
    data = [some(x) for x in operands]
    memory = {x: data[x["index"]].contiguous() for x in graph.nodes if x.op.name == "input"}
    memory |= {x: empty(x) for x in group.outputs}
    run(kernel, memory)
    value = want(*(x.double() for x in data))
    found = _memory(result, memory).reshape(value.shape).double()
    torch.testing.assert_close(found, value, rtol=0.005, atol=1e-4)
    return kernel


def total(turned: tuple[bool, bool]) -> Callable[..., torch.Tensor]:
    """What the sum is."""
    return lambda *given: sum((a.T if turned[0] else a) @ (b.T if turned[1] else b)
                              for a, b in zip(given[::2], given[1::2], strict=True))


@by_default("large-*-turned2", "turns-*-turned1", "small and shared-*-turned0")
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("depths", DEPTHS.values(), ids=DEPTHS)
@pytest.mark.parametrize("form", ["large", "turns", "small and shared"])
def test_products_are_summed_up_one_after_the_other(
        only_form: Callable[..., None], form: str, depths: tuple[int, ...],  # noqa: F811
        turned: tuple[bool, bool]) -> None:
    """Where a pair ends within a block, the rest of it is 0."""
    only_form(SHARED if form == "small and shared" else FORMS[form])
    kernel = check(*pairs(depths, turned), total(turned))
    assert kernel.name == "streamed_matmul_sum" and f"b{len(depths) - 1}_map" in kernel.signature


@pytest.mark.parametrize("form", FORMS)
def test_threads_wait_for_the_blocks_of_each_pair(only_form: Callable[..., None], form: str) -> None:  # noqa: F811
    only_form(replace(FORMS[form], tile=replace(FORMS[form].tile, j=128)))
    check(*pairs((136, 72, 200)), total((False, False)),
          lambda kernel, memory: run_gluon(kernel, memory, 7, launches=2))


def test_pairs_that_the_copy_engine_cannot_read_are_read_by_pointers() -> None:
    """Rows of 27 elements begin at odd places."""
    kernel = check(*pairs((64, 27, 40)), total((False, False)))
    assert kernel.name == "matmul_sum" and "depth2" in kernel.signature


def test_pairs_that_lie_unlike_are_read_by_pointers() -> None:
    a, b, c, d = inputs((264, 64), (64, 400), (264, 64), (400, 64), dtype=bfloat16)
    kernel = check((a, b, c, d), matmul_sum(a, b, c, swap_last(d)), lambda a, b, c, d: a @ b + c @ d.T)
    assert kernel.name == "matmul_sum"


def test_a_sum_has_an_epilogue() -> None:
    operands, result = pairs((64, 24))
    bias = an_input(4, (400,), bfloat16)
    kernel = check((*operands, bias), result + movement.expand(bias, shape=(264, 400)),
                   lambda *given: total((False, False))(*given[:-1]) + given[-1])
    assert kernel.name == "streamed_matmul_sum_add"


@pytest.mark.parametrize("depths", [(2048, 512, 512), (8192, 8192), (4096, 16)], ids=str)
def test_it_compiles_for_hopper_and_spills_nothing(depths: tuple[int, ...]) -> None:
    operands, result = pairs(depths, rows=8192, columns=2048)
    group, = fuse(decomposed(Graph(operands, (result,))), gpu=H200).groups
    kernel = emit(group)
    assert kernel.name == "streamed_matmul_sum" and stack_bytes(compile_cubin(kernel)) == 0


def test_float64_has_no_dot_instruction() -> None:
    """Blocks of 8 steps, which none takes: an H200 refused the kernel, where the interpreter had run it."""
    operands = inputs((20, 24), (24, 18), (20, 7), (7, 18), dtype=float64)
    kernel = check(operands, matmul_sum(*operands), total((False, False)))
    assert kernel.name == "matmul_sum" and compile_cubin(kernel)[:4] == b"\x7fELF"


@pytest.mark.parametrize("rows", [33, 264])
def test_float32_sums_have_the_products_of_all_pairs(rows: int) -> None:
    """What a GPU takes is run, not the text beside it that an interpreter takes: that was of the first pair alone."""
    operands = inputs((rows, 64), (64, 72), (rows, 24), (24, 72), dtype=float32)
    kernel = check(operands, matmul_sum(*operands), total((False, False)),
                   lambda kernel, memory: (run_gluon if "dot_fma" in kernel.source else run_source)(kernel, memory))
    assert kernel.name == "matmul_sum" and stack_bytes(compile_cubin(kernel)) == 0
