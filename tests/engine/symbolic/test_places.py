"""Places that move: rows of a cache that are written, or read, and as much of it as was written."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import genesis
import genesis.nn.functional as F
from genesis import engine, nn
from genesis.engine.backends import FakeCUDABackend
from genesis.ir.size_trace import Trace
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import Copy, Launch
from tests.engine.symbolic.idle import Counting, counting
from tests.sweeping import each_value

ROWS = 12

Step = Callable[[Any, dict[str, Any], int], Any]
"""(genesis or torch, tensors that stay, place) → what the step gives."""


def kept(lib: Any, device: str) -> dict[str, Any]:
    """The tensors that steps read and write."""
    def ramp(*shape: int) -> Any:
        count = 1
        for size in shape:
            count *= size
        found = (lib.arange(float(count)) * 0.37).sin().reshape(shape)
        return found.to(device)
    tensors = {"cache": ramp(1, 2, ROWS, 4), "data": ramp(ROWS, 3), "row": ramp(3), "out": ramp(ROWS),
               "tokens": (lib.arange(2 * ROWS) % 5).reshape(2, ROWS).to(device), "weight": ramp(3, 5),
               "flat": ramp(ROWS * 8),
               "layers": ramp(2, 2, 3, ROWS, 4)}
    if lib is genesis:
        genesis.eval(*tensors.values())
    return tensors


def a_ring(lib: Any, t: dict[str, Any], at: int) -> Any:
    q = t["row"].sum() + t["cache"][:, :, :1] * 0.5
    t["cache"][:, :, at:at + 1] = q * 2
    nnf = F if lib is genesis else torch.nn.functional
    return nnf.scaled_dot_product_attention(q, t["cache"], t["cache"])


def what_was_written(lib: Any, t: dict[str, Any], at: int) -> Any:
    q = t["row"].sum() + t["cache"][:, :, :1] * 0.5
    t["cache"][:, :, at:at + 1] = q * 2
    nnf = F if lib is genesis else torch.nn.functional
    return nnf.scaled_dot_product_attention(q, t["cache"][:, :, :at + 1], t["cache"][:, :, :at + 1])


def two_at_once(lib: Any, t: dict[str, Any], at: int) -> Any:
    at = min(at, ROWS - 3)
    t["cache"][:, :, at:at + 2] = t["cache"][:, :, at + 1:at + 3] * 0.5 + 1
    return t["cache"].sum(2)


def a_row(lib: Any, t: dict[str, Any], at: int) -> Any:
    return (t["data"] * t["data"][at]).softmax(-1).sum(0)


def a_batch_and_its_targets(lib: Any, t: dict[str, Any], at: int) -> Any:
    at = min(at, ROWS - 5)
    x, y = t["data"][at:at + 4], t["data"][at + 1:at + 5]
    return ((x @ t["weight"])[:, :3] - y).square().mean(0)


def of_the_result(lib: Any, t: dict[str, Any], at: int) -> Any:
    return (t["data"] @ t["weight"]).softmax(-1)[at] * 2


def single_numbers(lib: Any, t: dict[str, Any], at: int) -> Any:
    t["out"][at] = t["row"].square().sum()
    return t["out"] * 2


def a_column(lib: Any, t: dict[str, Any], at: int) -> Any:
    at = min(at, ROWS - 2)
    t["tokens"][:, at + 1] = (t["tokens"][:, at] + 1) % 7
    return t["tokens"].sum(1)


def looked_up(lib: Any, t: dict[str, Any], at: int) -> Any:
    return t["data"][t["tokens"][:, at]] * 3


def every_second(lib: Any, t: dict[str, Any], at: int) -> Any:
    at = min(at, ROWS - 4)
    return (t["data"][at:at + 3:2] * t["row"]).softmax(0)


def of_each_layer(lib: Any, t: dict[str, Any], at: int) -> Any:
    x = t["layers"][0, 0, :, 0] * 0.5
    for layer in range(2):
        t["layers"][layer, 0, :, at] = x * 2
        t["layers"][layer, 1, :, at] = x * 3
        x = x + (t["layers"][layer, 0] * t["layers"][layer, 1]).sum(1)
    return x


def of_a_view(lib: Any, t: dict[str, Any], at: int) -> Any:
    cache = t["flat"].view(ROWS, 2, 4).transpose(0, 1)
    cache[:, at] = t["row"].sum() + cache[:, at] * 0.5
    return cache[:, at] * 2, cache.amax(1)


STEPS: list[Step] = [a_ring, what_was_written, two_at_once, a_row, a_batch_and_its_targets, of_the_result,
                     single_numbers, a_column, looked_up, every_second, of_each_layer,
                     of_a_view]


def several(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)


def name_of(step: Step) -> str:
    return step.__name__


@pytest.fixture
def idle() -> Iterator[Counting]:
    """An idle GPU."""
    with counting() as backend:
        yield backend


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_a_place_that_moves_gives_torch_s_values(step: Step) -> None:
    """The first row, inner ones in any order, the last, and one that was there before."""
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 24)), genesis.no_grad():
        engine.reset()
        expected, found = kept(torch, "cpu"), kept(genesis, "cuda")
        for at in (4, 7, 0, ROWS - 1, 2, 7):
            given, made = several(step(torch, expected, at)), several(step(genesis, found, at))
            for x, y in zip(given, made, strict=True):
                torch.testing.assert_close(torch.tensor(y.tolist()), x, check_dtype=False, rtol=1e-5, atol=1e-6)
            for name, tensor in expected.items():
                torch.testing.assert_close(torch.tensor(found[name].tolist()), tensor, check_dtype=False)


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_inner_places_share_a_plan(step: Step, idle: Counting) -> None:
    """The first place and the last may have plans of their own; how much was written is of a few classes of sizes."""
    tensors = kept(genesis, "cuda")
    with genesis.no_grad():
        idle.plans.clear()
        for at in range(ROWS):
            genesis.eval(*several(step(genesis, tensors, at)), *tensors.values())
    assert not any(plan.fixed_sizes for plan in idle.plans if len(plan.plan.inputs) > 1)
    origins = Counter(plan.origin for plan in idle.plans)
    assert origins["compiled"] <= (6 if step is what_was_written else 4), origins
    assert origins["other size"] >= 5


@each_value
@pytest.mark.parametrize("step", [step for step in STEPS if step is not what_was_written], ids=name_of)
@pytest.mark.parametrize("before", [(5,), (3, 7), (0, ROWS - 1)], ids=str)
def test_kernels_do_not_tell_what_came_before(step: Step, before: tuple[int, ...], idle: Counting) -> None:
    """A place is an argument from the first program on, so its bits are the same whatever was met before it."""
    def launches(*places: int) -> list[Any]:
        engine.reset()
        tensors = kept(genesis, "cuda")
        with genesis.no_grad():
            for at in places:
                genesis.eval(*several(step(genesis, tensors, at)), *tensors.values())
        plan = engine.last_plan().plan  # type: ignore[union-attr]
        found: list[Any] = []
        for launch in plan.steps:
            assert isinstance(launch, (Launch, Copy))
            found.append((launch.kernel.source, launch.kernel.num_warps, launch.grid,
                          [x for x in launch.args if type(x) is int]) if isinstance(launch, Launch)
                         else (launch.source.offset, launch.destination.offset))
        return found
    assert launches(*before, 4) == launches(4)


def test_a_training_step_over_slices_of_the_data(idle: Counting) -> None:
    data = genesis.ones(64, 8, device="cuda")
    net = nn.Linear(8, 4).to("cuda")
    optimizer = genesis.optim.SGD(net.parameters(), lr=0.1)
    genesis.eval(data)
    for _ in range(2):
        for at in range(0, 64, 4):
            optimizer.zero_grad()
            net(data[at:at + 4]).square().mean().backward()
            optimizer.step()
    steps = [plan.origin for plan in idle.plans if len(plan.plan.inputs) > 2]
    assert steps.count("compiled") <= 4 and steps.count("other size") >= 12


def test_gradients_flow_through_a_place_that_moves() -> None:
    def gradients(lib: Any, at: int, device: str) -> Any:
        x = (lib.arange(24.0) * 0.1).reshape(8, 3).to(device).requires_grad_()
        y = x * 2
        (y[at].square().sum() + (x[at:at + 2] * x[at + 1:at + 3]).sum()).backward()
        return x.grad
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 24)):
        engine.reset()
        for at in (3, 1, 4, 0, 5):
            expected = gradients(torch, at, "cpu")
            torch.testing.assert_close(torch.tensor(gradients(genesis, at, "cuda").tolist()), expected)


def recurrence(lib: Any, rows: int, device: str, first: int = 2) -> Any:
    found = lib.ones(40, device=device)
    if lib is genesis:
        genesis.eval(found)
    for i in range(first, first + rows):
        found[i] = found[i - 1] * 0.5 + found[i - 2] * 0.4
    return found


def test_what_a_recurrence_reads_is_known(idle: Counting) -> None:
    """Of a row that is read it is known whether it was just written, which no element is asked for; other places
    have the same plan."""
    lengths = []
    for rows in (4, 8):
        engine.reset()
        idle.plans.clear()
        genesis.eval(recurrence(genesis, rows, "cuda"))
        lengths.append(sum(len(step.kernel.source) for step in idle.plans[-1].plan.steps if isinstance(step, Launch)))
        for first in (5, 9, 11):
            genesis.eval(recurrence(genesis, rows, "cuda", first))
        assert [plan.origin for plan in idle.plans if len(plan.plan.inputs)] == ["compiled", "compiled", "other size",
                                                                                "other size"]  # the first reads row 0
    assert lengths[1] < 4 * lengths[0]


def test_a_recurrence_has_torch_s_values() -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 24)):
        engine.reset()
        for first in (2, 5, 7, 30):
            torch.testing.assert_close(torch.tensor(recurrence(genesis, 6, "cuda", first).tolist()),
                                       recurrence(torch, 6, "cpu", first))


def test_parts_of_a_value_are_numbers(idle: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirds of a packed projection, and the inside of a grid: kernels name them."""
    places: list[Any] = []
    add = Trace.add_place

    def noted(*given: Any) -> Any:
        places.append(given)
        return add(*given)
    monkeypatch.setattr(Trace, "add_place", noted)
    packed, grid = genesis.ones(4, 24, device="cuda"), genesis.ones(20, 20, device="cuda")
    genesis.eval(packed, grid)
    q, k, v = packed.chunk(3, 1)
    grid[1:-1, 1:-1] = (grid[2:, 1:-1] + grid[:-2, 1:-1] + grid[1:-1, 2:] + grid[1:-1, :-2]) * 0.25
    genesis.eval(q * k + v, grid)
    assert not places
    genesis.eval(packed[2] * 2)
    assert len(places) == 1


