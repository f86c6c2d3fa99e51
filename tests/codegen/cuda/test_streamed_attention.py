"""Attention whose tiles the copy engine moves: numbers beside float64, operands as they lie, what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import genesis
from genesis import engine
from genesis.codegen.cuda.choice_table import Key, Row, Rows
from genesis.codegen.cuda.choices import deciding
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200, MODELS
from genesis.codegen.cuda.source import KernelSource, MatrixMap
from genesis.codegen.cuda.templates.attention import Attention
from genesis.codegen.cuda.templates.streamed_attention import parts_of, refusal
from genesis.ir import Node
from genesis.ir.ops import movement
from genesis.ir.ops.attention import sdpa, sdpa_backward
from genesis.ir.ops.control import item
from genesis.ir.ops.flash_attention import flash_attention
from genesis.ir.types import DType, bfloat16, bool_, float16, float32
from genesis.nn import functional as F
from genesis.passes.groups import Group
from genesis.runtime import plan
from tests.codegen.cuda.gluon_threads import run_gluon
from tests.codegen.cuda.programs import an_input, some
from tests.codegen.cuda.run_interpreted import compile_cubin, empty, run_source
from tests.codegen.cuda.test_attention import TOLERANCE, close, compiled
from tests.engine.symbolic.idle import counting
from tests.sweeping import by_default, each_value

SMALL = replace(H200, multiprocessors=2)
"""A GPU that two tiles keep busy, so that small attention is streamed."""


def heads(q: tuple[int, ...], k: tuple[int, ...], dtype: DType = bfloat16) -> tuple[Node, Node, Node]:
    """q, k and v of one head size."""
    return an_input(0, q, dtype), an_input(1, k, dtype), an_input(2, k, dtype)


def group_of(y: Node, operands: tuple[Node, ...]) -> Group:
    """The forward's group, of a program that wants y alone."""
    return next(group for group in compiled(y, operands=operands).groups if group.kind == "attention")


