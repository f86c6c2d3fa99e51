"""What kernels ask the L2 for before they wait: blocks that lie in one piece, by as many programs as run at once."""

from __future__ import annotations

import pytest

from genesis.codegen.cuda import prefetch
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.prefetch import LEAST_PART, MOST_BYTES, WARPS
from genesis.codegen.cuda.source import RELEASE, WAIT, KernelSource
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops import movement
from genesis.ir.ops.norm import rms_norm
from genesis.ir.ops.softmax import softmax
from genesis.ir.types import DType, bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import check, inputs
from tests.codegen.cuda.test_machine_code import ptx_of


def kernel_of(operands: tuple[Node, ...], output: Node) -> KernelSource:
    """The one kernel of a program."""
    group, = fuse(decomposed(Graph(operands, (output,)))).groups
    return emit(group)


def normalized(columns: int, dtype: DType = bfloat16) -> KernelSource:
    """An RMS norm of 8192 rows, with weights."""
    x, weight = inputs((8192, columns), (columns,), dtype=dtype)
    return kernel_of((x, weight), rms_norm(x, weight, ndim=1, eps=1e-5))


def asked(kernel: KernelSource) -> list[str]:
    """The kernel's lines before its wait, which comes before all that reads or writes."""
    body = kernel.source.partition(f"def {kernel.name}(")[2].partition("):\n")[2]
    lines = [line.strip() for line in body.splitlines()]
    at = lines.index(WAIT)
    assert lines[at + 1] == RELEASE and not any("g_ask" in line for line in lines[at:])
    return lines[:at]


def test_a_program_asks_for_its_rows_and_one_for_the_weights() -> None:
    kernel = normalized(4096)
    rows = kernel.constexprs["XBLOCK"]
    first = H200.multiprocessors * WARPS // kernel.num_warps
    assert asked(kernel) == [
        f"g_ask(in0 + tl.program_id(0).to(tl.int64) * {rows * 4096}, "
        f"(tl.program_id(0) < {first}) & ((tl.program_id(0) + 1) * {rows} <= x_size), {rows * 4096 * 2})",
        "g_ask(in1, tl.program_id(0) == 0, 8192)"]


def test_a_flat_loop_asks_for_each_operand() -> None:
    a, b = inputs((1 << 22,), (1 << 22,))
    kernel = kernel_of((a, b), a * b)
    assert [line.partition(" ")[0] for line in asked(kernel)] == ["g_ask(in0", "g_ask(in1"]
    assert all(line.endswith(f", {4 * kernel.constexprs['XBLOCK']})") for line in asked(kernel))


def test_pieces_that_do_not_begin_at_16_bytes_or_are_large_are_not_asked_for() -> None:
    assert not asked(normalized(1001))
    wide = normalized(65536, float32)
    assert MOST_BYTES < 65536 * 4 and not asked(wide)
    x, = inputs((1 << 22,))
    shifted = movement.slice(x, starts=(1,), stops=(1 << 22,), steps=(1,))
    assert not asked(kernel_of((x,), shifted * 2.0))


def test_what_is_read_across_or_within_bounds_is_not_asked_for() -> None:
    x, = inputs((2048, 2048))
    assert not asked(kernel_of((x,), movement.permute(x, axes=(1, 0)) * 2.0))
    padded = movement.pad(x, low=(0, 0), high=(0, 2048))
    assert not asked(kernel_of((x,), padded * 2.0))


def test_small_operands_are_not_asked_for() -> None:
    a, b = inputs((1 << 20,), (1 << 20,))
    part, of = LEAST_PART
    assert H200.l2_bytes * part // of > 4 << 20 and not asked(kernel_of((a, b), a * b))


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_the_results_are_the_same(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "LEAST_PART", (0, 1))
    x, weight = inputs((rows, 256), (256,))
    schedule = check([x, weight], rms_norm(x, weight, ndim=1, eps=1e-5))
    assert asked(emit(schedule.groups[0]))


def test_the_machine_asks_before_it_waits() -> None:
    ptx = ptx_of(normalized(4096))
    assert 0 < ptx.index("cp.async.bulk.prefetch.L2.global") < ptx.index("griddepcontrol.wait") < ptx.index("ld.global")


def after_wait(kernel: KernelSource) -> list[str]:
    """What a kernel asks for behind its wait."""
    body = kernel.source.partition(f"def {kernel.name}(")[2].partition("):\n")[2]
    lines = [line.strip() for line in body.splitlines()]
    return [line for line in lines[lines.index(WAIT):] if line.startswith("g_ask")]


def softmaxed(rows: int, columns: int) -> KernelSource:
    """A softmax of rows."""
    x, = inputs((rows, columns), dtype=bfloat16)
    return kernel_of((x,), softmax(x, axis=1))


def test_rows_that_fill_a_multiprocessor_ask_for_the_next_one() -> None:
    """Of shorter rows a multiprocessor has several programs, one of which reads while others compute; longer ones are
    read again in loops."""
    kernel = softmaxed(4096, 50304)
    assert kernel.grid == (4096, 1, 1) and after_wait(kernel) == [
        "g_ask(in0 + (tl.program_id(0) + 132).to(tl.int64) * 50304, tl.program_id(0) + 132 < x_size, 100608)"]
    text = ptx_of(kernel)
    assert text.index("griddepcontrol.wait") < text.index("cp.async.bulk.prefetch.L2") < text.index("ld.global")
    for columns in (20000, 50257, 128256):
        assert not after_wait(softmaxed(4096, columns))


@pytest.mark.parametrize("rows", [2, 133])
def test_nothing_is_asked_for_behind_the_last_row(rows: int) -> None:
    """The last programs have none that comes next, and the values are what they are."""
    x, = inputs((rows, 40960), dtype=bfloat16)
    assert after_wait(softmaxed(rows, 40960))
    check([x], softmax(x, axis=1), tolerance=2 ** -8, most_programs=256)