def test_rows_that_an_index_names_are_one_plan_for_all_lengths(idle: Counting) -> None:
    """The check of the index has attributes of its own: the program was taken for another one, and its sizes stayed
    numbers."""
    table = genesis.ones(50, 8, device="cuda")
    genesis.eval(table)
    origins = []
    for n in range(70, 80):
        index = genesis.zeros(n, dtype=genesis.int64, device="cuda")
        genesis.eval(index)
        idle.plans.clear()
        genesis.eval(table[index] * 2)
        origins += [plan.origin for plan in idle.plans]
        assert not any(plan.fixed_sizes for plan in idle.plans)
    assert origins.count("compiled") <= 3  # multiples of 8 are a class, and the others name the first, then any


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(20))
def test_places_drawn_at_random(seed: int) -> None:
    """Reads and writes of random regions, of which each program has a few."""
    chance = random.Random(seed)
    shape = chance.choice([(9, 5), (4, 10, 3), (16,), (2, 8, 6)])
    regions = [[chance.choice(["place", "all", "some"]) for _ in shape] for _ in range(3)]
    widths = [[chance.randint(1, max(1, size // 2)) for size in shape] for _ in regions]

    def drawn(number: int) -> tuple[slice, ...]:
        found = []
        for kind, width, size in zip(regions[number], widths[number], shape, strict=True):
            start = chance.randint(0, size - width)
            found.append(slice(None) if kind == "all" else slice(start, start + width) if kind == "place"
                         else slice(0, chance.randint(1, size)))
        return tuple(found)

    def run(lib: Any, x: Any, where: list[tuple[slice, ...]]) -> Any:
        read = (x * 1.5)[where[0]].sum() + x[where[1]].sum()
        x[where[2]] = x[where[2]] * 0.5 + read
        return x[where[1]] * 2 + read
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 24)):
        engine.reset()
        for _ in range(6):
            where = [drawn(number) for number in range(3)]
            before = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
            ours = genesis.tensor(before.tolist(), device="cuda")
            made, expected = run(genesis, ours, where), run(torch, before, where)
            torch.testing.assert_close(torch.tensor(made.tolist()), expected)
            torch.testing.assert_close(torch.tensor(ours.tolist()), before)


def test_as_much_as_was_written_is_few_plans_on_the_cpu_and_has_the_bits_of_its_own() -> None:
    def rows(again: bool) -> list[list[Any]]:
        tensors, found = kept(genesis, "cpu"), []
        with genesis.no_grad():
            for at in range(1, ROWS - 1):
                if again:
                    engine.reset()
                y = what_was_written(genesis, tensors, at)
                genesis.eval(y, tensors["cache"])
                found.append([y.tolist(), tensors["cache"].tolist()])
        return found
    engine.reset()
    plans: list[Any] = []
    with engine.observe(plans.append):
        found = rows(again=False)
    assert sum(plan.origin == "compiled" for plan in plans) <= 4
    assert found == rows(again=True)
