"""Images keep their channels last from a convolution on; what the pass says of memory is what torch's calls make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.codegen.cpu.lowerings import lowering_for
from genesis.ir.graph import Graph
from genesis.ir.node import OPS, Node
from genesis.ir.ops import leaves, movement
from genesis.ir.types import cpu, float32, tensor_type
from genesis.passes.graph.lay_out_images import lay_out_images
from genesis.passes.graph.memory_order import CONVOLUTIONS, FIRST, FOLLOWERS, lies_last, strides_of
from tests.evaluate import evaluate
from tests.passes.texts import assert_text, parse

BEFORE = """graph(%x: f32[4,3,32,32], %w: f32[8,3,3,3], %m: f32[4,8,32,32]) {
    %y: f32[4,8,32,32] = convolution(%x, %w, stride=(1,1), padding=(1,1), dilation=(1,1), groups=1)
    %r: f32[4,8,32,32] = relu(%y)
    %s: f32[4,8,32,32] = add(%r, %m)
    return %s }"""

AFTER = """graph(%x: f32[4,3,32,32], %w: f32[8,3,3,3], %m: f32[4,8,32,32]) {
    %xt: f32[4,32,32,3] = permute(%x, axes=(0,2,3,1))
    %xc: f32[4,32,32,3] = cast(%xt, dtype=f32)
    %xl: f32[4,3,32,32] = permute(%xc, axes=(0,3,1,2))
    %wt: f32[8,3,3,3] = permute(%w, axes=(0,2,3,1))
    %wc: f32[8,3,3,3] = cast(%wt, dtype=f32)
    %wl: f32[8,3,3,3] = permute(%wc, axes=(0,3,1,2))
    %y: f32[4,8,32,32] = convolution(%xl, %wl, stride=(1,1), padding=(1,1), dilation=(1,1), groups=1)
    %yt: f32[4,32,32,8] = permute(%y, axes=(0,2,3,1))
    %r: f32[4,32,32,8] = relu(%yt)
    %mt: f32[4,32,32,8] = permute(%m, axes=(0,2,3,1))
    %s: f32[4,32,32,8] = add(%r, %mt)
    %o: f32[4,8,32,32] = permute(%s, axes=(0,3,1,2))
    return %o }"""


def test_before_and_after() -> None:
    graph = lay_out_images(parse(BEFORE))
    assert_text(graph, AFTER)
    assert lay_out_images(graph) == graph, "it has nothing more to do"


@pytest.mark.parametrize("text", [
    BEFORE.replace("32,32", "8,8"),  # small
    BEFORE.replace("f32", "f64"),
    BEFORE.replace("relu(%y)", "group_norm(%y, groups=2, eps=1e-05)"),
    BEFORE.replace("%r: f32[4,8,32,32] = relu(%y)",
                   "%n: (f32[4,8,32,32], f32[4,2], f32[4,2]) = group_norm_saving(%y, groups=2, eps=1e-05)\n"
                   "    %r: f32[4,8,32,32] = item(%n, index=0)")])
def test_what_is_left_alone(text: str) -> None:
    graph = parse(text)
    assert lay_out_images(graph) == graph


CONVOLVED = "convolution(%{}, %{}, stride=(1,1), padding=(1,1), dilation=(1,1), groups=1)"
REGIONS = f"""graph(%x: f32[4,8,32,32], %w: f32[8,8,3,3], %y: f32[4,8,32,32]) {{
    %a: f32[4,8,32,32] = {CONVOLVED.format("x", "w")}
    %b: f32[4,8,32,32] = relu(%a)
    %c: f32[4,8,32,32] = {CONVOLVED.format("b", "w")}
    %n: f32[4,8,32,32] = group_norm(%c, groups=2, eps=0.1)
    %r: f32[4,8,32,32] = relu(%n)
    %d: f32[4,8,32,32] = {CONVOLVED.format("r", "w")}
    %e: f32[4,8,32,32] = group_norm(%d, groups=2, eps=0.1)
    %f: f32[4,8,32,32] = {CONVOLVED.format("y", "w")}
    %g: f32[4,8,32,32] = tanh(%f)
    return %e, %g }}"""
"""Two convolutions before a group norm, one between two of them, and one beside them all."""


def test_regions_between_group_norms_turn_where_it_saves_more_copies_than_it_makes() -> None:
    graph = lay_out_images(parse(REGIONS))
    assert lay_out_images(graph) == graph, "it has nothing more to do"
    turned = [lies_last(node) for node in graph.nodes if node.op in CONVOLUTIONS]
    assert sorted(turned) == [False, True, True, True]
    between, = [node for node in graph.nodes if node.op in CONVOLUTIONS and not lies_last(node)]
    assert between.inputs[0].op.name == "relu" and between.inputs[0].inputs[0].op.name == "group_norm"
    feeds: dict[Node, Any] = {x: np.random.default_rng(x["index"]).standard_normal(x.shape).astype(np.float32)
                              for x in graph.inputs}
    for want, got in zip(evaluate(list(parse(REGIONS).outputs), feeds), evaluate(list(graph.outputs), feeds),
                         strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)  # sums of 72 products, in another order


BLOCK = f"""graph(%x: f32[4,8,32,32], %w: f32[8,8,3,3], %g: f32[4,8,32,32]) {{
    %n: (f32[4,8,32,32], f32[4,2], f32[4,2]) = group_norm_saving(%x, groups=2, eps=0.1)
    %y: f32[4,8,32,32] = item(%n, index=0)
    %a: f32[4,8,32,32] = silu(%y)
    %b: f32[4,8,32,32] = {CONVOLVED.format("a", "w")}
    %c: f32[4,8,32,32] = {CONVOLVED.format("b", "w")}
    %e: f32[4,8,32,32] = {CONVOLVED.format("c", "w")}
    %m: (f32[4,8,32,32], f32[4,2], f32[4,2]) = group_norm_saving(%e, groups=2, eps=0.1)
    %o: f32[4,8,32,32] = item(%m, index=0)
    %p: f32[4,2] = item(%m, index=1)
    %q: f32[4,2] = item(%m, index=2)
    %f: (f32[4,8,32,32]) = group_norm_from_saved(%g, %p, %q, %e, groups=2, eps=0.1)
    %h: f32[4,8,32,32] = item(%f, index=0)
    %i: f32[4,8,32,32] = silu_backward(%h, %y)
    return %o, %i }}"""
"""Three convolutions between two norms, and of the backward what comes behind the second."""


def test_what_comes_from_a_norm_is_copied_once_and_nothing_reads_two_orders() -> None:
    graph = lay_out_images(parse(BLOCK))
    assert lay_out_images(graph) == graph, "it has nothing more to do"
    images = [node for node in graph.nodes if node.op.name == "cast" and node.type.numel == graph.inputs[0].type.numel]
    (made, *_), (kept, *_) = images[0].inputs, images[1].inputs
    assert made.op is movement.permute and made.inputs[0].op.name == "item", "where the region begins"
    assert lies_last(kept), "and where it ends, for the norm and its backward"
    copies = {x for node in graph.nodes if node.op.name.startswith("group_norm") for x in node.inputs} & set(images)
    assert copies == {images[1]}
    slope, = [node for node in graph.nodes if node.op.name == "silu_backward"]
    assert len({strides_of(x) for x in slope.inputs}) == 1
    feeds: dict[Node, Any] = {x: np.random.default_rng(x["index"]).standard_normal(x.shape).astype(np.float32)
                              for x in graph.inputs}
    for want, got in zip(evaluate(list(parse(BLOCK).outputs), feeds), evaluate(list(graph.outputs), feeds),
                         strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)  # sums of 72 products, in another order


def test_a_part_of_a_turned_image_is_turned_with_it() -> None:
    """As the gradient of one of several images that were joined."""
    graph = lay_out_images(parse(BEFORE.replace(
        "%s: f32[4,8,32,32] = add(%r, %m)",
        "%h: f32[4,4,32,32] = slice(%r, starts=(0,0,0,0), stops=(4,4,32,32), steps=(1,1,1,1))\n"
        "    %s: f32[4,4,16,16] = avg_pool(%h, sizes=(16,16), window=(2,2), stride=(2,2), padding=(0,0), "
        "include_pad=True, divisor=0)")))
    assert lies_last(graph.outputs[0])
    assert lay_out_images(graph) == graph, "it has nothing more to do"


def image(index: int, *shape: int) -> Node:
    return leaves.input(index=index, type=tensor_type(shape, float32, cpu))


HOW = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
POOL = {"window": (2, 2), "stride": (2, 2), "padding": (0, 0)}
MEAN = {**POOL, "include_pad": True, "divisor": 0}
NEAREST = {"mode": "nearest", "align_corners": False, "scales": (0.0, 0.0)}
CASES: dict[str, Callable[[Node], Node]] = {
    "convolution": lambda x: OPS["convolution"](x, image(1, 5, 6, 3, 3), **HOW),
    "convolution_input": lambda x: OPS["convolution_input"](x, image(1, 6, 5, 3, 3), sizes=(8, 4), **HOW),
    "batch_norm": lambda x: OPS["batch_norm"](x, eps=1e-5),
    "batch_norm_eval": lambda x: OPS["batch_norm_eval"](x, image(1, 6), image(2, 6), eps=1e-5),
    "batch_norm_backward": lambda x: OPS["batch_norm_backward"](x, x, image(1, 6), image(2, 6), eps=1e-5),
    "max_pool": lambda x: OPS["max_pool"](x, sizes=(4, 2), dilation=(1, 1), **POOL),
    "avg_pool": lambda x: OPS["avg_pool"](x, sizes=(4, 2), **MEAN),
    "avg_pool_backward": lambda x: OPS["avg_pool_backward"](x, shape=(16, 8), **MEAN),
    "adaptive_avg_pool": lambda x: OPS["adaptive_avg_pool"](x, sizes=(4, 2)),
    "adaptive_avg_pool_backward": lambda x: OPS["adaptive_avg_pool_backward"](x, shape=(16, 8)),
    "resample": lambda x: OPS["resample"](x, sizes=(16, 8), **NEAREST),
    "resample_backward": lambda x: OPS["resample_backward"](x, shape=(4, 2), **NEAREST),
    "convolution_input of one place": lambda x: OPS["convolution_input"](
        x, image(1, 6, 5, 1, 1), sizes=(8, 4), **{**HOW, "padding": (0, 0)}),
    **{f"{name} {mode}": lambda x, name=name, mode=mode, at=at: OPS[name](  # type: ignore[misc]
        x, **{at: (16, 8) if at == "sizes" else (4, 2)}, mode=mode, align_corners=False, scales=(0.0, 0.0))
       for mode in ("nearest-exact", "linear", "cubic") for name, at in (("resample", "sizes"),
                                                                         ("resample_backward", "shape"))},
}


def run(node: Node, *operands: torch.Tensor) -> torch.Tensor:
    row = lowering_for(node.op.name, tuple(x.type for x in node.inputs), node.attributes)
    assert row is not None and row.kind == "fresh"
    found: Any = row.function(*operands, **node.attributes)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("name", CASES)
def test_calls_make_images_in_the_order_that_the_pass_counts_on(name: str) -> None:
    """In both orders: of what has its channels first torch makes the like."""
    x = image(0, 2, 6, 8, 4)
    turned = movement.permute(image(0, 2, 8, 4, 6), axes=FIRST)
    for operand in (x, turned):
        node = CASES[name](operand)
        values = [torch.rand(n.shape) + 0.5 for n in node.inputs]
        values = [v.to(memory_format=torch.channels_last) if n is turned else v
                  for v, n in zip(values, node.inputs, strict=True)]
        shown = OPS["item"](node, index=0) if type(node.type) is tuple else node
        assert run(node, *values).stride() == strides_of(shown)
        assert lies_last(shown) == (operand is turned)


def test_a_maximum_pool_s_gradient_follows_too() -> None:
    x = torch.rand(2, 6, 8, 4)
    for order in (torch.contiguous_format, torch.channels_last):
        y, places = torch.max_pool2d(x.to(memory_format=order), 2), torch.nn.functional.max_pool2d(
            x.to(memory_format=order), 2, return_indices=True)[1]
        node = OPS["max_pool_backward"](image(0, 2, 6, 4, 2), leaves.input(index=1, type=tensor_type(
            (2, 6, 4, 2), genesis.int64, cpu)), shape=(8, 4), dilation=(1, 1), **POOL)
        assert run(node, y, places).is_contiguous(memory_format=order)


def test_every_follower_is_tried() -> None:
    tried = {case.split()[0] for case in CASES}
    assert {op.name for op in (*FOLLOWERS, *CONVOLUTIONS)} == {*tried, "max_pool_backward"}


def test_values_are_the_same() -> None:
    graph = parse(BEFORE)
    feeds: dict[Node, Any] = {x: np.random.default_rng(x["index"]).standard_normal(x.shape).astype(np.float32)
                              for x in graph.inputs}
    for before, after in zip(evaluate(list(graph.outputs), feeds), evaluate(list(lay_out_images(graph).outputs), feeds),
                             strict=True):
        np.testing.assert_allclose(after, before, atol=1e-5)  # sums of 27 products, in another order


def network(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
            self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16)
            self.wide = nn.ConvTranspose2d(16, 8, 2, stride=2)
            self.head = nn.Linear(24 * 8 * 8, 5)

        def forward(self, x: Any) -> tuple[Any, Any]:
            kept = lib.relu(self.norm(self.first(x)))
            y = nn.functional.max_pool2d(kept, 2)
            y = y * lib.sigmoid(y.mean((2, 3), keepdim=True))
            y = self.wide(nn.functional.silu(self.deep(y)))
            y = lib.cat([y, kept], 1)
            y[:, 0] += 1
            return self.head(nn.functional.avg_pool2d(y, 2).flatten(1)), kept
    return Net()


def denoiser(lib: Any) -> Any:
    """Group norms before and between convolutions, of one place too; images that are made larger and joined."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, stride=2, padding=1)
            self.norms = nn.ModuleList([nn.GroupNorm(4, n) for n in (16, 32, 8)])
            self.deep, self.wide = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(32, 8, 1)
            self.head = nn.Linear(8 * 16 * 16, 5)

        def forward(self, x: Any) -> tuple[Any, Any]:
            silu, larger = nn.functional.silu, nn.functional.interpolate
            kept = self.first(x)
            y = self.deep(silu(self.norms[0](self.down(kept))))
            y = larger(y, scale_factor=2, mode="nearest") + larger(y, size=(16, 16), mode="bilinear")
            y = self.wide(silu(self.norms[1](lib.cat([y, kept], 1))))
            return self.head(self.norms[2](y).flatten(1)), kept
    return Net()


