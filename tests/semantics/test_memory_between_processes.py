"""`share_memory_()`: processes that are forked, spawned or sent a tensor read and write one memory, as torch's do."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest

import genesis
import genesis.multiprocessing as mp
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver

STEPS = 30
METHODS = ("fork", "spawn")


def fills(x: Any, value: float) -> None:
    x.fill_(value)


def writes_its_row(x: Any, row: int, times: int) -> None:
    for turn in range(times):
        x[row] += 1
        assert x[row, 0].item() == turn + 1


def trains(model: Any, rank: int, seed: int) -> None:
    genesis.manual_seed(seed)
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        x = genesis.randn(16, 3)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def takes_turns(x: Any, mine: Any, other: Any) -> None:
    for _ in range(5):
        assert mine.acquire(timeout=60)
        x.add_(1)
        other.release()


def answers(received: Any, sent: Any) -> None:
    x = received.get(timeout=60)
    x.mul_(2)
    sent.put(x.is_shared())
    assert received.get(timeout=60) == "done"


def run(method: str, *calls: tuple[Any, ...]) -> None:
    """Run (function, arguments ...) each in a process of its own, all at once."""
    context = mp.get_context(method)
    processes = [context.Process(target=function, args=arguments) for function, *arguments in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0


@pytest.mark.parametrize("method", METHODS)
def test_what_a_child_writes_is_read_here(method: str) -> None:
    x = genesis.zeros(3).share_memory_()
    view = x[1:]
    before, recorded = x.clone(), x + 1
    assert x.is_shared() and view.is_shared() and not before.is_shared()
    run(method, (fills, x, 7.0))
    assert x.tolist() == [7, 7, 7] and view.tolist() == [7, 7]
    assert before.tolist() == [0, 0, 0] and recorded.tolist() == [1, 1, 1]


def test_processes_that_write_to_rows_of_their_own_lose_nothing() -> None:
    """A write through a view writes its elements alone, whatever the others write to the rest meanwhile."""
    x = genesis.zeros(3, 5).share_memory_()
    run("fork", *[(writes_its_row, x, row, 60) for row in range(3)])
    assert x.tolist() == [[60.0] * 5] * 3


def test_processes_that_take_turns_lose_nothing() -> None:
    x = genesis.zeros(4).share_memory_()
    context = mp.get_context("fork")
    first, second = context.Semaphore(1), context.Semaphore(0)
    processes = [context.Process(target=takes_turns, args=(x, *turns)) for turns in ((first, second), (second, first))]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert x.tolist() == [10.0] * 4


@pytest.mark.parametrize("method", METHODS)
def test_processes_train_one_model(method: str) -> None:
    """Hogwild: no lock, gradients apart, and the parent has what its children learnt."""
    genesis.manual_seed(0)
    model = genesis.nn.Linear(3, 1)
    assert model.share_memory() is model
    assert all(p.is_shared() and p.requires_grad and p.is_leaf for p in model.parameters())
    run(method, *[(trains, model, rank, 5 + rank) for rank in range(2)])
    assert all(p.grad is None for p in model.parameters())
    x = genesis.randn(64, 3)
    assert ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().item() < 0.02


def test_steps_of_one_process_are_those_of_memory_of_its_own() -> None:
    found = []
    for shared in (False, True):
        genesis.manual_seed(0)
        model = genesis.nn.Sequential(genesis.nn.Linear(3, 4), genesis.nn.BatchNorm1d(4), genesis.nn.Linear(4, 1))
        optimizer = genesis.optim.Adam(model.parameters(), lr=0.1)

        @genesis.compile
        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = (model(x) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss
        losses = [step(genesis.randn(8, 3)).item() for _ in range(3)]
        if shared:  # a step that was captured before goes on with the memory that the others see
            model.share_memory()
        losses += [step(genesis.randn(8, 3)).item() for _ in range(3)]
        found.append((losses, {name: x.tolist() for name, x in model.state_dict().items()}))
    assert found[0] == found[1]


def test_a_queue_hands_on_the_memory() -> None:
    x = genesis.arange(3.0).share_memory_()
    context = mp.get_context("spawn")
    sent, received = context.Queue(), context.Queue()
    process = context.Process(target=answers, args=(sent, received))
    process.start()
    sent.put(x)
    assert received.get(timeout=120) is True
    sent.put("done")
    process.join(60)
    assert process.exitcode == 0 and x.tolist() == [0, 2, 4]


def test_what_was_computed_with_gradients_keeps_them() -> None:
    w = genesis.ones(2, requires_grad=True)
    y = (w * 3).share_memory_()
    y.sum().backward()
    assert w.grad.tolist() == [3, 3] and y.is_shared()


def test_views_copies_and_empty_tensors() -> None:
    base = genesis.arange(6.0).reshape(2, 3)
    turned = base.t()
    turned.share_memory_()
    assert base.is_shared() and turned.tolist() == [[0, 3], [1, 4], [2, 5]]
    base[0, 1] = 9
    assert turned[1, 0].item() == 9
    assert base.share_memory_() is base and not copy.deepcopy(base).is_shared()
    for dtype in (genesis.bool, genesis.bfloat16, genesis.int64):
        x = genesis.ones(3, dtype=dtype).share_memory_()
        assert x.is_shared() and x.dtype is dtype and x.tolist() == [1, 1, 1]
    assert genesis.zeros(0).share_memory_().shape == (0,)
    assert not genesis.zeros(3).is_shared()


def test_large_memory_is_shared_too() -> None:
    x = genesis.ones(1 << 19).share_memory_()  # 2 MB: reading computes at once
    y = x * 2
    run("fork", (fills, x, 3.0))
    assert y[:2].tolist() == [2, 2] and x.sum().item() == 3 * (1 << 19)


def test_threads_still_lose_nothing() -> None:
    x = genesis.zeros(2, 4).share_memory_()
    threads = [threading.Thread(target=writes_its_row, args=(x, row, 40)) for row in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.tolist() == [[40.0] * 4] * 2


def test_memory_on_a_gpu_is_refused() -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 24)):
        x = genesis.ones(2, device="cuda")
        with pytest.raises(RuntimeError, match="memory on cuda:0 is not shared between processes"):
            x.share_memory_()
        assert not x.is_shared()


def test_strategies_are_torchs() -> None:
    import torch.multiprocessing as theirs
    assert mp.get_all_sharing_strategies() == theirs.get_all_sharing_strategies()
    assert mp.get_sharing_strategy() == theirs.get_sharing_strategy()
    mp.set_sharing_strategy(mp.get_sharing_strategy())
