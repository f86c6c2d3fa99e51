"""Programs over sizes drawn at random: whatever plan serves a size, its values are the CPU's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import genesis
import genesis.nn.functional as F
from genesis import engine
from genesis.engine import observe
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.gpu.compare import check, numbers

SIZES = (1, 2, 3, 4, 5, 7, 9, 15, 16, 17, 20, 32, 33, 40)


def attention(x: Any) -> Any:
    return F.softmax(x @ x.transpose(1, 2), -1) @ x


def heads(x: Any) -> Any:
    h = x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2)
    return F.scaled_dot_product_attention(h, h, h, is_causal=True).transpose(1, 2).reshape(x.shape)


def slices(x: Any) -> Any:
    return (x[:, 1:] - x[:, :-1]).sum(1), x[:, :2].amax(1), x[:, -1:] * 2, x.flatten(1).cumsum(1)


def triangles(x: Any) -> Any:
    mask = genesis.ones(x.shape[1], x.shape[1], device=x.device).tril()
    return mask @ x, x.transpose(1, 2).contiguous(), genesis.cat([x, x * 2], 1), x.amax((0, 1)), x.sort(1).values


def flattened(x: Any) -> Any:
    return F.gelu(x.reshape(-1, x.shape[-1])).sum(0), x.abs().mean(), F.log_softmax(x, 1)


def moved(x: Any) -> Any:
    places = genesis.arange(x.shape[1], device=x.device)[None, :, None]
    return x.flip(1) + places, x.repeat(1, 2, 1), F.pad(x, (1, 2, 0, 1)), x.argmax(1)


def indexed(x: Any) -> Any:
    """Rows that an index names, and as many as hold a large number: counts of their own."""
    chosen = x[:, :, 0] > 0.2
    rows, = genesis.where(chosen[0])
    back = genesis.arange(x.shape[1], device=x.device).flip(0) - 1
    return x[:, rows] * 2, x[chosen].sum(0), x[:, back], chosen.nonzero()


def resampled(x: Any) -> Any:
    """Images of other sizes, by scales and by the size of another one."""
    image = x[:, None]
    large = F.interpolate(image, scale_factor=(2, 1.5), mode="bilinear")
    small = F.interpolate(image, scale_factor=(1, 0.5))
    return large, small, F.interpolate(small, size=image.shape[2:], mode="bilinear") + image


PROGRAMS: list[Callable[[Any], Any]] = [attention, heads, slices, triangles, flattened, moved, indexed, resampled]


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.sweep) for seed in range(8)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_any_sizes_in_any_order(program: Callable[[Any], Any], seed: int) -> None:
    chance = random.Random(seed)
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)):
        engine.reset()
        for _ in range(8):
            shape = chance.choice((1, 2, 3, 5)), chance.choice(SIZES), chance.choice((4, 4, 4, 6, 8, 16))
            check(program, numbers(*shape))


@pytest.mark.parametrize("program", [slices, moved, resampled], ids=lambda program: program.__name__)
def test_a_few_sizes(program: Callable[[Any], Any]) -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)):
        for rows in (6, 7, 1, 4):
            check(program, numbers(2, rows, 4))


def test_counts_and_indexed_rows_are_sizes_on_a_gpu() -> None:
    """What is as long as a count, and rows by an index, are kernels for all sizes of their classes."""
    plans: list[Any] = []
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)), observe(plans.append):
        engine.reset()
        for rows in (5, 6, 7):
            x = genesis.sin(genesis.arange(rows * 4.0, device="cuda")).reshape(rows, 4)
            genesis.eval(x)
            before = len(plans)
            chosen, = genesis.where(x[:, 0] > -0.2)
            found, expected = (x[chosen] + 1).cpu(), x.cpu()[genesis.where(x.cpu()[:, 0] > -0.2)] + 1
            assert found.tolist() == expected.tolist()
    assert {plan.origin for plan in plans[before:] if plan.plan.device.type == "cuda"} == {"other size"}