def wanted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool,
           scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """y and the log-sum-exp in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * scale
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def run_threads(group: Group, data: list[torch.Tensor], seed: int = 0,
                launches: int = 1) -> tuple[KernelSource, dict[str, torch.Tensor]]:
    """The kernel in Gluon, its groups of warps as threads."""
    kernel = emit(group, SMALL)
    memory = {x: data[x["index"]].contiguous() for x in group.inputs} | {x: empty(x) for x in group.outputs}
    run_gluon(kernel, memory, seed, launches)
    return kernel, {name: memory[x] for name, x in zip(("y", "lse"), group.outputs, strict=False)}


def run(group: Group, data: list[torch.Tensor]) -> tuple[KernelSource, dict[str, torch.Tensor]]:
    """The kernel for a small GPU, and its results."""
    kernel = emit(group, SMALL)
    memory = {x: data[x["index"]].contiguous() for x in group.inputs} | {x: empty(x) for x in group.outputs}
    run_source(kernel, memory)
    return kernel, {name: memory[x] for name, x in zip(("y", "lse"), group.outputs, strict=False)}


CASES = [
    # q, k and v, dtype
    ((1, 2, 130, 64), (1, 2, 200, 64), bfloat16), ((2, 1, 200, 64), (2, 1, 130, 64), float16),
    ((1, 1, 257, 128), (1, 1, 257, 128), bfloat16), ((1, 4, 128, 64), (1, 2, 128, 64), bfloat16),
    ((1, 1, 192, 80), (1, 1, 320, 80), float16), ((1, 1, 129, 256), (1, 1, 190, 256), bfloat16),
    ((1, 2, 150, 40), (1, 1, 150, 40), bfloat16), ((1, 1, 130, 96), (1, 1, 140, 96), bfloat16),
    ((1, 1, 128, 160), (1, 1, 192, 160), bfloat16),
]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("q", "k", "dtype"), CASES)
def test_forward(q: tuple[int, ...], k: tuple[int, ...], dtype: DType, causal: bool) -> None:
    operands, scale = heads(q, k, dtype), q[-1] ** -0.5
    data = [some(x) for x in operands]
    kernel, found = run(group_of(sdpa(*operands, causal=causal, scale=scale), operands), data)
    assert kernel.name == "streamed_attention"
    close(found["y"].reshape(q), wanted(*data, causal, scale)[0], TOLERANCE[dtype])


@each_value
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("q", "k", "dtype"), CASES)
def test_groups_of_warps_that_wait_for_each_other(q: tuple[int, ...], k: tuple[int, ...], dtype: DType,
                                                  causal: bool) -> None:
    """The text in Gluon, launched twice: the counters are left as they were found."""
    operands, scale = heads(q, k, dtype), q[-1] ** -0.5
    data = [some(x) for x in operands]
    _, found = run_threads(group_of(sdpa(*operands, causal=causal, scale=scale), operands), data, launches=2)
    close(found["y"].reshape(q), wanted(*data, causal, scale)[0], TOLERANCE[dtype])


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize(("q", "k"), [((2, 2, 130, 64), (2, 2, 200, 64)), ((1, 4, 128, 40), (1, 2, 128, 40)),
                                      ((2, 3, 129, 256), (2, 3, 190, 256))])
def test_heads_beside_each_other(q: tuple[int, ...], k: tuple[int, ...], threads: bool) -> None:
    """The result lies token by token, as a product reads it."""
    operands = heads(q, k)
    data = [some(x) for x in operands]
    y = item(flash_attention(*operands, causal=False, scale=0.2, beside=True), index=0)
    kernel, found = (run_threads if threads else run)(group_of(y, operands), data)
    assert kernel.name == "streamed_attention" and y.shape == (q[0], q[2], q[1], q[3])
    close(found["y"], wanted(*data, False, 0.2)[0].transpose(1, 2), TOLERANCE[bfloat16])


@pytest.mark.parametrize("line", ["mbarrier.wait(k_full.index(old)", "mbarrier.wait(v_full.index(old)",
                                  "mbarrier.wait(q_empty.index(group)", "mbarrier.arrive(v_empty.index(old)",
                                  "tma.store_wait(0)", "tl.atomic_xchg(counters, 0)"])
def test_a_line_that_is_missing_is_seen(line: str) -> None:
    """What the threads would not see they would not prove."""
    operands = heads((1, 1, 300, 64), (1, 1, 700, 64))
    data = [some(x) for x in operands]
    group = group_of(sdpa(*operands, causal=True, scale=0.125), operands)
    kernel, want = emit(group, SMALL), wanted(*data, True, 0.125)[0]
    left_out = replace(kernel, source="\n".join(
        re.sub(r"\S.*", "None", x) if line in x else x for x in kernel.source.splitlines()))
    for seed in range(10):
        memory = {x: data[x["index"]] for x in group.inputs} | {x: empty(x) for x in group.outputs}
        try:
            run_gluon(left_out, memory, seed)
            close(memory[group.outputs[0]], want, TOLERANCE[bfloat16])
        except AssertionError:
            return
    pytest.fail("nothing was seen")


def test_the_log_sum_exp_that_the_backward_reads() -> None:
    operands, g = heads((1, 2, 140, 64), (1, 2, 140, 64)), an_input(3, (1, 2, 140, 64), bfloat16)
    y = sdpa(*operands, causal=True, scale=0.3)
    back = sdpa_backward(g, *operands, y, causal=True, scale=0.3)
    schedule = compiled(y, *(item(back, index=i) for i in range(3)), operands=(*operands, g))
    data = [some(x) for x in operands]
    _, found = run(next(group for group in schedule.groups if group.kind == "attention"), data)
    y64, lse = wanted(*data, True, 0.3)
    close(found["y"].reshape(y64.shape), y64, TOLERANCE[bfloat16])
    close(found["lse"].reshape(lse.shape), lse, 1e-5)


@pytest.mark.parametrize(("head", "parts"), [
    (40, [64]), (64, [64]), (72, [64, 16]), (80, [64, 16]), (96, [64, 32]), (104, [128]), (128, [128]),
    (160, [128, 32]), (192, [128, 64]), (200, [256])])
def test_a_head_is_multiplied_in_parts(head: int, parts: list[int]) -> None:
    assert [size for _, size in parts_of(head)] == parts


def test_large_scores_and_a_row_that_sees_one_key() -> None:
    operands = heads((1, 1, 128, 64), (1, 1, 128, 64))
    data = [some(x) * 8 for x in operands]
    _, found = run(group_of(sdpa(*operands, causal=True, scale=3.0), operands), data)
    close(found["y"], wanted(*data, True, 3.0)[0], TOLERANCE[bfloat16])


def test_packed_heads_are_read_where_they_lie() -> None:
    b, t, h, d = 2, 128, 3, 64
    packed = an_input(0, (b, t, 3 * h * d), bfloat16)
    turned = movement.permute(movement.reshape(packed, shape=(b, t, 3, h, d)), axes=(2, 0, 3, 1, 4))
    parts = [movement.reshape(movement.slice(turned, starts=(i, 0, 0, 0, 0), stops=(i + 1, b, h, t, d), steps=(1,) * 5),
                              shape=(b, h, t, d)) for i in range(3)]
    data = some(packed)
    kernel, found = run(group_of(sdpa(*parts, causal=True, scale=0.125), (packed,)), [data])
    maps = [x for x in kernel.args if isinstance(x, MatrixMap)][:3]
    assert [x.start for x in maps] == [0, h * d, 2 * h * d] and {x.stride for x in maps} == {3 * h * d}
    assert sorted(maps[0].outer) == [(b, t * 3 * h * d), (h, d)]
    q, k, v = data.reshape(b, t, 3, h, d).permute(2, 0, 3, 1, 4)
    close(found["y"], wanted(q, k, v, True, 0.125)[0], TOLERANCE[bfloat16])


def test_heads_that_are_neither_first_nor_alone_keep_to_their_rows() -> None:
    """Tails: what lies behind a head's last row is the next head, which holds nothing that can be summed."""
    operands = heads((1, 3, 130, 64), (1, 3, 150, 64))
    data = [some(x) for x in operands]
    for x in data[1:]:
        x[0, 1] = float("nan")
    _, found = run(group_of(sdpa(*operands, causal=False, scale=0.125), operands), data)
    y = found["y"]
    assert y[0, 1].isnan().all()
    close(y[:, ::2], wanted(data[0][:, ::2], data[1][:, ::2], data[2][:, ::2], False, 0.125)[0], TOLERANCE[bfloat16])


