"""A row's values that are read at a second place of the row are computed there, in the kernel of its reductions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genesis.ir import Graph, Node
from genesis.ir.ops import composite, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.types import bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.programs import check, inputs, kinds


def halves(x: Node, axis: int) -> tuple[Node, Node]:
    """Both halves of each row."""
    size = x.type.shape[axis]
    return movement.take_range(x, axis, 0, size // 2), movement.take_range(x, axis, size // 2, size)


def turned(x: Node, cos: Node, sin: Node) -> Node:
    """Rotary positions as Llama's code writes them: the halves change places, one of them negated."""
    low, high = halves(x, x.type.ndim - 1)
    half = movement.concat(p.neg(high), low, axis=x.type.ndim - 1)
    return x * movement.expand(cos, shape=x.type.shape) + half * movement.expand(sin, shape=x.type.shape)


def by_halves(x: Node, cos: Node, sin: Node) -> Node:
    """The same, a half at a time."""
    last = x.type.ndim - 1
    low, high = halves(x, last)
    c, s = (movement.expand(halves(t, t.type.ndim - 1)[0], shape=low.type.shape) for t in (cos, sin))
    return movement.concat(low * c - high * s, high * c + low * s, axis=last)


def permuted(x: Node, cos: Node, sin: Node) -> Node:
    """Behind a view that makes heads of the row."""
    heads, size = x.type.shape
    return turned(movement.permute(movement.reshape(x, shape=(heads, 1, size)), axes=(1, 0, 2)), cos, sin)


@pytest.mark.parametrize("rotation", [turned, by_halves, permuted])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_a_norm_and_the_rotation_behind_it_are_one_kernel(rotation: Callable[..., Node], dtype: object) -> None:
    x, gain, cos, sin = inputs((6, 16), (16,), (1, 16), (1, 16), dtype=dtype)  # type: ignore[arg-type]
    norm = composite.rms_norm(x, gain, ndim=1, eps=1e-6)
    assert kinds(check([x, gain, cos, sin], rotation(norm, cos, sin))) == ["loop"]


def heads_first(x: Node) -> Node:
    """(T, H, d) → (H, T, d), and back."""
    return movement.permute(x, axes=(1, 0, 2))


@pytest.mark.parametrize("tokens", [4, 6])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_heads_that_are_normed_by_tokens_and_rotated_by_heads_are_one_kernel(tokens: int, dtype: object) -> None:
    """Half of the rotation is pointwise in another order of the rows, as attention's passes leave it."""
    x, gain, *given = inputs((tokens, 4, 16), (16,), (tokens, 16), (tokens, 16), dtype=dtype)  # type: ignore[arg-type]
    norm = composite.rms_norm(x, gain, ndim=1, eps=1e-6)
    cos, sin = (movement.reshape(t, shape=(1, tokens, 16)) for t in given)
    by_heads = heads_first(norm)
    low, high = halves(by_heads, 2)
    half = movement.concat(p.neg(high), low, axis=2) * movement.expand(sin, shape=by_heads.type.shape)
    straight = norm * heads_first(movement.expand(cos, shape=by_heads.type.shape))
    assert kinds(check([x, gain, *given], straight + heads_first(half))) == ["loop"]


def test_rotated_heads_that_something_else_reads_by_heads_are_computed_in_both_orders_apart() -> None:
    """In its own order the rotated value needs norms of other rows than the one at hand."""
    x, gain, sin = inputs((6, 4, 16), (16,), (6, 16))
    norm = composite.rms_norm(x, gain, ndim=1, eps=1e-6)
    by_heads = heads_first(norm)
    half = movement.concat(*halves(by_heads, 2)[::-1], axis=2) * movement.reshape(sin, shape=(1, 6, 16))
    assert len(check([x, gain, sin], heads_first(half) + norm * 2.0, half).groups) > 1


def test_a_turn_that_reads_other_rows_is_no_rotation_of_one() -> None:
    """Of (T, H, d) behind a norm, each head beside the next token's: pointwise ops merge, the norm stays apart."""
    x, gain = inputs((6, 4, 16), (16,))
    norm = composite.rms_norm(x, gain, ndim=1, eps=1e-6)
    later = movement.concat(movement.take_range(norm, 0, 1, 6), movement.take_range(norm, 0, 0, 1), axis=0)
    assert len(check([x, gain], heads_first(heads_first(p.neg(later)) * 2.0) + norm).groups) == 2


def test_a_normed_row_that_is_kept_too_is_not_computed_twice_in_place() -> None:
    """Its memory may not be the operand's: other elements of the row are still read there."""
    x, gain, cos, sin = inputs((6, 16), (16,), (1, 16), (1, 16))
    norm = composite.rms_norm(x, gain, ndim=1, eps=1e-6)
    schedule = check([x, gain, cos, sin], turned(norm, cos, sin), norm)
    assert not any(operand is x for group in schedule.groups for _, operand in group.in_place)


def test_other_rows_of_what_a_reduction_made_are_read_from_memory() -> None:
    x, = inputs((6, 16))
    norm = x / movement.expand(r.sum(p.abs(x), axes=(1,), keepdims=True), shape=(6, 16))
    below = movement.concat(movement.take_range(norm, 0, 1, 6), movement.take_range(norm, 0, 0, 1), axis=0)
    assert len(check([x], norm + below).groups) == 2


def test_what_is_dear_is_stored() -> None:
    """Erf, sine and tanh again at a second place cost more than a kernel."""
    x, cos, sin = inputs((6, 16), (1, 16), (1, 16))
    scaled = x / movement.expand(r.sum(p.abs(x), axes=(1,), keepdims=True), shape=(6, 16))
    dear = p.tanh(p.sin(p.erf(p.sin(p.tanh(scaled)))))
    assert len(fuse(Graph((x, cos, sin), (turned(dear, cos, sin),))).groups) > 1
