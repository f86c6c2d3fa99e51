"""Steps that combine many elements into each: products, attention, convolutions, pools, resampling."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.gpu.grammar.pointwise import pattern, pick
from tests.gpu.grammar.values import Step, Value


def rows_of(x: Any) -> Any:
    """As a batch of channels of one axis: (batch, channels, length)."""
    while x.ndim < 3:
        x = x.unsqueeze(0)
    return x.flatten(0, -3)


def images_of(x: Any) -> Any:
    """As a batch of channels of two axes: (batch, channels, height, width)."""
    while x.ndim < 4:
        x = x.unsqueeze(0)
    return x.flatten(0, -4)


def with_channels(x: Any) -> Any:
    """x; RuntimeError for images without channels, of which torch makes images without channels again."""
    if not x.shape[1]:
        raise RuntimeError("no channels")
    return x


def weights(lib: Any, x: Any, *shape: int) -> Any:
    """Weights that a gradient flows to."""
    return pattern(lib, shape, x) + 0.25 * x.mean()


# name: (function of lib, F, x; ulp; exact)
PRODUCTS: dict[str, tuple[Any, float, bool]] = {
    "x @ xT": (lambda lib, f, x: x @ x.transpose(-1, -2), 4, True),
    "vector": (lambda lib, f, x: x @ pattern(lib, (x.shape[-1],), x), 4, True),
    "vector from the left": (lambda lib, f, x: pattern(lib, (x.shape[-2],), x) @ x, 4, True),
    "linear": (lambda lib, f, x: f.linear(x, weights(lib, x, 5, x.shape[-1]), weights(lib, x, 5)), 8, False),
    "matmul": (lambda lib, f, x: lib.matmul(x, pattern(lib, (x.shape[-1], 7), x)), 4, True),
    "einsum": (lambda lib, f, x: lib.einsum("...ij,...ik->...jk", x, x), 4, True),
    "bmm": (lambda lib, f, x: lib.bmm(rows_of(x), rows_of(x).transpose(1, 2)), 4, True),
    "outer": (lambda lib, f, x: lib.outer(x.reshape(-1)[:9], x.reshape(-1)[-7:]), 1, True),
    "relu of linear": (lambda lib, f, x: f.relu(x @ weights(lib, x, x.shape[-1], 3)) + 0.5, 8, False),
    "attention": (lambda lib, f, x: f.scaled_dot_product_attention(images_of(x), images_of(x), images_of(x) * 0.5), 16,
                  False),
    "causal attention": (lambda lib, f, x: f.scaled_dot_product_attention(
        images_of(x), images_of(x) + 0.5, images_of(x), is_causal=True), 16, False),
    "masked attention": (lambda lib, f, x: f.scaled_dot_product_attention(
        images_of(x), images_of(x), images_of(x), attn_mask=pattern(lib, (x.shape[-2], x.shape[-2]), x), scale=0.25),
        16, False),
}

WINDOWS: dict[str, tuple[Any, float, bool]] = {
    "conv1d": (lambda lib, f, x: f.conv1d(
        with_channels(rows_of(x)), weights(lib, x, 3, rows_of(x).shape[1], 3), padding=1), 8, False),
    "conv1d wide": (lambda lib, f, x: f.conv1d(
        with_channels(rows_of(x)), weights(lib, x, 2, rows_of(x).shape[1], 2), weights(lib, x, 2), stride=2, padding=2,
        dilation=2), 8, False),
    "conv2d": (lambda lib, f, x: f.conv2d(
        with_channels(images_of(x)), weights(lib, x, 4, images_of(x).shape[1], 3, 2), padding=1), 8, False),
    "conv2d groups": (lambda lib, f, x: f.conv2d(
        images_of(x), weights(lib, x, 2 * images_of(x).shape[1], 1, 2, 2), stride=(1, 2), padding=1,
        groups=images_of(x).shape[1]), 8, False),
    "conv_transpose1d": (lambda lib, f, x: f.conv_transpose1d(
        rows_of(x), weights(lib, x, rows_of(x).shape[1], 2, 3), stride=2, padding=1), 8, False),
    "conv_transpose2d": (lambda lib, f, x: f.conv_transpose2d(
        images_of(x), weights(lib, x, images_of(x).shape[1], 2, 2, 2), stride=2), 8, False),
    "max_pool1d": (lambda lib, f, x: f.max_pool1d(rows_of(x), 3, 2, 1), 0, True),
    "max_pool2d": (lambda lib, f, x: f.max_pool2d(images_of(x), 2, 1, padding=1, dilation=2), 0, True),
    "avg_pool1d": (lambda lib, f, x: f.avg_pool1d(rows_of(x), 3, 2, 1), 8, False),
    "avg_pool2d": (lambda lib, f, x: f.avg_pool2d(images_of(x), 2, 1, 1, count_include_pad=False), 8, False),
    "adaptive_avg_pool1d": (lambda lib, f, x: f.adaptive_avg_pool1d(rows_of(x), 3), 8, False),
    "adaptive_avg_pool2d": (lambda lib, f, x: f.adaptive_avg_pool2d(images_of(x), (2, 3)), 8, False),
    "adaptive_max_pool1d": (lambda lib, f, x: f.adaptive_max_pool1d(rows_of(x), 2), 0, True),
    "unfold": (lambda lib, f, x: f.unfold(images_of(x), 2, padding=1), 0, True),
    "fold": (lambda lib, f, x: f.fold(f.unfold(images_of(x), 2, padding=1), tuple(x.shape[-2:]), 2, padding=1), 4,
             True),
    "nearest": (lambda lib, f, x: f.interpolate(rows_of(x), size=5, mode="nearest"), 0, True),
    "linear": (lambda lib, f, x: f.interpolate(rows_of(x), scale_factor=2.0, mode="linear"), 8, False),
    "bilinear": (lambda lib, f, x: f.interpolate(images_of(x), (3, 4), mode="bilinear", align_corners=True), 8, False),
    "bicubic": (lambda lib, f, x: f.interpolate(images_of(x), (4, 3), mode="bicubic"), 16, False),
    "area": (lambda lib, f, x: f.interpolate(rows_of(x), 3, mode="area"), 8, False),
    "batch_norm": (lambda lib, f, x: f.batch_norm(rows_of(x), None, None, training=True, eps=0.25), 16, False),
    "batch_norm eval": (lambda lib, f, x: f.batch_norm(
        rows_of(x), pattern(lib, (rows_of(x).shape[1],), x), pattern(lib, (rows_of(x).shape[1],), x) + 2.0,
        eps=0.25), 16, False),
    "group_norm": (lambda lib, f, x: f.group_norm(rows_of(x), 1, eps=0.25), 16, False),
    "group_norm affine": (lambda lib, f, x: f.group_norm(
        rows_of(x), rows_of(x).shape[1], weights(lib, x, rows_of(x).shape[1]), weights(lib, x, rows_of(x).shape[1]),
        eps=0.25), 16, False),
    "instance_norm": (lambda lib, f, x: f.instance_norm(rows_of(x), eps=0.25), 16, False),
    "prelu": (lambda lib, f, x: f.prelu(rows_of(x), weights(lib, x, rows_of(x).shape[1])), 8, False),
    "glu": (lambda lib, f, x: f.glu(lib.cat((x, x + 1.0), -1), -1), 8, False),
    "pixel_shuffle": (lambda lib, f, x: f.pixel_shuffle(images_of(x).repeat(1, 4, 1, 1), 2), 0, True),
    "cosine_similarity": (lambda lib, f, x: f.cosine_similarity(x + 1.0, x - 0.5, dim=-1, eps=0.5), 16, False),
}


def product(draw: Any, values: list[Value]) -> Step | None:
    """Products of matrices, and attention."""
    return _combined(draw, values, PRODUCTS)


def window(draw: Any, values: list[Value]) -> Step | None:
    """Convolutions, pools, resampling and the norms over channels."""
    return _combined(draw, values, WINDOWS)


def _combined(draw: Any, values: list[Value], table: dict[str, tuple[Any, float, bool]]) -> Step | None:
    at = pick(draw, values, lambda x: x.real and x.shape)
    name = draw(st.sampled_from(sorted(table)))
    function, ulp, exact = table[name]
    return None if at is None else Step(
        name, lambda lib, x: function(lib, lib.nn.functional, x), (at,), ulp, exact, scale=0.0 if exact else 0.5)


FAMILIES = (product, product, window, window)
