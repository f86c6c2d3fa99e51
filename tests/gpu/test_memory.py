"""Memory on CUDA: outputs that outlive replays, addresses that change, streams, numbers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.runtime.cuda import executor

from .compare import array, numbers


def on_cuda(values) -> genesis.Tensor:
    return genesis.tensor(values, device="cuda")


def test_outputs_are_kept_over_replays(cuda):
    x = on_cuda(numbers(4))
    kept = []
    for step in range(6):
        y, z = x * float(step), x + float(step)
        genesis.eval(y, z)
        kept.append((y, z) if step % 2 else (y,))
    for step, results in enumerate(kept):
        np.testing.assert_array_equal(array(results[0]), numbers(4) * np.float32(step))
        if len(results) == 2:
            np.testing.assert_array_equal(array(results[1]), numbers(4) + np.float32(step))


def test_a_view_of_an_output_is_kept_over_replays(cuda):
    x = on_cuda(numbers(3, 4))
    kept = []
    for step in range(5):
        y = x * float(step)
        genesis.eval(y)
        kept.append(y[1:, ::2])
        del y
    for step, view in enumerate(kept):
        np.testing.assert_array_equal(array(view), (numbers(3, 4) * np.float32(step))[1:, ::2])


def test_an_output_becomes_the_next_input(cuda):
    x = on_cuda(np.ones(5, np.float32))
    for _ in range(8):
        x = x * 2 + 1
        genesis.eval(x)
    assert x.tolist() == [2.0**8 + 2.0**8 - 1] * 5


def test_changed_input_addresses(cuda):
    weight = on_cuda(numbers(3, 3))
    held = []
    for step in range(7):
        batch = numbers(2, 3, seed=step)
        held.append(on_cuda(batch))  # alive: the next batch is somewhere else
        np.testing.assert_allclose(array(held[-1] @ weight), batch @ numbers(3, 3), rtol=1e-5, atol=1e-6)


def test_inputs_that_swap_places(cuda):
    a, b = on_cuda(numbers(4)), on_cuda(numbers(4, seed=1))
    for _ in range(6):
        np.testing.assert_array_equal(array(a - b), -array(b - a))
        a, b = b, a
    np.testing.assert_array_equal(array(a - b), numbers(4) - numbers(4, seed=1))


def test_a_larger_plan_between_two_runs_of_a_smaller_one(cuda):
    """The arena moves; what the smaller plan knew of it is stale."""
    def small(x):
        return (x @ x).sum(0) @ x

    def large(x):
        return ((x @ x).sum(0) @ x).softmax(0) @ (x @ x.t() @ x)
    x, y = on_cuda(numbers(8, 8) / 8), on_cuda(numbers(90, 90) / 90)
    expected = array(small(x))
    for _ in range(3):
        array(large(y))
        np.testing.assert_array_equal(array(small(x)), expected)


def test_in_place_updates_keep_their_address(cuda):
    x = on_cuda(numbers(4))
    address = engine.memory_of(x).ptr
    for _ in range(4):
        x.mul_(2)
        genesis.eval(x)
        assert engine.memory_of(x).ptr == address
    np.testing.assert_array_equal(array(x), numbers(4) * 16)


def test_what_was_recorded_before_a_write_keeps_the_old_content(cuda):
    x = on_cuda(numbers(4))
    y, view = x * 2, x[1:]
    x.add_(1)
    genesis.eval(x)
    np.testing.assert_array_equal(array(y), numbers(4) * 2)
    np.testing.assert_array_equal(array(view), (numbers(4) + 1)[1:])


def test_an_output_that_is_an_input_is_a_copy(cuda):
    x = on_cuda(numbers(4))
    y = x.clone()
    x.zero_()
    np.testing.assert_array_equal(array(y), numbers(4))
    assert array(x).tolist() == [0] * 4


def test_equal_values_are_separate_tensors(cuda):
    x = on_cuda(numbers(3))
    y, z = x * 2, x * 2
    y.add_(1)
    np.testing.assert_array_equal(array(z), numbers(3) * 2)
    np.testing.assert_array_equal(array(y), numbers(3) * 2 + 1)


def test_two_streams(cuda):
    first, second = genesis.cuda.Stream(), genesis.cuda.Stream()
    x = on_cuda(numbers(64))
    for _ in range(3):
        with genesis.cuda.stream(first):
            x = x + 1
            y = x * 2
            genesis.eval(x, y)
        with genesis.cuda.stream(second):
            x = y - x
            genesis.eval(x)
        with genesis.cuda.stream(first):
            x.sub_(1)
        x.add_(1)
    genesis.cuda.synchronize()
    np.testing.assert_allclose(array(x), numbers(64) + 3, rtol=1e-5)
    first.synchronize()
    assert first.query() and second.query()


def test_batches_that_are_moved_on_a_stream_of_their_own(cuda):
    """The loop of image classifiers that prefetch: it tells the memory which other stream uses it."""
    class Prefetcher:
        def __init__(self, batches):
            self.batches, self.stream = iter(batches), genesis.cuda.Stream()
            self.load()

        def load(self):
            self.following = next(self.batches, None)
            if self.following is not None:
                with genesis.cuda.stream(self.stream):
                    self.following = self.following.cuda(non_blocking=True).float().sub_(2.0).div_(4.0)

        def next(self):
            genesis.cuda.current_stream().wait_stream(self.stream)
            batch = self.following
            if batch is not None:
                batch.record_stream(genesis.cuda.current_stream())
            self.load()
            return batch
    data = [numbers(4, 8, seed=k) for k in range(5)]
    prefetcher, sums = Prefetcher([genesis.tensor(x).pin_memory() for x in data]), []
    batch = prefetcher.next()
    while batch is not None:
        sums.append((batch * batch).sum())
        batch = prefetcher.next()
    np.testing.assert_allclose([x.item() for x in sums], [(((x - 2) / 4) ** 2).sum() for x in data], rtol=1e-5)
    with pytest.raises(NotImplementedError, match="record_stream"):
        genesis.zeros(2).record_stream(genesis.cuda.current_stream())


def test_what_is_pending_runs_on_the_stream_of_its_block(cuda):
    stream = genesis.cuda.Stream()
    x = on_cuda(numbers(3))
    y = x * 2
    with genesis.cuda.stream(stream):
        z = y + 1
    np.testing.assert_array_equal(array(z), numbers(3) * 2 + 1)


def test_allocated_memory_returns_to_the_start(cuda):
    x = on_cuda(numbers(100))
    start = genesis.cuda.memory_allocated()
    settled = 0
    for step in range(4):
        y = x * 3 + 1
        genesis.eval(y)
        copies = [on_cuda(numbers(1000)) for _ in range(4)]
        assert genesis.cuda.memory_allocated() >= start + 4 * 4000
        del copies, y
        if not step:
            settled = genesis.cuda.memory_allocated()  # the plan keeps its output's memory for the next run
        assert genesis.cuda.memory_allocated() == settled
    del x
    assert genesis.cuda.memory_allocated() < settled
    assert genesis.cuda.max_memory_allocated() >= settled + 16000
    assert genesis.cuda.memory_reserved() >= genesis.cuda.max_memory_allocated()


def test_a_tensor_that_dies_gives_its_memory_back(cuda):
    before = genesis.cuda.memory_allocated()
    x = on_cuda(np.zeros(1 << 16, np.float32))
    assert genesis.cuda.memory_allocated() == before + (1 << 18)
    reference = weakref.ref(engine.memory_of(x))
    del x
    assert reference() is None and genesis.cuda.memory_allocated() == before


def test_a_graph_that_nobody_needs_keeps_no_memory(cuda):
    x = on_cuda(np.zeros(1 << 14, np.float32)).requires_grad_()
    array(x.detach() * 2)
    gc.collect()
    before = genesis.cuda.memory_allocated()
    for _ in range(3):
        y = (x * 2).exp()
        y.sum().item()
        del y
    assert genesis.cuda.memory_allocated() <= before + (1 << 18)


@pytest.mark.parametrize("numel", [0, 1, 127, 128, 129])
def test_sizes_around_the_alignment(cuda, numel):
    values = np.arange(numel, dtype=np.float32)
    assert array(on_cuda(values) + 1).tolist() == (values + 1).tolist()


def test_a_plan_that_ran_once_gives_back_what_nobody_holds(cuda, monkeypatch):
    monkeypatch.setattr(executor, "KEPT", 1024)
    x = on_cuda(np.ones(1024, np.float32))

    def first() -> genesis.Tensor:
        y = x * 3 + 1
        genesis.eval(y)
        return y

    def again() -> None:
        y = x * 5 - 2
        genesis.eval(y)

    held = first()
    again()
    before = genesis.cuda.memory_allocated()
    again()
    assert genesis.cuda.memory_allocated() == before  # the first plan's result is held
    del held
    genesis.cuda.empty_cache()
    first()
    again()
    assert genesis.cuda.memory_allocated() >= before  # it ran twice, as the other did
    np.testing.assert_array_equal(array(first()), np.full(1024, 4, np.float32))


def test_gradients_of_a_first_step_do_not_stay_beside_those_of_the_others(cuda, monkeypatch):
    monkeypatch.setattr(executor, "KEPT", 1024)
    weight = genesis.nn.Parameter(on_cuda(numbers(32, 64)))
    optimizer = genesis.optim.AdamW([weight], lr=1e-3)

    def step(x: genesis.Tensor) -> genesis.Tensor:
        loss = (x @ weight).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def most(step: Callable[[genesis.Tensor], genesis.Tensor]) -> int:
        genesis.cuda.reset_peak_memory_stats()
        step(on_cuda(numbers(4, 32)))
        genesis.cuda.synchronize()
        return genesis.cuda.max_memory_allocated()

    first, compiled = most(step), genesis.compile(step)
    second = most(compiled)
    assert second > first + weight.nbytes / 2  # another plan, with gradients of its own
    assert most(compiled) and most(compiled) < first + weight.nbytes / 2