def why(y: Node, operands: tuple[Node, ...], gpu=SMALL) -> str | None:
    """Why the group is not streamed; the kernel says the same."""
    group = group_of(y, operands)
    found = refusal(Attention(group, gpu, ("q", "k", "v")), gpu)
    assert (emit(group, gpu).name == "streamed_attention") == (found is None)
    return found


@pytest.mark.parametrize(("q", "k", "dtype", "reason"), [
    ((1, 1, 256, 64), (1, 1, 256, 64), float32, "float32 has no such instruction"),
    ((1, 1, 256, 60), (1, 1, 256, 60), bfloat16, "rows of 60 elements"),
    ((1, 8, 100, 64), (1, 8, 256, 64), bfloat16, "100 queries or 256 keys"),
    ((1, 8, 256, 64), (1, 8, 100, 64), bfloat16, "256 queries or 100 keys"),
])
def test_what_is_not_streamed(q: tuple[int, ...], k: tuple[int, ...], dtype: DType, reason: str) -> None:
    operands = heads(q, k, dtype)
    found = why(sdpa(*operands, causal=True, scale=0.125), operands)
    assert found is not None and reason in found


def test_few_tiles_and_other_gpus_are_not_streamed() -> None:
    operands = heads((1, 8, 256, 64), (1, 8, 256, 64))
    y = sdpa(*operands, causal=True, scale=0.125)
    assert "16 tiles" in (why(y, operands, H200) or "")
    assert "8.0" in (why(y, operands, replace(MODELS["a100"], multiprocessors=2)) or "")
    assert why(y, operands) is None


def test_masks_and_odd_places_are_not_streamed() -> None:
    operands = heads((1, 1, 256, 64), (1, 1, 256, 64))
    mask = an_input(3, (1, 1, 256, 256), bool_)
    assert why(sdpa(*operands, mask, causal=False, scale=0.125), (*operands, mask)) == "it takes no mask"
    wide = an_input(0, (1, 256, 68), bfloat16)
    q = movement.slice(wide, starts=(0, 0, 4), stops=(1, 256, 68), steps=(1, 1, 1))
    k = an_input(1, (1, 256, 64), bfloat16)
    assert "cannot read q" in (why(sdpa(q, k, k, causal=False, scale=0.125), (wide, k)) or "")


@by_default("64-True-4096")
@pytest.mark.parametrize(("head", "causal", "queries"), [
    (64, True, 4096), (256, True, 1000),
    *(pytest.param(*case, marks=pytest.mark.sweep)
      for case in [(128, True, 4096), (128, False, 1000), (80, True, 1000), (96, False, 200), (192, True, 512)])])
def test_it_compiles_for_hopper(head: int, causal: bool, queries: int) -> None:
    operands = heads((4, 16, queries, head), (4, 4, queries, head))
    kernel = emit(group_of(sdpa(*operands, causal=causal, scale=head ** -0.5), operands))
    assert kernel.name == "streamed_attention" and kernel.grid == (132, 1, 1) and compile_cubin(kernel)


def test_another_batch_has_maps_of_its_own_and_the_same_kernel() -> None:
    plans = []
    with counting() as gpu, engine.observe(plans.append):
        for batch in (8, 9, 10):
            x = genesis.zeros(batch, 130, 3, 33, 64).bfloat16().cuda()
            genesis.eval(x)
            q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
            genesis.eval(F.scaled_dot_product_attention(q, k, v, is_causal=True))
            launch = next(x for x in plans[-1].plan.steps if getattr(x, "label", "") == "streamed_attention")
            maps = [x for x in launch.args if isinstance(x, plan.MatrixMap)]
            assert (batch, 130 * 3 * 33 * 64) in maps[0].outer and maps[3].outer == ((batch * 33, 130 * 64),)
        assert len([kernel for kernel in gpu.kernels if "streamed_attention" in kernel]) <= 2  # 8, and any


@pytest.mark.parametrize(("shape", "form"), [
    ((1, 1, 257, 64), "keys=128 stages=2"), ((1, 2, 200, 64), "keys=64 stages=2 shared"),
    ((1, 1, 257, 128), "keys=64 stages=2 shared")])
def test_forms_that_tables_may_name(shape: tuple[int, ...], form: str) -> None:
    """A head's size that is streamed in another form than the shipped table says (`config.tune`)."""
    operands, scale = heads(shape, shape), shape[-1] ** -0.5
    data = [some(x) for x in operands]
    group = group_of(sdpa(*operands, causal=True, scale=scale), operands)
    with deciding(Rows([Row(Key("streamed_attention", ""), form)])):
        for launched in (run, run_threads):
            kernel, found = launched(group, data)
            assert f"{form}, tuned" in kernel.choices[0]
            close(found["y"].reshape(shape), wanted(*data, True, scale)[0], TOLERANCE[bfloat16])
