"""Norms and attention keep statistics where their backward is in the same program, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.codegen.cpu.lower import supports
from genesis.ir.node import Node
from genesis.ir.ops.control import item
from genesis.passes.graph.save_statistics import FROM_SAVED, SAVING, save_statistics
from tests.evaluate import evaluate
from tests.passes.texts import assert_text, parse

NORM = """graph(%x: f32[4,8], %w: f32[8], %b: f32[8], %g: f32[4,8]) {
    %y: f32[4,8] = layer_norm(%x, %w, %b, ndim=1, eps=1e-05)
    %r: f32[4,8] = mul(%y, %g)
    %d: (f32[4,8],f32[8],f32[8]) = layer_norm_backward(%r, %x, %w, ndim=1, eps=1e-05)
    %dx: f32[4,8] = item(%d, index=0)
    %dw: f32[8] = item(%d, index=1)
    return %y, %dx, %dw }"""

NORM_AFTER = """graph(%x: f32[4,8], %w: f32[8], %b: f32[8], %g: f32[4,8]) {
    %s: (f32[4,8],f32[4,1],f32[4,1]) = layer_norm_saving(%x, %w, %b, ndim=1, eps=1e-05)
    %y: f32[4,8] = item(%s, index=0)
    %r: f32[4,8] = mul(%y, %g)
    %m: f32[4,1] = item(%s, index=1)
    %i: f32[4,1] = item(%s, index=2)
    %d: (f32[4,8],f32[8],f32[8]) = layer_norm_from_saved(%r, %m, %i, %x, %w, ndim=1, eps=1e-05)
    %dx: f32[4,8] = item(%d, index=0)
    %dw: f32[8] = item(%d, index=1)
    return %y, %dx, %dw }"""

GROUPS = """graph(%x: f32[3,4,5,2], %w: f32[4], %b: f32[4], %g: f32[3,4,5,2]) {
    %y: f32[3,4,5,2] = group_norm(%x, %w, %b, groups=2, eps=0.1)
    %r: f32[3,4,5,2] = mul(%y, %g)
    %d: (f32[3,4,5,2],f32[4],f32[4]) = group_norm_backward(%r, %x, %w, groups=2, eps=0.1)
    %dx: f32[3,4,5,2] = item(%d, index=0)
    %dw: f32[4] = item(%d, index=1)
    return %y, %dx, %dw }"""

GROUPS_AFTER = """graph(%x: f32[3,4,5,2], %w: f32[4], %b: f32[4], %g: f32[3,4,5,2]) {
    %s: (f32[3,4,5,2],f32[3,2],f32[3,2]) = group_norm_saving(%x, %w, %b, groups=2, eps=0.1)
    %y: f32[3,4,5,2] = item(%s, index=0)
    %r: f32[3,4,5,2] = mul(%y, %g)
    %m: f32[3,2] = item(%s, index=1)
    %i: f32[3,2] = item(%s, index=2)
    %d: (f32[3,4,5,2],f32[4],f32[4]) = group_norm_from_saved(%r, %m, %i, %x, %w, groups=2, eps=0.1)
    %dx: f32[3,4,5,2] = item(%d, index=0)
    %dw: f32[4] = item(%d, index=1)
    return %y, %dx, %dw }"""

ATTENTION = """graph(%q: f32[2,3,5,8], %k: f32[2,3,6,8], %v: f32[2,3,6,8], %g: f32[2,3,5,8]) {
    %y: f32[2,3,5,8] = sdpa(%q, %k, %v, causal=False, scale=0.5)
    %d: (f32[2,3,5,8],f32[2,3,6,8],f32[2,3,6,8]) = sdpa_backward(%g, %q, %k, %v, %y, causal=False, scale=0.5)
    %dq: f32[2,3,5,8] = item(%d, index=0)
    %dk: f32[2,3,6,8] = item(%d, index=1)
    return %y, %dq, %dk }"""

ATTENTION_AFTER = """graph(%q: f32[2,3,5,8], %k: f32[2,3,6,8], %v: f32[2,3,6,8], %g: f32[2,3,5,8]) {
    %s: (f32[2,3,5,8],f32[2,3,5]) = sdpa_saving(%q, %k, %v, causal=False, scale=0.5)
    %y: f32[2,3,5,8] = item(%s, index=0)
    %l: f32[2,3,5] = item(%s, index=1)
    %d: (f32[2,3,5,8],f32[2,3,6,8],f32[2,3,6,8]) = sdpa_from_saved(%g, %l, %q, %k, %v, %y, causal=False, scale=0.5)
    %dq: f32[2,3,5,8] = item(%d, index=0)
    %dk: f32[2,3,6,8] = item(%d, index=1)
    return %y, %dq, %dk }"""


@pytest.mark.parametrize("before, after", [(NORM, NORM_AFTER), (GROUPS, GROUPS_AFTER),
                                           (ATTENTION, ATTENTION_AFTER)])
def test_before_and_after(before: str, after: str) -> None:
    graph = parse(before)
    found = save_statistics(graph, supports)
    assert_text(found, after)
    assert save_statistics(found, supports) == found
    feeds: dict[Node, Any] = {x: np.random.default_rng(x["index"]).standard_normal(x.shape).astype(np.float32)
                              for x in graph.inputs}
    for want, got in zip(evaluate(list(graph.outputs), feeds), evaluate(list(found.outputs), feeds), strict=True):
        np.testing.assert_array_equal(got, want)
    forms = frozenset(op.name for op in (*SAVING.values(), *FROM_SAVED.values()))
    written_out = evaluate(list(found.outputs), feeds, forms)
    for want, got in zip(evaluate(list(graph.outputs), feeds), written_out, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)  # one formula in two orders


def test_statistics_are_those_of_torch_s_kernels() -> None:
    """Written out, the saving forms give what the kernels give."""
    for text, name in ((NORM_AFTER, "layer_norm_saving"), (GROUPS_AFTER, "group_norm_saving"),
                       (ATTENTION_AFTER, "sdpa_saving")):
        graph = parse(text)
        made = next(node for node in graph.nodes if node.op.name == name)
        feeds: dict[Node, Any] = {x: np.random.default_rng(x["index"]).standard_normal(x.shape).astype(np.float32)
                                  for x in graph.inputs}
        parts = [item(made, index=i) for i in range(len(made.types))]
        for want, got in zip(evaluate(parts, feeds), evaluate(parts, feeds, frozenset({name})), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)  # float32, sums of 8 terms


@pytest.mark.parametrize("text", [
    NORM.replace("f32", "bf16"),  # torch rounds its statistics
    NORM.replace("%r, %x, %w", "%r, %g, %w"),  # of other rows
    NORM.replace("%r, %x, %w, ndim=1, eps=1e-05", "%r, %x, %w, ndim=1, eps=0.1"),
    GROUPS.replace("%r, %x, %w", "%r, %g, %w"),
    GROUPS.replace("%r, %x, %w, groups=2", "%r, %x, %w, groups=4"),
    GROUPS.replace("f32", "bf16"),
    ATTENTION.replace("[2,3,6,8]", "[2,1,6,8]"),  # shared heads are repeated for the kernel
    ATTENTION.replace("%y, causal=False", "%y, causal=True"),
])
def test_what_is_left_alone(text: str) -> None:
    graph = parse(text)
    assert save_statistics(graph, supports) == graph


def block(lib: Any, weights: dict[str, Any]) -> tuple[Any, Any]:
    norm, linear = lib.nn.LayerNorm(16), lib.nn.Linear(16, 48)
    for module, name in ((norm, "norm"), (linear, "linear")):
        module.load_state_dict({k: lib.tensor(v) for k, v in weights[name].items()})

    def run(x: Any) -> Any:
        q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in linear(norm(x)).split(16, -1))
        y = lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (norm(y.transpose(1, 2).flatten(2)) + x).square().sum()
    return run, [*norm.parameters(), *linear.parameters()]


@pytest.mark.parametrize("read_first", [False, True], ids=["one program", "the loss is read before its backward"])
def test_a_block_has_torch_s_gradients(read_first: bool) -> None:
    draws = np.random.default_rng(0)
    weights = {"norm": {"weight": draws.standard_normal(16).astype("f"), "bias": draws.standard_normal(16).astype("f")},
               "linear": {"weight": draws.standard_normal((48, 16)).astype("f"), "bias": np.zeros(48, "f")}}
    data = draws.standard_normal((3, 7, 16)).astype("f")
    gradients = []
    for lib in (torch, genesis):
        run, parameters = block(lib, weights)
        for _ in range(2):  # the second time, what was saved for a backward is known
            loss = run(lib.tensor(data))
            if read_first:
                loss.item()
            loss.backward()
        gradients.append([p.grad.numpy() for p in parameters])
    for want, got in zip(*gradients, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)  # sums of 21 rows of squares in float32


def test_a_step_computes_no_statistics_twice() -> None:
    plans: list[Any] = []
    run, parameters = block(genesis, {"norm": {"weight": np.ones(16, "f"), "bias": np.zeros(16, "f")},
                                      "linear": {"weight": np.eye(48, 16, dtype="f"), "bias": np.zeros(48, "f")}})
    x = genesis.randn(3, 7, 16)
    genesis.eval(x, *parameters)
    with engine.observe(plans.append):
        run(x).backward()
        genesis.eval(*[p.grad for p in parameters])
    names = [node.op.name for node in plans[-1].stages["legal"].nodes]
    assert names.count("layer_norm_saving") == 2 == names.count("layer_norm_from_saved")
    assert names.count("sdpa_saving") == 1 == names.count("sdpa_from_saved")
    assert not {"layer_norm", "layer_norm_backward", "sdpa", "sdpa_backward"} & set(names)
