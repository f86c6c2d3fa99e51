"""Layers on CUDA beside the CPU: convolutions, pools, norms, resampling, attention with masks; small networks train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import func, nn
from genesis.ir.node import _table as interned
from tests.gpu.compare import check, check_gradients, integers, numbers, parts, same
from tests.gpu.conftest import forget_plans
from tests.sweeping import by_default


@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2}])
def test_convolutions(cuda, options: dict[str, Any]) -> None:
    weight = numbers(20, 16 // options.get("groups", 1), 3, 3, seed=1)
    check_gradients(lambda x, w, b: F.conv2d(x, w, b, **options), numbers(2, 16, 9, 8), weight, numbers(20),
                    tolerance=1e-5)


def test_transposed_convolution(cuda) -> None:
    check_gradients(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1), numbers(2, 16, 4, 5),
                    numbers(16, 8, 3, 3, seed=1), tolerance=1e-5)


def test_convolutions_of_other_dimensions(cuda) -> None:
    check_gradients(lambda x, w: F.conv1d(x, w, stride=2), numbers(2, 3, 20), numbers(17, 3, 4, seed=1), tolerance=1e-5)
    check_gradients(lambda x, w: F.conv3d(x, w, padding=1), numbers(1, 4, 3, 4, 5), numbers(6, 4, 2, 2, 2, seed=1),
                    tolerance=1e-5)


def test_depthwise_convolution(cuda) -> None:
    check_gradients(lambda x, w: F.conv2d(x, w, padding=1, groups=6), numbers(2, 6, 7, 7), numbers(6, 1, 3, 3, seed=1),
                    tolerance=1e-5)


def test_the_gradient_of_a_gradient_of_a_convolution(cuda) -> None:
    def program(x: Any, w: Any) -> list[Any]:
        x, w = x.requires_grad_(), w.requires_grad_()
        g, = genesis.autograd.grad((F.conv2d(x, w) ** 2).sum(), [x], create_graph=True)
        return list(genesis.autograd.grad((g * g).sum(), [x, w]))
    check(program, numbers(1, 4, 5, 5), numbers(6, 4, 3, 3, seed=1), tolerance=1e-4)


@by_default("gpu-*", "host-both ways-*")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}], ids=["forwards", "both ways"])
def test_recurrent_layers(cuda, kind: str, options: dict[str, Any]) -> None:
    layer = getattr(nn, kind)(6, 8, **options)
    names = [name for name, _ in layer.named_parameters()]

    def program(x: Any, *weights: Any) -> Any:
        return func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))[0]
    check_gradients(program, numbers(4, 2, 6), *[numbers(*p.shape, seed=number) * 0.3
                                                 for number, p in enumerate(layer.parameters())], tolerance=1e-5)


def test_a_recurrent_layer_is_recorded_as_one_op(cuda) -> None:
    """Its steps, some fourteen nodes each, are written out when it is compiled."""
    layer, before = nn.LSTM(3, 4).to("cuda"), len(interned)
    result, _ = layer(genesis.ones(30, 2, 3, device="cuda"))
    assert len(interned) - before < 30
    assert result.shape == (30, 2, 4)


@pytest.mark.parametrize("pool", [
    lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 2, return_indices=True),
    lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    lambda x: F.adaptive_max_pool2d(x, 3), lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2)])
def test_pools(cuda, pool: Any) -> None:
    check_gradients(pool, numbers(2, 3, 9, 8), tolerance=1e-5)


@pytest.mark.parametrize("resize", [
    lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, size=(5, 11), mode="bilinear"),
    lambda x: F.interpolate(x, size=9, mode="bicubic", align_corners=True), lambda x: F.unfold(x, 3, padding=1),
    lambda x: F.fold(F.unfold(x, 2), (4, 6), 2), lambda x: F.pad(x, (1, 2, 2, 1), "reflect"),
    lambda x: F.pad(x, (1, 2, 0, 3), "circular"), lambda x: F.pixel_shuffle(x, 2)])
def test_other_sizes(cuda, resize: Any) -> None:
    check_gradients(resize, numbers(2, 4, 4, 6), tolerance=1e-5)


def test_norms(cuda) -> None:
    """Times noise where a weight's gradient would else be nearly the sum of a normed image, which cancels."""
    x, w, b, noise = numbers(4, 6, 5, 3), numbers(6, seed=1), numbers(6, seed=2), numbers(4, 6, 5, 3, seed=3)
    check_gradients(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, w, b, tolerance=1e-5)
    check_gradients(lambda x, w, b: F.group_norm(x, 2, w, b), x, w, b, tolerance=1e-5)
    check_gradients(lambda x, w, b, n: F.instance_norm(x, None, None, w, b) * n, x, w, b, noise, tolerance=1e-5)
    check_gradients(lambda x: F.local_response_norm(x, 3), x, tolerance=1e-5)


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "selu", "celu", "mish", "softplus", "softshrink", "hardshrink",
                                  "hardsigmoid", "hardswish", "relu6", "logsigmoid", "glu", "tanhshrink"])
