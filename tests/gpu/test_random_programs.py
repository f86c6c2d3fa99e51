"""Random programs (`grammar/`): fused, unfused and on the CPU they agree with torch in float64, and so do gradients.

    pytest tests/gpu/test_random_programs.py -m sweep            # a thousand in the interpreter
    pytest tests/gpu/test_random_programs.py -m "gpu and sweep"  # three hundred on a GPU
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, note, seed, settings

import genesis
from genesis.frontend import recording
from genesis.ir import OPS
from tests.gpu.conftest import CudaUnderTest
from tests.gpu.grammar import Program, programs
from tests.gpu.grammar.program import weighted

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None, "report_multiple_bugs": False}
NOT_DRAWN = {
    "made by gradients": "i1 ndtr unsort scale_gradient convolution_weight adaptive_max_pool_backward",
    "made by passes": "convolution_last convolution_input_last convolution_weight_last flash_attention "
                      "flash_attention_dq flash_attention_dkv reduce_splits recurrence lines_added lines_summed "
                      "rows_added segment_add segment_parts segment_put row_put sort_runs merge_runs digit_counts "
                      "digit_scatter digit_elements in_range recompute matmul_split_k matmul_sum group_parts "
                      "group_sums words_by_block block_sums rows_summed exact_sums taken_in_rows "
                      "layer_norm_saving layer_norm_from_saved "
                      "group_norm_saving group_norm_from_saved sdpa_saving sdpa_from_saved recurrent_saving "
                      "recurrent_from_saved",
    "between processes (tests/distributed)": "all_reduce reduce_to broadcast all_gather reduce_scatter all_to_all "
                                             "messages redistribute reduce_gradients",
    "whole layers, drawn nowhere (their own tests)": "recurrent ragged_matmul ragged_matmul_sums",
    "a check of values, which gives none": "require_all",
    "a bool of Python's, which is read at once": "equal",
    "random: no other library draws the same numbers": "random_bits uniform normal integers dropout "
                                                      "dropout_of_part",
    "what an optimizer's step is": "adamw sgd adagrad adadelta rmsprop rprop asgd adamax nadam radam "
                                    "amsgrad norm_parts total_norm clip_by_norm clip_by_value",
    "the bits of float64 are others": "bitcast",
}
"""Ops that no step of a program records, by the reason."""

PARTS = 20
"""The thousand are so many tests."""


def to_genesis(x: torch.Tensor, device: str, watched: bool) -> Any:
    wide = genesis.tensor(x.float().numpy() if x.is_floating_point() else x.numpy(), device=device)
    found = wide.to(getattr(genesis, str(x.dtype).removeprefix("torch.")))
    return found.requires_grad_() if watched and x.is_floating_point() else found


def check(program: Program, device: str, fuse: bool) -> None:
    """Run the program in Genesis and compare with torch in float64."""
    genesis.config.fuse = fuse
    try:
        data = [to_genesis(x.rounded, device, program.differentiated) for x in program.inputs]
        found = program.run(genesis, data)
        gradients = differentiated(found, data) if program.differentiated else [None] * len(data)
        genesis.eval(*found, *(g for g in gradients if g is not None))
    finally:
        genesis.config.fuse = True
    for at, got in zip(program.asked, found, strict=True):
        value = program.values[at]
        assert got.dtype.name == str(value.dtype).removeprefix("torch."), f"%{at} is {got.dtype}"
        compare(f"%{at}", got, value.tensor, value.error)
    if program.differentiated:
        for at, (g, want) in enumerate(zip(gradients, program.wanted_gradients(), strict=True)):
            if want is not None:
                assert g is not None, f"no gradient of %{at}"
                compare(f"gradient of %{at}", g, *want)


def differentiated(found: list[Any], data: list[Any]) -> list[Any]:
    """The gradient of each input, None for integers."""
    loss, reals = weighted(genesis, found), [x for x in data if x.requires_grad]
    if loss is None or not loss.requires_grad:
        return [None] * len(data)
    gradients = iter(genesis.autograd.grad(loss, reals, allow_unused=True))
    return [next(gradients) if x.requires_grad else None for x in data]


def compare(name: str, got: Any, want: torch.Tensor, allowed: float) -> None:
    """The shape is right, and each element is as near as rounding allows."""
    assert tuple(got.shape) == tuple(want.shape), name
    error = np.abs(got.detach().double().cpu().numpy() - want.detach().double().numpy())
    if want.is_floating_point():  # the least that the dtype has
        limits = torch.finfo(getattr(torch, got.dtype.name))
        allowed += limits.tiny * limits.eps
    assert not error.size or error.max() <= allowed, f"{name} is off by {error.max():.3g} > {allowed:.3g}"


def each_of(seeds: range, look: Callable[[Program], None]) -> None:
    """Draw a program from each seed and look at it. (Of more from one seed hypothesis makes most by varying a few.)"""
    for number in seeds:
        @seed(number)
        @settings(max_examples=1, **QUIET)
        @given(programs())
        def one(program: Program) -> None:
            note(str(program))
            look(program)
        one()


def agree(cuda: CudaUnderTest, seeds: range) -> None:
    """The programs of these seeds agree, fused and not."""
    def look(program: Program) -> None:
        check(program, "cuda", True)
        check(program, "cuda", False)
        if not cuda.real:
            check(program, "cpu", True)
    each_of(seeds, look)


def test_a_few_programs(cuda: CudaUnderTest) -> None:
    agree(cuda, range(24 if cuda.real else 5))


@pytest.mark.sweep
def test_some_programs_more(cuda: CudaUnderTest) -> None:
    agree(cuda, range(5, 24))


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_many_programs(cuda: CudaUnderTest, part: int) -> None:
    count = (300 if cuda.real else 1000) // PARTS
    agree(cuda, range(part * count, (part + 1) * count))


@pytest.mark.sweep
def test_every_op_is_drawn() -> None:
    """A thousand programs record every op but those that something else makes, and the decompositions of matrices."""
    seen: dict[Any, None] = {}

    def look(program: Program) -> None:
        found = program.run(genesis, [to_genesis(x.rounded, "cpu", program.differentiated) for x in program.inputs])
        nodes = [recording.read(x) for x in found]
        while nodes:
            node = nodes.pop()
            if node not in seen:
                seen[node] = None
                nodes.extend(node.inputs)

    each_of(range(1000), look)
    drawn = {node.op.name for node in seen} | set(" ".join(NOT_DRAWN.values()).split())
    assert not [name for name, op in OPS.items() if op.kind not in ("leaf", "control", "linalg")
                and not name.endswith("_backward") and name not in drawn]
