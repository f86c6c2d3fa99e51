"""Over sizes that may change a training step has no more kernels than over the same sizes as plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import genesis
import genesis.nn.functional as F
from genesis import nn
from genesis.engine.compilation import Compiled, compile_graph
from genesis.ir.types import Device
from tests.engine.symbolic.idle import Counting, counting

CHANNELS = 8


@pytest.fixture
def idle() -> Iterator[Counting]:
    """An idle GPU."""
    with counting() as backend:
        yield backend


class Normalized(nn.Module):
    """By hand: whatever axes are normalized, then scaled by channel."""

    def __init__(self, axes: tuple[int, ...]):
        super().__init__()
        self.axes, self.scale = axes, nn.Parameter(genesis.ones(CHANNELS, 1, 1))

    def forward(self, x: Any) -> Any:
        centred = x - x.mean(self.axes, keepdim=True)
        return centred * ((centred * centred).mean(self.axes, keepdim=True) + 1e-5).rsqrt() * self.scale


class Encoder(nn.Module):
    """A layer over tokens, as wide as one class of sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x).mean(1))


def images(norm: Callable[[], nn.Module], *more: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A small network over images."""
    return lambda: nn.Sequential(nn.Conv2d(3, CHANNELS, 3), norm(), nn.ReLU(), *[make() for make in more],
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 5))


IMAGES = (8, 3, 14, 14)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch norm": (images(lambda: nn.BatchNorm2d(CHANNELS)), IMAGES),
    "group norm": (images(lambda: nn.GroupNorm(4, CHANNELS)), IMAGES),
    "instance norm with statistics": (
        images(lambda: nn.InstanceNorm2d(CHANNELS, affine=True, track_running_stats=True)), IMAGES),
    "layer norm of channels and places": (images(lambda: nn.LayerNorm((CHANNELS, 12, 12))), IMAGES),
    "the rows of images": (images(lambda: Normalized((2,))), IMAGES),
    "channels and columns": (images(lambda: Normalized((1, 3))), IMAGES),
    "batch norm, then a pool": (images(lambda: nn.BatchNorm2d(CHANNELS), lambda: nn.MaxPool2d(2)), IMAGES),
    "tokens": (Encoder, (4, 20, 32)),
}


def plan_of_a_step(idle: Counting, network: Callable[[], nn.Module], shape: tuple[int, ...]) -> Compiled:
    """The plan of forward, backward and update."""
    net = network().cuda()
    optimizer = genesis.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x, target = genesis.zeros(*shape).cuda(), genesis.zeros(shape[0], dtype=genesis.int64).cuda()
    genesis.eval(x, target, *net.parameters())
    loss = F.cross_entropy(net(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return idle.plans[-1]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step(idle: Counting, name: str) -> None:
    found = plan_of_a_step(idle, *NETWORKS[name])
    assert found.fixed_sizes is None
    fixed = compile_graph(found.graph, Device("cuda", 0))
    assert len(found.plan.steps) <= len(fixed.plan.steps)


def test_batch_norm_is_one_kernel_beside_its_running_statistics(idle: Counting) -> None:
    """Statistics of square images, the batch normalized, and relu are one; the counter and the averages three more."""
    norm = nn.BatchNorm2d(CHANNELS).cuda()
    x = genesis.zeros(8, CHANNELS, 12, 12).cuda()
    genesis.eval(x, *norm.parameters())
    genesis.eval(F.relu(norm(x)))
    assert idle.plans[-1].fixed_sizes is None
    assert len(idle.plans[-1].plan.steps) == 4