def test_activations(cuda, name: str) -> None:
    check_gradients(getattr(F, name), numbers(7, 8) * 4, tolerance=1e-5)


def test_bags(cuda) -> None:
    ids, offsets = integers(0, 9, 20), np.array([0, 3, 3, 11])
    for mode in ("sum", "mean", "max"):
        check_gradients(lambda w, i, o, mode=mode: F.embedding_bag(i, w, o, mode=mode), numbers(9, 5), ids, offsets,
                        tolerance=1e-5)


MASKS = {"keep": numbers(40, 50, seed=3) > -0.5, "keep keys": numbers(2, 1, 1, 50, seed=3) > -0.5,
         "add": numbers(40, 50, seed=3)}


@by_default("gpu-*", "host-float32-add", "host-bfloat16-keep*")
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_with_masks_and_shared_heads(cuda, name: str, dtype: str) -> None:
    kind, mask = getattr(genesis, dtype), MASKS[name]

    def program(q: Any, k: Any, v: Any) -> Any:
        where = genesis.tensor(mask, device=q.device)
        where = where if where.dtype is genesis.bool else where.to(kind)
        return F.scaled_dot_product_attention(q.to(kind), k.to(kind), v.to(kind), where, enable_gqa=True)
    check_gradients(program, numbers(2, 4, 40, 16), numbers(2, 2, 50, 16, seed=1), numbers(2, 2, 50, 16, seed=2),
                    tolerance=1e-4 if dtype == "float32" else 3e-2)


def test_a_convolutional_network_trains_as_on_the_cpu(cuda) -> None:
    images, classes = numbers(4, 3, 10, 10), integers(0, 5, 4)

    def train(device: str) -> list[Any]:
        genesis.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                            nn.Conv2d(16, 20, 3, stride=2), nn.GroupNorm(4, 20), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                            nn.Flatten(), nn.Linear(20, 5)).to(device)
        step = genesis.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        x, target = genesis.tensor(images, device=device), genesis.tensor(classes, device=device)
        losses = []
        for _ in range(3):
            loss = F.cross_entropy(net(x), target)
            step.zero_grad()
            loss.backward()
            step.step()
            losses.append(loss.detach())
        return [*losses, net[1].running_mean, net[1].running_var, net[0].weight.detach()]
    wanted = train("cpu")
    genesis.eval(wanted)
    for y, want in zip(parts(train("cuda")), wanted, strict=True):
        same(y, want.numpy(), 1e-3)


def test_an_encoder_layer_with_padding(cuda) -> None:
    padding = np.array([[False] * 6, [False] * 4 + [True] * 2])

    def program(x: Any) -> Any:
        genesis.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(x.device)
        return layer(x, src_key_padding_mask=genesis.tensor(padding, device=x.device))
    check_gradients(program, numbers(2, 6, 16), tolerance=1e-4)


@pytest.mark.parametrize("rows", [2, 1 << 20])
def test_batch_norm_of_odd_images_by_columns_and_by_rows(cuda, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sums are split along the outer axis, or cut out of all; then for another batch."""
    from genesis.passes.graph import split_reductions as split
    for name, value in (("SMALLEST", 100), ("SHORTEST_SPLIT", 8), ("FEWER_SPLITS", (16, 8)), ("MULTIPLE", 8),
                        ("FEWEST_COLUMNS", 8), ("WHOLE_ROW", 0), ("FEWEST_ROWS", rows)):
        monkeypatch.setattr(split, name, value)
    forget_plans()
    for batch in (19, 27):
        check_gradients(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), numbers(batch, 2, 5, 5) + 3,
                        numbers(2, seed=1), numbers(2, seed=2), tolerance=2e-5)
