"""Layouts: which part of a tensor a rank has."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

import genesis
from genesis import nn
from genesis.distributed.tensor import Layout, Partial, Replicate, Shard
from genesis.frontend.draw_parts import shown_part
from genesis.nn.parameter import ShardedParameter


class Mesh(NamedTuple):
    """A mesh without a run."""

    shape: tuple[int, ...]
    here: list[int]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def root(self) -> Mesh:
        return self

    @property
    def root_dims(self) -> tuple[int, ...]:
        return tuple(range(len(self.shape)))

    def get_coordinate(self) -> list[int]:
        return self.here


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 7, 8])
def test_chunks_are_torchs(size: int) -> None:
    expected = [len(x) for x in torch.arange(size).chunk(4)] if size else []
    found = [last - first for first, last in (Shard(0).part(size, at, 4) for at in range(4))]
    assert [x for x in found if x] == [x for x in expected if x]


def test_a_layout_says_where_its_part_is() -> None:
    mesh: Any = Mesh((2, 2), [1, 0])
    both = Layout(mesh, (Shard(0), Shard(1)), (5, 4))
    assert both.region() == [(3, 5), (0, 2)] and both.region((0, 1)) == [(0, 3), (2, 4)]
    assert both.own(genesis.arange(20).reshape(5, 4)).tolist() == [[12, 13], [16, 17]]
    twice = Layout(mesh, (Shard(0), Shard(0)), (8,))
    assert twice.region() == [(4, 6)]
    assert both.is_first_copy() and not Layout(mesh, (Replicate(), Shard(0)), (8,)).is_first_copy()
    assert Layout(mesh, (Replicate(), Shard(0)), (8,)).sharded_dims() == [1]
    assert Partial().is_partial() and Replicate().is_replicate() and Shard(1).is_shard(1)


def test_a_view_of_a_part_shows_a_part_of_what_the_whole_shows() -> None:
    mesh: Any = Mesh((2,), [1])
    layout = Layout(mesh, (Shard(1),), (6, 10, 3))
    part = genesis.zeros(6, 5, 3)
    same, turned = shown_part(layout, part), shown_part(layout, part.permute(2, 1, 0)[1:])
    assert same is not None and turned is not None
    assert same == ((6, 10, 3), ((0, 6), (5, 10), (0, 3)))
    assert turned == ((2, 10, 6), ((0, 2), (5, 10), (0, 6)))
    assert turned.own(genesis.zeros(2, 10, 6)).shape == (2, 5, 6)
    assert shown_part(layout, part[2]) == ((10, 3), ((5, 10), (0, 3)))
    assert shown_part(layout, part.view(2, 3, 5, 1, 3)[:, ::2]) == (
        (2, 2, 10, 1, 3), ((0, 2), (0, 2), (5, 10), (0, 1), (0, 3)))
    for view in (part[:, 1:], part[:, ::2], part[:, 0], part.view(30, 3), part.flatten(), part[:, :4]):
        assert shown_part(layout, view) is None


def test_a_layout_that_does_not_fit_is_refused() -> None:
    mesh: Any = Mesh((2,), [0])
    with pytest.raises(RuntimeError, match="as many placements"):
        Layout(mesh, (Shard(0), Shard(0)), (4,))
    with pytest.raises(RuntimeError, match="no dimension 1"):
        Layout(mesh, (Shard(1),), (4,))


def test_a_sharded_parameter_is_trained_like_any_other() -> None:
    mesh: Any = Mesh((2,), [0])
    part = ShardedParameter(genesis.ones(2, 3), Layout(mesh, (Shard(0),), (4, 3)))
    module = nn.Module()
    module.weight = part
    assert list(module.parameters()) == [part] and part.sharding.shape == (4, 3) and part.placements == (Shard(0),)
    (part * 2).sum().backward()
    genesis.optim.SGD([part], lr=0.5).step()
    assert part.to_local().tolist() == [[0, 0, 0]] * 2
    assert nn.Parameter(genesis.ones(1)).sharding is None
    assert part.layout is nn.Parameter(genesis.ones(1)).layout is genesis.strided  # torch's name for something else


def test_gradients_of_plain_leaves_are_clipped() -> None:
    w = genesis.zeros(2, requires_grad=True)
    w.grad = genesis.tensor([3.0, 4.0])
    assert nn.utils.clip_grad_norm_([w], 1.0).item() == 5