@pytest.mark.parametrize("network", [network, denoiser])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_network_trains_as_torch_s_does(compiled: bool, network: Callable[[Any], Any]) -> None:
    """With a value of the middle that is kept, read in between, and of which the order shows."""
    found = []
    weights = {k: v.numpy() for k, v in network(torch).state_dict().items()}
    draws = np.random.default_rng(0)
    batches = [(draws.standard_normal((n, 3, 16, 16)).astype(np.float32), draws.integers(0, 5, n)) for n in (8, 8, 6)]
    for lib in (torch, genesis):
        model = network(lib)
        model.load_state_dict({k: lib.tensor(v) for k, v in weights.items()})
        optimizer = lib.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def step(x: Any, target: Any, lib: Any = lib, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            logits, kept = model(x)
            loss = lib.nn.functional.cross_entropy(logits, target)
            loss.backward()
            optimizer.step()
            return loss, kept
        called = lib.compile(step) if compiled and lib is genesis else step
        values: list[Any] = []
        for x, target in batches:
            loss, kept = called(lib.tensor(x), lib.tensor(target))
            assert kept.stride() == (16 * 256, 256, 16, 1)
            values += [loss.item(), kept.detach().reshape(-1)[:100].numpy().copy(), kept.detach().numpy().sum()]
        model.eval()
        with lib.no_grad():
            values.append(model(lib.tensor(batches[0][0]))[0].numpy())
        values += [v.detach().numpy() for v in model.state_dict().values()]
        found.append(values)
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)  # three steps over sums of 400 terms in float32


def test_no_image_is_turned_between_two_convolutions() -> None:
    plans: list[Any] = []
    model = genesis.nn.Sequential(genesis.nn.Conv2d(16, 16, 3, padding=1), genesis.nn.BatchNorm2d(16),
                                  genesis.nn.ReLU(), genesis.nn.Conv2d(16, 16, 3, padding=1))
    x = genesis.randn(4, 16, 16, 16)
    genesis.eval(x, *model.parameters())
    with engine.observe(plans.append):
        loss = model(x).square().sum()
        loss.backward()
        genesis.eval(*[p.grad for p in model.parameters()])
    graph: Graph = plans[-1].stages["contiguous"]
    copies = [node for node in graph.nodes if node.op.name == "cast" and node.type.numel == x.numel()]
    assert len(copies) == 1, "the batch alone"
