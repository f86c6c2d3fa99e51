"""Loops over sizes: kernels are compiled until each class of sizes has occurred, and then no more."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import genesis
import genesis.nn.functional as F
from genesis import nn
from genesis.ir.size_class import class_of
from tests.engine.symbolic.idle import Counting, counting


@pytest.fixture
def idle() -> Iterator[Counting]:
    """An idle GPU."""
    with counting() as backend:
        yield backend


def on_gpu(*shape: int) -> Any:
    x = genesis.zeros(*shape).cuda()
    genesis.eval(x)
    return x


def kernels_of(backend: Counting, values: Sequence[Any], step: Callable[[Any], Any]) -> list[int]:
    """How many kernels each value's step compiled."""
    found = []
    for value in values:
        before = len(backend.kernels)
        step(value)
        found.append(len(backend.kernels) - before)
    return found


def attend(x: Any) -> Any:
    return F.softmax(x @ x.transpose(1, 2) * 0.5, -1) @ x


def test_lengths(idle: Counting) -> None:
    """Within a class the first length is named by its kernels, from the second on they take any. Rows of even and of
    odd lengths are two classes, as products load them differently."""
    found = kernels_of(idle, [100, 101, 102, 127, 65, 99], lambda n: genesis.eval(attend(on_gpu(3, n, 8))))
    assert found[0] and not any(found[3:])
    assert idle.plans[-1].origin == "other size"


def test_every_length_up_to_1024_is_of_few_classes(idle: Counting) -> None:
    """Odd, even and fourfold lengths are classes of their own, as products copy one, two and four numbers at once."""
    chance = random.Random(0)
    lengths = [chance.randint(1, 1024) for _ in range(120)]
    found = kernels_of(idle, lengths, lambda n: genesis.eval(attend(on_gpu(3, n, 8))))
    classes: set[Any] = set()
    for at, length in enumerate(lengths):
        of_length = class_of(length), math.gcd(length, 4)
        new = of_length not in classes
        classes.add(of_length)
        assert new or not found[at] or at < 5, f"{length} is of a class that was there"
    assert sum(found) < 12 * len({kind for kind, _ in classes})


@pytest.mark.parametrize("scale", [2, 1.5, 0.5])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_images_that_are_resampled(idle: Counting, mode: str, scale: float) -> None:
    """Odd heights and widths of one class: the sizes of the result follow from those of the image."""
    chance = random.Random(0)
    sides = [(chance.randrange(33, 64, 2), chance.randrange(33, 64, 2)) for _ in range(24)]

    def step(side: tuple[int, int]) -> None:
        genesis.eval(F.interpolate(on_gpu(2, 3, *side), scale_factor=scale, mode=mode))
    found = kernels_of(idle, sides, step)
    assert found[0] and not any(found[8:])


class Cached(nn.Module):
    """A cache that grows by one row a call."""

    def __init__(self) -> None:
        super().__init__()
        self.to_kv = nn.Linear(8, 16)


def test_a_cache_that_grows(idle: Counting) -> None:
    module = Cached().to("cuda")
    cache = on_gpu(1, 2, 1, 8)

    def step(x: Any) -> None:
        nonlocal cache
        with genesis.no_grad():
            k = module.to_kv(x)[..., :8].view(1, 2, 1, 8)
            cache = genesis.cat([cache, k], 2)
            y = F.scaled_dot_product_attention(k, cache, cache)
        genesis.eval(cache, y)

    x = on_gpu(2, 8)
    found = kernels_of(idle, range(300), lambda at: step(x))
    late = [at for at, count in enumerate(found) if count and at > 2]
    classes = {(class_of(at + 1), class_of(at + 2)) for at in range(300)}
    assert len(late) < len(classes), "each class once, some share their kernels"
    assert idle.plans[-1].origin == "other size"


def test_images(idle: Counting) -> None:
    """The second half of the images compiles next to nothing: sizes are classes, even and odd ones apart."""
    genesis.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).to("cuda")
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    chance = random.Random(0)

    def step(size: tuple[int, int]) -> None:
        loss = model(on_gpu(4, 3, *size)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    found = kernels_of(idle, [(chance.randint(33, 63), chance.randint(33, 63)) for _ in range(24)], step)
    assert sum(found[12:]) <= sum(found) // 8
    assert not any(plan.fixed_sizes for plan in idle.plans)


@pytest.mark.parametrize("size", [0, 1])
def test_sizes_0_and_1_are_plans_of_their_own(idle: Counting, size: int) -> None:
    for n in (5, 6, size, 7):
        genesis.eval(F.softmax(on_gpu(3, n, 8).transpose(1, 2) * 2, -1).sum())
    assert [plan.origin for plan in idle.plans if plan.plan.inputs][-1] == "other size"


def test_a_parameter_s_sizes_are_no_data(idle: Counting) -> None:
    """Nor are a buffer's: kernels name them."""
    class Scaled(nn.Module):
        def __init__(self, columns: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(genesis.ones(columns))
            self.register_buffer("shift", genesis.ones(columns))

        def forward(self, x: Any) -> Any:
            return x * self.weight + self.shift

    with genesis.no_grad():
        for columns in (40, 41):
            module = Scaled(columns).to("cuda")
            genesis.eval(module.weight, module.shift)
            for rows in (20, 21):
                genesis.eval(module(on_gpu(rows, columns)))
    plans = [plan for plan in idle.plans if len(plan.plan.inputs) == 3]
    assert [plan.origin for plan in plans] == ["compiled", "other size", "compiled", "other size"]


def test_memory_is_what_a_plan_of_its_own_takes(idle: Counting) -> None:
    def arena(*lengths: int) -> tuple[int, int]:
        genesis.engine.reset()
        for n in lengths:
            genesis.eval(attend(on_gpu(3, n, 8)).sum(1) + attend(on_gpu(3, n, 8)).amax(1))
        found = genesis.engine.last_plan().plan
        return found.arena_bytes, found.max_live_bytes

    assert arena(70, 71, 90) == arena(90)
    assert arena(120, 121, 91) == arena(121), "a smaller one takes the places of the larger, which are there"
