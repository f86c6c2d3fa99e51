"""legalize: what the backend has no lowering for is decomposed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genesis.codegen.cpu import lower
from genesis.ir import OPS, Graph, Node, tensor_type
from genesis.ir.errors import Overwritten
from genesis.ir.ops import leaves
from genesis.ir.parser import parse
from genesis.ir.types import float32
from genesis.ir.verify import verify
from genesis.passes.graph.legalize import legalize
from tests.passes.texts import assert_same_bits, assert_text, values_of


def without(*names: str) -> Callable[[Node], bool]:
    """A backend that runs everything but these."""
    return lambda node: node.op.name not in names


def test_an_op_without_a_lowering_is_decomposed() -> None:
    assert_text(
        legalize(parse("graph(%x: f32[4]) { %y: f32[4] = silu(%x) %z: f32[4] = exp(%y) return %z }"), without("silu")),
        "graph(%x: f32[4]) { %s: f32[4] = sigmoid(%x) %y: f32[4] = mul(%x, %s) %z: f32[4] = exp(%y) return %z }")


def test_what_the_backend_runs_is_left_alone() -> None:
    graph = parse("graph(%x: f32[4,3]) { %y: f32[4,3] = silu(%x) %z: f32[4,3] = softmax(%y, axis=1) "
                  "update %x = %z return %y }")
    assert legalize(graph, without()) == graph


def test_pieces_are_decomposed_again() -> None:
    """dropout → random bits."""
    graph = parse("graph(%x: f32[4]; 4 numbers) { %t: i64~[] = scalar(index=0) %p: f64~[] = scalar(index=1) "
                  "%s: i64~[] = scalar(index=2) %d: i64~[] = scalar(index=3) "
                  "%y: f32[4] = dropout(%x, %t, %p, %s, %d) return %y }")
    found = legalize(graph, without("dropout"))
    verify(found)
    names = {node.op.name for node in found.nodes}
    assert "random_bits" in names and "dropout" not in names


def test_several_results() -> None:
    found = legalize(parse("graph(%g: f32[2,3], %x: f32[2,3], %w: f32[3]) { %b: (f32[2,3],f32[3]) = rms_norm_backward("
                           "%g, %x, %w, ndim=1, eps=1e-05) %y: f32[2,3] = item(%b, index=0) "
                           "%z: f32[3] = item(%b, index=1) return %z, %y }"), without("rms_norm_backward"))
    verify(found)
    assert not {"item", "rms_norm_backward"} & {node.op.name for node in found.nodes}
    assert [str(x.type) for x in found.outputs] == ["f32[3]", "f32[2,3]"]


def test_an_unused_result_leaves_nothing_behind() -> None:
    text = ("graph(%g: f32[2,3], %x: f32[2,3], %w: f32[3]) { %b: (f32[2,3],f32[3]) = rms_norm_backward(%g, %x, %w, "
            "ndim=1, eps=1e-05) %y: f32[2,3] = item(%b, index=0) %z: f32[3] = item(%b, index=1) return %y")
    one = legalize(parse(text + " }"), without("rms_norm_backward"))
    both = legalize(parse(text + ", %z }"), without("rms_norm_backward"))
    assert len(one.nodes) < len(both.nodes)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
def test_a_decomposition_means_the_same_in_special_values(dtype: str) -> None:
    """NaN, infinities, the extremes; the sign of a zero may differ (`maximum(-0.0, 0)`)."""
    graph = parse(f"graph(%x: {dtype}[40]) {{ %y: {dtype}[40] = relu(%x) return %y }}")
    for one, other in zip(values_of(graph), values_of(legalize(graph, without("relu"))), strict=True):
        assert_same_bits(abs(one), abs(other))


def test_the_line_of_an_op_is_that_of_its_pieces() -> None:
    graph = parse("graph(%x: f32[4]) {\n %y: f32[4] = silu(%x)  # model.py:3 f\n return %y }")
    found = legalize(graph, without("silu"))
    assert {str(node.source) for node in found.nodes if node.op.name != "input"} == {"model.py:3 f"}


def test_no_lowering_and_no_decomposition() -> None:
    with pytest.raises(RuntimeError, match=r"no lowering for sin of f32\[4\], and it has no decomposition"):
        legalize(parse("graph(%x: f32[4]) { %y: f32[4] = sin(%x) return %y }"), without("sin"))


def test_a_lost_value_is_an_error_only_when_it_is_needed() -> None:
    lost = "graph(%x: f32[4]) { %l: f32[4] = lost(number=0) %y: f32[4] = exp(%l)"
    with pytest.raises(Overwritten, match="modified by an inplace operation"):
        legalize(parse(lost + " return %y }"), lower.supports)
    assert_text(legalize(parse(lost + " return %x }"), lower.supports), "graph(%x: f32[4]) { return %x }")


def test_composites_of_the_cpu_keep_their_name() -> None:
    x = leaves.input(index=0, type=tensor_type((4, 8), float32))
    for name, attributes in (("softmax", {"axis": 1}), ("layer_norm", {"ndim": 1, "eps": 1e-5}), ("gelu", {})):
        graph = Graph((x,), (OPS[name](x, **attributes),))
        assert legalize(graph, lower.supports) == graph


def test_the_cpu_decomposes_what_torch_has_no_kernel_for() -> None:
    found = legalize(parse("graph(%x: f16[4,8]) { %y: f16[4,8] = rms_norm(%x, ndim=1, eps=1e-05) return %y }"),
                     lower.supports)
    assert "rms_norm" not in {node.op.name for node in found.nodes}
    verify(found)


def test_pieces_that_are_composites_are_decomposed_again() -> None:
    """layer_norm → mean → sum."""
    graph = parse("graph(%x: f32[4,3]) { %y: f32[4,3] = layer_norm(%x, ndim=1, eps=1e-05) return %y }")
    found = legalize(graph, without("layer_norm", "mean"))
    assert {"layer_norm", "mean"}.isdisjoint(node.op.name for node in found.nodes)
    assert_same_bits(*values_of(legalize(graph, without("layer_norm"))), *values_of(found))
