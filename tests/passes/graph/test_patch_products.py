"""A convolution of patches side by side is a product, and so are its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis
from genesis import engine, nn
from genesis.codegen.cuda.gpu_model import H200
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import pointwise
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.convolution import convolution, convolution_input, convolution_weight
from genesis.ir.types import bfloat16, float32, float64
from genesis.ir.verify import verify
from genesis.passes.graph.align_operands import align_operands
from genesis.passes.graph.patch_products import patch_products
from tests.codegen.cuda.programs import an_input, inputs
from tests.engine.symbolic.idle import counting

CONVOLUTIONS = (convolution, convolution_input, convolution_weight)


def how(window: tuple[int, ...], **other: Any) -> dict[str, Any]:
    """The attributes of windows that lie side by side."""
    n = len(window)
    return {"stride": window, "padding": (0,) * n, "dilation": (1,) * n, "groups": 1, **other}


def left(graph: Graph) -> int:
    """How many convolutions a graph has."""
    return sum(node.op in CONVOLUTIONS for node in graph.nodes)


def check(operands: tuple[Node, ...], *outputs: Node) -> Graph:
    """The graph after the pass: products, with the values of torch's convolution in float64."""
    before = Graph(operands, outputs)
    after = patch_products(before)
    verify(after)
    assert not left(after) and any(node.op is matmul for node in after.nodes)
    generator = torch.Generator().manual_seed(1)
    data = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in operands]
    for x, y in zip(values(after, data), values(before, data), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)
    return after


def values(graph: Graph, data: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the reference of each op gives."""
    found: dict[Node, Any] = {}
    for node in graph.nodes:
        if node.op.name == "input":
            found[node] = data[node["index"]].numpy()
        else:
            assert node.op.reference is not None
            found[node] = node.op.reference(*(found[x] for x in node.inputs), **node.attributes)
    return [torch.from_numpy(found[x].copy()) for x in graph.roots]


@pytest.mark.parametrize(("sizes", "window"), [
    ((12, 8), (4, 2)), ((13, 9), (4, 2)), ((11,), (5,)), ((4, 6, 5), (2, 3, 1))],
    ids=["whole", "with a rest", "lines", "volumes"])
def test_all_three_are_products(sizes: tuple[int, ...], window: tuple[int, ...]) -> None:
    out = tuple(size // k for size, k in zip(sizes, window, strict=True))
    x, w, g = inputs((2, 3, *sizes), (5, 3, *window), (2, 5, *out))
    for made in (convolution(x, w, **how(window)), convolution_weight(g, x, window=window, **how(window)),
                 convolution_input(g, w, sizes=sizes, **how(window))):
        check((x, w, g), made)


def test_a_bias_is_added_to_the_product() -> None:
    x, w, b = inputs((2, 3, 8, 8), (5, 3, 4, 4), (5,))
    check((x, w, b), convolution(x, w, b, **how((4, 4))))


@pytest.mark.parametrize("other", [
    {"padding": (1, 1)}, {"dilation": (2, 2)}, {"stride": (2, 2)}, {"groups": 3}, {"channels": 16}, {"window": (1, 1)},
    {"dtype": float64}], ids=lambda x: next(iter(x)))
def test_what_stays_a_convolution(other: dict[str, Any]) -> None:
    other = dict(other)
    channels, window = other.pop("channels", 3), other.pop("window", (4, 4))
    x, w = inputs((2, channels, 16, 16), (6, channels // other.get("groups", 1), *window),
                  dtype=other.pop("dtype", float32))
    assert left(patch_products(Graph((x, w), (convolution(x, w, **how(window, **other)),)))) == 1


def test_a_picture_that_is_cast_is_written_in_patches() -> None:
    """One copy, which both products read, and no other."""
    x, w, g = (an_input(i, shape, dtype) for i, (shape, dtype) in enumerate((
        ((64, 3, 224, 224), float32), ((768, 3, 16, 16), bfloat16), ((64, 768, 14, 14), bfloat16))))
    low = pointwise.cast(x, dtype=bfloat16)
    outputs = convolution(low, w, **how((16, 16))), convolution_weight(g, low, window=(16, 16), **how((16, 16)))
    graph = align_operands(patch_products(Graph((x, w, g), outputs)), H200)
    casts = [node for node in graph.nodes if node.op is pointwise.cast]
    assert [node.shape for node in casts] == [(64, 3, 224, 224), (12544, 768)]
    read = [x for node in graph.nodes if node.op is matmul for x in node.inputs]
    assert sum(casts[1] in (x, *x.inputs) for x in read) == 2


def test_a_vision_transformer_s_first_layer_has_no_convolution_on_a_gpu() -> None:
    with counting(), genesis.device("cuda"):
        layer = nn.Conv2d(3, 768, 16, 16)

        def step(batch: int) -> tuple[str, list[str]]:
            x = genesis.zeros(batch, 3, 224, 224)
            genesis.eval(x)
            layer.weight.grad = None
            with genesis.autocast("cuda", dtype=genesis.bfloat16):
                y = layer(x).flatten(2).transpose(1, 2)
            y.float().square().sum().backward()
            genesis.eval(layer.weight.grad)
            plan = engine.last_plan()
            assert plan is not None
            return plan.origin, [getattr(one, "label", "") for one in plan.plan.steps]
        step(64)
        found = [step(batch) for batch in (60, 58, 62)]
        assert found[-1][0] == "other size"
        assert all(not label.startswith("convolution") for _, labels in found for label in labels)
        assert all(any(label.startswith("streamed_matmul") for label in labels) for _, labels in found)
