"""autodiff: grad nodes become the nodes that compute the gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from genesis.ir import OPS, Graph, Node, make, tensor_type
from genesis.ir.ops import control, leaves
from genesis.ir.parser import parse
from genesis.ir.types import float64, int64
from genesis.ir.verify import verify
from genesis.passes.graph.autodiff import autodiff, gradients
from genesis.passes.graph.canonicalize import canonicalize
from tests.evaluate import evaluate
from tests.passes.texts import assert_text

EXPANDED = {
    "a product is differentiated by both operands": (
        """graph(%x: f32[4]) {
             %y: f32[4] = mul(%x, %x)
             %l: f32[] = sum(%y, axes=(0,))
             %g: (f32[4],) = grad(%l, 1.0, %x, outputs=1, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             return %r }""",
        """graph(%x: f32[4]) {
             %a: f32[] = cast(1.0, dtype=f32)
             %b: f32[1] = reshape(%a, shape=(1,))
             %c: f32[4] = expand(%b, shape=(4,))
             %d: f32[4] = mul(%c, %x)
             %r: f32[4] = add(%d, %d)
             return %r }"""),
    "a gradient of a gradient": (
        """graph(%x: f32[4], %s: f32[4]) {
             %y: f32[4] = sin(%x)
             %g: (f32[4],) = grad(%y, %s, %x, outputs=1, create_graph=True)
             %r: f32[4] = item(%g, index=0)
             %h: (f32[4],) = grad(%r, %s, %x, outputs=1, create_graph=False)
             %q: f32[4] = item(%h, index=0)
             return %q }""",
        """graph(%x: f32[4], %s: f32[4]) {
             %a: f32[4] = mul(%s, %s)
             %b: f32[4] = neg(%a)
             %c: f32[4] = sin(%x)
             %q: f32[4] = mul(%b, %c)
             %r: f32[4] = stop_gradient(%q)
             return %r }"""),
    "gradients of neighbouring slices are put side by side": (
        """graph(%x: f32[2,6], %s: f32[2,2], %t: f32[2,3]) {
             %a: f32[2,2] = slice(%x, starts=(0,1), stops=(2,3), steps=(1,1))
             %b: f32[2,3] = slice(%x, starts=(0,3), stops=(2,6), steps=(1,1))
             %g: (f32[2,6],) = grad(%a, %b, %s, %t, %x, outputs=2, create_graph=False)
             %r: f32[2,6] = item(%g, index=0)
             return %r }""",
        """graph(%x: f32[2,6], %s: f32[2,2], %t: f32[2,3]) {
             %c: f32[2,5] = concat(%s, %t, axis=1)
             %r: f32[2,6] = pad(%c, low=(0,1), high=(0,0))
             return %r }"""),
    "gradients of overlapping slices are added": (
        """graph(%x: f32[4], %s: f32[2], %t: f32[3]) {
             %a: f32[2] = slice(%x, starts=(0,), stops=(2,), steps=(1,))
             %b: f32[3] = slice(%x, starts=(1,), stops=(4,), steps=(1,))
             %g: (f32[4],) = grad(%a, %b, %s, %t, %x, outputs=2, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             return %r }""",
        """graph(%x: f32[4], %s: f32[2], %t: f32[3]) {
             %c: f32[4] = pad(%t, low=(1,), high=(0,))
             %d: f32[4] = pad(%s, low=(0,), high=(2,))
             %r: f32[4] = add(%c, %d)
             return %r }"""),
    "what has no influence has gradient 0": (
        """graph(%x: f32[4], %z: f32[2], %s: f32[4]) {
             %y: f32[4] = sin(%x)
             %g: (f32[4],f32[2]) = grad(%y, %s, %x, %z, outputs=1, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             %q: f32[2] = item(%g, index=1)
             return %r, %q }""",
        """graph(%x: f32[4], %z: f32[2], %s: f32[4]) {
             %c: f32[4] = cos(%x)
             %r: f32[4] = mul(%s, %c)
             %q: f32[2] = const(value=0.0)
             return %r, %q }"""),
    "nothing is computed for operands that nobody asks about": (
        """graph(%x: f32[2,3], %w: f32[3,4], %s: f32[2,4]) {
             %y: f32[2,4] = matmul(%x, %w)
             %g: (f32[3,4],) = grad(%y, %s, %w, outputs=1, create_graph=False)
             %r: f32[3,4] = item(%g, index=0)
             return %r }""",
        """graph(%x: f32[2,3], %w: f32[3,4], %s: f32[2,4]) {
             %t: f32[3,2] = permute(%x, axes=(1,0))
             %r: f32[3,4] = matmul(%t, %s)
             return %r }"""),
    "an operand behind stop_gradient is a constant": (
        """graph(%x: f32[4], %s: f32[4]) {
             %a: f32[4] = sin(%x)
             %b: f32[4] = stop_gradient(%a)
             %y: f32[4] = mul(%a, %b)
             %g: (f32[4],) = grad(%y, %s, %x, outputs=1, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             return %r }""",
        """graph(%x: f32[4], %s: f32[4]) {
             %a: f32[4] = sin(%x)
             %b: f32[4] = stop_gradient(%a)
             %c: f32[4] = mul(%s, %b)
             %d: f32[4] = cos(%x)
             %r: f32[4] = mul(%c, %d)
             return %r }"""),
    "several outputs add up": (
        """graph(%x: f32[4], %s: f32[4], %t: f32[4]) {
             %a: f32[4] = exp(%x)
             %b: f32[4] = sin(%x)
             %g: (f32[4],) = grad(%a, %b, %s, %t, %x, outputs=2, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             return %r }""",
        """graph(%x: f32[4], %s: f32[4], %t: f32[4]) {
             %c: f32[4] = cos(%x)
             %d: f32[4] = mul(%t, %c)
             %e: f32[4] = exp(%x)
             %f: f32[4] = mul(%s, %e)
             %r: f32[4] = add(%d, %f)
             return %r }"""),
    "a value in memory is read, not computed again": (
        """graph(%x: f32[4], %m: f32[4], %s: f32[4]) {
             %a: f32[4] = exp(%x)
             %k: f32[4] = known(%a, %m)
             %y: f32[4] = relu(%k)
             %g: (f32[4],) = grad(%y, %s, %x, outputs=1, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             return %r }""",
        """graph(%x: f32[4], %m: f32[4], %s: f32[4]) {
             %a: f32[4] = exp(%x)
             %k: f32[4] = known(%a, %m)
             %y: f32[4] = relu(%k)
             %d: f32[4] = relu_backward(%s, %y)
             %r: f32[4] = mul(%d, %k)
             return %r }"""),
    "an op without a derivative of its own is decomposed": (
        """graph(%x: f32[2,3], %s: f32[2]) {
             %y: f32[2] = mean(%x, axes=(1,))
             %g: (f32[2,3],) = grad(%y, %s, %x, outputs=1, create_graph=False)
             %r: f32[2,3] = item(%g, index=0)
             return %r }""",
        """graph(%x: f32[2,3], %s: f32[2]) {
             %a: f32[2] = div(%s, 3.0)
             %b: f32[2,1] = reshape(%a, shape=(2,1))
             %r: f32[2,3] = expand(%b, shape=(2,3))
             return %r }"""),
    "a value on the way is one to differentiate by, too": (
        """graph(%x: f32[4], %s: f32[4]) {
             %a: f32[4] = sin(%x)
             %y: f32[4] = exp(%a)
             %g: (f32[4],f32[4]) = grad(%y, %s, %a, %x, outputs=1, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             %q: f32[4] = item(%g, index=1)
             return %r, %q }""",
        """graph(%x: f32[4], %s: f32[4]) {
             %a: f32[4] = sin(%x)
             %y: f32[4] = exp(%a)
             %r: f32[4] = mul(%s, %y)
             %c: f32[4] = cos(%x)
             %q: f32[4] = mul(%r, %c)
             return %r, %q }"""),
    "two tensors over one memory are two leaves": (
        """graph(%x: f32[4], %s: f32[4]) {
             %a: f32[4] = watch(%x, leaf=0)
             %b: f32[4] = watch(%x, leaf=1)
             %y: f32[4] = mul(%a, %b)
             %g: (f32[4],f32[4]) = grad(%y, %s, %a, %b, outputs=1, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             %q: f32[4] = item(%g, index=1)
             return %r, %q }""",
        """graph(%x: f32[4], %s: f32[4]) {
             %b: f32[4] = watch(%x, leaf=1)
             %r: f32[4] = mul(%s, %b)
             %a: f32[4] = watch(%x, leaf=0)
             %q: f32[4] = mul(%s, %a)
             return %r, %q }"""),
    "no gradient flows to or through integers": (
        """graph(%t: f32[5,2], %i: f32[3], %s: f32[3,2]) {
             %n: i64[3] = cast(%i, dtype=i64)
             %y: f32[3,2] = take(%t, %n, axis=0)
             %g: (f32[5,2],f32[3]) = grad(%y, %s, %t, %i, outputs=1, create_graph=False)
             %r: f32[5,2] = item(%g, index=0)
             %q: f32[3] = item(%g, index=1)
             return %r, %q }""",
        """graph(%t: f32[5,2], %i: f32[3], %s: f32[3,2]) {
             %z: f32[5,2] = const(value=0.0)
             %n: i64[3] = cast(%i, dtype=i64)
             %r: f32[5,2] = index_add(%z, %n, %s, axis=0)
             %q: f32[3] = const(value=0.0)
             return %r, %q }"""),
    "an output is its own gradient": (
        """graph(%x: f32[4], %s: f32[4]) {
             %g: (f32[4],) = grad(%x, %s, %x, outputs=1, create_graph=False)
             %r: f32[4] = item(%g, index=0)
             return %r }""",
        "graph(%x: f32[4], %s: f32[4]) { return %s }"),
    "one result of several": (
        """graph(%x: f32[2,3], %d: f32[2,3], %s: f32[2,3]) {
             %b: (f32[2,3],) = layer_norm_backward(%d, %x, ndim=1, eps=1e-05)
             %y: f32[2,3] = item(%b, index=0)
             %g: (f32[2,3],) = grad(%y, %s, %s, outputs=1, create_graph=False)
             %r: f32[2,3] = item(%g, index=0)
             return %r, %y }""",
        """graph(%x: f32[2,3], %d: f32[2,3], %s: f32[2,3]) {
             %r: f32[2,3] = const(value=0.0)
             %b: (f32[2,3],) = layer_norm_backward(%d, %x, ndim=1, eps=1e-05)
             %y: f32[2,3] = item(%b, index=0)
             return %r, %y }"""),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_expanded(name: str) -> None:
    before, expected = EXPANDED[name]
    assert_text(autodiff(parse(before)), expected)


def test_a_program_without_gradients_is_left_alone() -> None:
    graph = parse("graph(%x: f32[2,3]) { %a: f32[2,3] = watch(%x, leaf=0) %y: f32[2,3] = layer_norm(%a, ndim=1, "
                  "eps=1e-05) update %x = %y return %a }")
    assert autodiff(graph) == graph


def test_a_gradient_that_nothing_reads_costs_nothing() -> None:
    graph = parse("graph(%x: f32[4]) { %y: f32[4] = sin(%x) %g: (f32[4],) = grad(%y, %x, %x, outputs=1, "
                  "create_graph=False) %r: f32[4] = item(%g, index=0) return %y }")
    assert_text(autodiff(graph), "graph(%x: f32[4]) { %y: f32[4] = sin(%x) return %y }")


def test_the_gradients_nodes_name_the_line_they_come_from() -> None:
    graph = autodiff(parse("""graph(%x: f32[4], %s: f32[4]) {
        %y: f32[4] = cosh(%x)   # model.py:7 forward
        %g: (f32[4],) = grad(%y, %s, %x, outputs=1, create_graph=False)   # train.py:3
        %r: f32[4] = item(%g, index=0)
        return %r }"""))
    assert {str(node.source) for node in graph.nodes if node.source is not None} == {"model.py:7 forward"}


# Against torch

def _gradient(y: Node, x: Node, seed: Node) -> Node:
    request = make(control.grad, (y, seed, x), (1, True, 0, 0))
    return make(control.item, (request,), (0,))


def _standardized(x: torch.Tensor) -> torch.Tensor:
    """layer_norm in simple steps: the third derivative of torch's own is wrong."""
    centred = x - x.mean(1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(1, keepdim=True) + 1e-5)


CASES: dict[str, tuple[Any, Any]] = {
    "softmax": (lambda x: OPS["softmax"](x, axis=1), lambda x: torch.softmax(x, 1)),
    "layer_norm": (lambda x: OPS["layer_norm"](x, ndim=1, eps=1e-5), lambda x: _standardized(x)),
    "gelu": (lambda x: OPS["gelu"](x), torch.nn.functional.gelu),
    "tanh of exp": (lambda x: OPS["tanh"](OPS["exp"](x)), lambda x: torch.tanh(torch.exp(x))),
    "products": (lambda x: OPS["prod"](x, axes=(1,)), lambda x: x.prod(1)),
    "slices": (lambda x: OPS["slice"](OPS["exp"](x), starts=(0, 1), stops=(3, 5), steps=(2, 2)),
               lambda x: x.exp()[::2, 1::2]),
    "square": (lambda x: x * x * x, lambda x: x**3),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_each_order_are_torchs(name: str, order: int) -> None:
    """The inner product with a fixed direction is differentiated again and again, in float64."""
    ours, theirs = CASES[name]
    generator = np.random.default_rng(3)
    x = leaves.input(index=0, type=tensor_type((3, 5), float64))
    data = generator.normal(size=(3, 5))
    y, tx = ours(x), torch.tensor(data, requires_grad=True)
    ty, feeds = theirs(tx), {x: data}
    for index in range(1, order + 1):
        direction = leaves.input(index=index, type=y.type)
        feeds[direction] = generator.normal(size=y.shape)
        y = _gradient(y, x, direction)
        ty, = torch.autograd.grad((ty * torch.tensor(feeds[direction])).sum(), tx, create_graph=True)
    graph = canonicalize(autodiff(Graph(tuple(feeds), (y,))))
    verify(graph)
    found, = evaluate(graph.outputs, feeds)
    np.testing.assert_allclose(found, ty.detach().numpy(), rtol=1e-9, atol=1e-9)


def test_a_region_is_computed_again_from_what_it_read() -> None:
    before = parse("""graph(%x: f32[4], %w: f32[4]) {
        %e: f32[4] = enter(%x, region=0)
        %a: f32[4] = exp(%e)
        %v: f32[4] = enter(%w, region=0)
        %b: f32[4] = mul(%a, %v)
        %l: (f32[4],) = leave(%b, region=0)
        %y: f32[4] = item(%l, index=0)
        %z: f32[4] = mul(%y, %y)
        %s: f32[] = sum(%z, axes=(0,))
        %g: (f32[4],) = grad(%s, 1.0, %x, outputs=1, create_graph=False)
        %r: f32[4] = item(%g, index=0)
        return %r, %s
    }""")
    assert_text(canonicalize(autodiff(before)), """graph(%x: f32[4], %w: f32[4]) {
        %a: f32[4] = exp(%x)
        %b: f32[4] = mul(%a, %w)
        %g: f32[4] = add(%b, %b)
        %w2: f32[4] = recompute(%w, %g)
        %gw: f32[4] = mul(%g, %w2)
        %x2: f32[4] = recompute(%x, %g)
        %a2: f32[4] = exp(%x2)
        %r: f32[4] = mul(%gw, %a2)
        %z: f32[4] = mul(%b, %b)
        %s: f32[] = sum(%z, axes=(0,))
        return %r, %s
    }""")


def test_what_leaves_no_region_is_differentiated_as_always() -> None:
    before = parse("""graph(%x: f32[4]) {
        %e: f32[4] = enter(%x, region=0)
        %a: f32[4] = exp(%e)
        %s: f32[] = sum(%a, axes=(0,))
        %g: (f32[4],) = grad(%s, 1.0, %x, outputs=1, create_graph=False)
        %r: f32[4] = item(%g, index=0)
        return %r
    }""")
    assert not any(node.op.name == "recompute" for node in autodiff(before).nodes)


def test_no_gradient_goes_through_integers() -> None:
    x = leaves.input(index=0, type=tensor_type((3,), float64))
    whole = OPS["cast"](OPS["cast"](x, dtype=int64), dtype=float64)
    seed = leaves.full((3,), 1, float64)
    found, = evaluate(gradients([whole * x], [seed], [x]), {x: np.array([1.5, -2.5, 3.25])})
    assert found.tolist() == [1.0, -2.0, 3.0]


def test_gradients_that_are_padded_with_other_numbers_than_zero_are_added() -> None:
    """Gradients of neighbouring slices are put side by side: what pads those is zeros that mean nothing."""
    x, low, high = (leaves.input(index=i, type=tensor_type((n,), float64)) for i, n in enumerate((4, 2, 2)))
    seeds = [OPS["pad"](low, low=(0,), high=(2,), value=1), OPS["pad"](high, low=(2,), high=(0,), value=0)]
    found, = evaluate(gradients([x, x], seeds, [x]), {x: np.zeros(4), low: np.array([5.0, 6.0]),
                                                      high: np.array([7.0, 8.0])})
    assert found.tolist() == [5.0, 6.0, 8.0, 9.0]
