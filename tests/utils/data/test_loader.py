"""Batches beside torch's; workers that fail, die and are interrupted; a pass that goes on where it stood."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.utils.data as TD

import genesis
from genesis.utils import data as GD


class Point(NamedTuple):
    x: Any
    y: Any


SAMPLES: dict[str, Any] = {
    "numbers": [1, 2, 3, 4, 5],
    "floats": [0.5, 1.5, 2.5, 3.5, 4.5],
    "integers before floats": [1, 2.5, 3, 4, 5],
    "floats before integers": [1.5, 2, 3, 4, 5],
    "booleans before integers": [True, 2, False, True, 5],
    "bools": [True, False, True, True, False],
    "texts": ["a", "bc", "d", "e", "f"],
    "arrays": [np.full((2, 3), i, np.float32) for i in range(5)],
    "numpy numbers": [np.float32(i) for i in range(5)],
    "tuples": [(i, np.ones(2) * i) for i in range(5)],
    "tuples with texts": [(i, str(i), {"name": str(i)}) for i in range(5)],
    "lists": [[i, 2 * i] for i in range(5)],
    "dictionaries": [{"x": np.ones(2, np.int64) * i, "inner": {"n": i, "name": str(i)}} for i in range(5)],
    "named tuples": [Point(i, float(i)) for i in range(5)],
}


def plain(value: Any) -> Any:
    """Lists and numbers, with each tensor's dtype and shape."""
    if isinstance(value, (torch.Tensor, genesis.Tensor)):
        return str(value.dtype).split(".")[-1], tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    return value


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", SAMPLES)
def test_batches_are_torchs(name: str, workers: int) -> None:
    wanted = [plain(batch) for batch in TD.DataLoader(SAMPLES[name], batch_size=2)]
    assert [plain(batch) for batch in GD.DataLoader(SAMPLES[name], batch_size=2, num_workers=workers)] == wanted


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_without_batches(workers: int) -> None:
    found = list(GD.DataLoader(SAMPLES["arrays"], batch_size=None, num_workers=workers))
    assert [plain(x) for x in found] == [plain(x) for x in TD.DataLoader(SAMPLES["arrays"], batch_size=None)]


@pytest.mark.parametrize("workers", [0, 2])
def test_tensors_and_a_collate_function(workers: int) -> None:
    dataset = GD.TensorDataset(genesis.arange(6).reshape(3, 2), genesis.ones(3))
    batches = list(GD.DataLoader(dataset, 2, num_workers=workers))
    assert [plain(batch) for batch in batches] == [
        plain(batch) for batch in TD.DataLoader(TD.TensorDataset(torch.arange(6).reshape(3, 2), torch.ones(3)), 2)]

    def padded(samples: list[list[int]]) -> dict[str, Any]:
        width = max(map(len, samples))
        return {"ids": genesis.tensor([s + [0] * (width - len(s)) for s in samples]), "n": len(samples)}
    ragged = [[1], [2, 3], [4, 5, 6]]
    found = list(GD.DataLoader(ragged, 2, num_workers=workers, collate_fn=padded))
    assert [(batch["ids"].tolist(), batch["n"]) for batch in found] == [([[1, 0], [2, 3]], 2), ([[4, 5, 6]], 1)]


@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_of_another_library(workers: int) -> None:
    """Images' transforms and Hugging Face's datasets hand out torch's."""
    dataset = [{"x": torch.tensor([1.0, i]), "y": torch.tensor(i), "z": (torch.ones(1, dtype=torch.bool),)}
               for i in range(3)]
    found = list(GD.DataLoader(dataset, 2, num_workers=workers))
    assert [type(x) for x in found[0].values()] == [genesis.Tensor, genesis.Tensor, list]
    assert [plain(batch) for batch in found] == [plain(batch) for batch in TD.DataLoader(dataset, 2)]


def test_large_arrays_go_through_shared_memory_that_is_given_back() -> None:
    before = set(os.listdir("/dev/shm"))
    arrays = [np.full(100_000, i, np.float32) for i in range(6)]
    loader = GD.DataLoader(arrays, 2, num_workers=2)
    found = list(loader)
    assert [float(batch[1, -1]) for batch in found] == [1.0, 3.0, 5.0]
    first = iter(loader)
    next(first)
    del first  # what the workers made ahead is given back too
    assert set(os.listdir("/dev/shm")) - before == set()


UNPICKLED: list[int] = []


def unpickled(i: int) -> int:
    UNPICKLED.append(i)
    return i


class Told:
    """A sample that says when it is unpickled."""

    def __init__(self, i: int):
        self.i = i

    def __reduce__(self) -> Any:
        return unpickled, (self.i,)


def test_batches_that_nobody_took_are_not_unpickled() -> None:
    """They are let go of where Python shuts down, too, where nothing can be imported: a program that an exception
    ended told of a second one."""
    UNPICKLED.clear()
    batches = iter(GD.DataLoader([Told(i) for i in range(8)], 2, num_workers=1, collate_fn=list))
    assert next(batches) == [0, 1]
    del batches
    assert UNPICKLED == [0, 1]


class Numbers(GD.IterableDataset[int]):
    """0 to n - 1; each worker gives its own part."""

    def __init__(self, count: int):
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = GD.get_worker_info()
        yield from range(self.count) if info is None else range(info.id, self.count, info.num_workers)


class TheirNumbers(TD.IterableDataset):  # type: ignore[type-arg]
    """The same for torch."""

    def __init__(self, count: int):
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = TD.get_worker_info()
        yield from range(self.count) if info is None else range(info.id, self.count, info.num_workers)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_iterable_datasets(workers: int, drop_last: bool) -> None:
    ours = GD.DataLoader(Numbers(11), 2, num_workers=workers, drop_last=drop_last)
    theirs = TD.DataLoader(TheirNumbers(11), 2, num_workers=workers, drop_last=drop_last)
    wanted = [batch.tolist() for batch in theirs]
    assert [batch.tolist() for batch in ours] == wanted
    assert [batch.tolist() for batch in ours] == wanted, "the next pass"


def test_shuffling_gives_every_sample_once_and_another_order_each_pass() -> None:
    generator = genesis.Generator()
    generator.manual_seed(1)
    loader = GD.DataLoader(range(50), 7, shuffle=True, generator=generator)
    passes = [[x for batch in loader for x in batch.tolist()] for _ in range(2)]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(50)) and passes[0] != passes[1]
    generator.manual_seed(1)
    assert [x for batch in loader for x in batch.tolist()] == passes[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [range(20), Numbers(20)], ids=["by index", "iterable"])
def test_a_pass_goes_on_where_it_stood(dataset: Any, workers: int) -> None:
    def make() -> GD.DataLoader:
        return GD.DataLoader(dataset, 3, shuffle=not isinstance(dataset, Numbers), num_workers=workers)
    loader = make()
    batches, states = [], []
    for batch in loader:
        batches.append(batch.tolist())
        states.append(loader.state_dict())
    for place, state in enumerate(states[:-1]):
        again = make()
        again.load_state_dict(state)
        assert [batch.tolist() for batch in again] == batches[place + 1:], place
        if workers and place > 1:
            break  # a start of processes each


@pytest.mark.parametrize("given", [0, 2])
def test_later_passes_are_the_same_with_a_generator_of_its_own(given: int) -> None:
    """Of a pass that has begun, and may have given no batch yet."""
    def make(seed: int) -> GD.DataLoader:
        return GD.DataLoader(range(20), 3, shuffle=True, generator=genesis.Generator().manual_seed(seed))

    def read(batches: Any) -> list[list[int]]:
        return [batch.tolist() for batch in batches]
    loader = make(1)
    read(loader)
    batches = iter(loader)
    read(islice(batches, given))
    state = loader.state_dict()
    again = make(2)
    again.load_state_dict(state)
    assert read(again) == read(batches)
    assert read(again) == read(loader)


class Backwards(GD.BatchSampler):
    """A user's own, of which a loader knows nothing but that it can be iterated over."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter(list(super().__iter__())[::-1])


def samplers(generator: genesis.Generator | None) -> dict[str, dict[str, Any]]:
    """Arguments of loaders whose order a sampler draws, from this generator."""
    orders: dict[str, Any] = {
        "a sampler": GD.RandomSampler(range(20), generator=generator),
        "more than there are": GD.RandomSampler(range(20), num_samples=45, generator=generator),
        "drawn again": GD.RandomSampler(range(20), True, 30, generator=generator),
        "a subset": GD.SubsetRandomSampler(range(5, 18), generator=generator),
        "by weights": GD.WeightedRandomSampler([float(i) for i in range(20)], 20, generator=generator)}
    return {**{name: {"batch_size": 3, "sampler": order} for name, order in orders.items()},
            "samples themselves": {"batch_size": None, "sampler": orders["a sampler"]},
            "batches of a sampler": {"batch_sampler": GD.BatchSampler(orders["by weights"], 3, True)}}


@pytest.mark.parametrize("owner", ["the default generator", "the sampler", "both"])
@pytest.mark.parametrize(("name", "workers"), [*((name, 0) for name in samplers(None)), ("by weights", 2)])
def test_an_order_that_a_sampler_draws_is_the_same_again(name: str, workers: int, owner: str) -> None:
    """In another program: the state of the default generator is there again, too, as `CheckpointManager` brings it."""
    def make(seed: int) -> GD.DataLoader:
        own = None if owner == "the default generator" else genesis.Generator().manual_seed(seed)
        return GD.DataLoader(range(20), num_workers=workers, generator=own if owner == "both" else None,
                             **samplers(own)[name])

    def read(batches: Any) -> list[Any]:
        return [batch.tolist() if isinstance(batch, genesis.Tensor) else batch for batch in batches]
    genesis.manual_seed(5)
    loader = make(1)
    read(loader)
    batches = iter(loader)
    read(islice(batches, 2))
    genesis.rand(3)
    state, random = loader.state_dict(), genesis.get_rng_state()
    expected = [read(batches), genesis.rand(3).tolist(), read(loader), genesis.rand(3).tolist()]
    again = make(2)
    genesis.rand(7)
    genesis.set_rng_state(random)
    again.load_state_dict(state)
    assert [read(again), genesis.rand(3).tolist(), read(again), genesis.rand(3).tolist()] == expected


def test_a_batch_sampler_of_ones_own_makes_the_batches() -> None:
    order = GD.SequentialSampler(range(7))
    loader = GD.DataLoader(range(7), batch_sampler=Backwards(order, 3, False))
    assert [batch.tolist() for batch in loader] == [[6], [3, 4, 5], [0, 1, 2]]
    random = GD.DataLoader(range(7), batch_sampler=Backwards(GD.RandomSampler(range(7)), 3, False))
    assert [len(batch) for batch in random] == [1, 3, 3] and set(random.state_dict()) == {"seed", "batches"}


class Failing(GD.Dataset[int]):
    """An error at index 3."""

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise KeyError(f"no sample {index}")
        return index

    def __len__(self) -> int:
        return 8


def test_an_exception_in_a_worker_comes_with_its_traceback() -> None:
    loader = GD.DataLoader(Failing(), 2, num_workers=2)
    found = iter(loader)
    assert next(found).tolist() == [0, 1]
    with pytest.raises(KeyError, match=r"worker process 1(.|\n)*in __getitem__(.|\n)*no sample 3"):
        next(found)
    with pytest.raises(KeyError, match="no sample 3"):
        list(GD.DataLoader(Failing(), 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_goes_on_behind_a_batch_that_raised(workers: int) -> None:
    """Who catches what a sample raises gets the next batch, as in torch, and may stop and go on there."""
    def given(batches: Iterator[Any], most: int = 9) -> list[Any]:
        found: list[Any] = []
        while len(found) < most:
            try:
                found.append(next(batches).tolist())
            except KeyError:
                found.append("no sample 3")
            except StopIteration:
                break
        return found
    wanted = given(iter(TD.DataLoader(Failing(), 2, num_workers=workers)))
    loader = GD.DataLoader(Failing(), 2, num_workers=workers)
    assert given(iter(loader)) == wanted == [[0, 1], "no sample 3", [4, 5], [6, 7]]
    begun = iter(loader)
    given(begun, 2)
    again = GD.DataLoader(Failing(), 2, num_workers=workers)
    again.load_state_dict(loader.state_dict())
    assert given(iter(again)) == wanted[2:]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_dataset_that_raises(workers: int) -> None:
    class Fails(GD.IterableDataset):  # type: ignore[type-arg]
        def __init__(self, before: int):
            self.before = before

        def __iter__(self) -> Iterator[int]:
            if not self.before:
                raise ArithmeticError("at once")

            def samples() -> Iterator[int]:
                yield from range(self.before)
                raise ArithmeticError("behind some")
            return samples()
    if workers:  # else iter(dataset) raises when the pass begins
        batches = iter(GD.DataLoader(Fails(0), num_workers=workers))
        with pytest.raises(ArithmeticError, match=r"worker process 0(.|\n)*at once"):
            next(batches)
        assert list(batches) == []
    batches = iter(GD.DataLoader(Fails(2), num_workers=workers))
    assert [next(batches).item(), next(batches).item()] == [0, 1]
    with pytest.raises(ArithmeticError, match="behind some"):
        next(batches)
    assert list(batches) == []


def test_what_ends_a_pass_is_no_end_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genesis.utils.data.workers.LOOK", 0.2)
    batches = iter(GD.DataLoader(range(8), 2, num_workers=1, collate_fn=die))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            next(batches)


@pytest.mark.parametrize("workers", [0, 1])
def test_two_passes_at_once(workers: int) -> None:
    loader = GD.DataLoader(range(4), 2, num_workers=workers)
    first, second = iter(loader), iter(loader)
    assert len(first) == 2
    for batches in (first, second):
        assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("library", [TD, GD], ids=["torch", "genesis"])
def test_persistent_workers_have_one_pass_at_a_time(library: Any) -> None:
    loader = library.DataLoader(range(6), 2, num_workers=1, persistent_workers=True)
    first = iter(loader)
    assert next(first).tolist() == [0, 1]
    second = iter(loader)
    assert second is first and [batch.tolist() for batch in second] == [[0, 1], [2, 3], [4, 5]]


class Fields(dict):  # type: ignore[type-arg]
    """A batch with attributes, as many libraries have."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [Fields, OrderedDict, UserDict])
def test_mappings_stay_of_their_class(kind: Any, workers: int) -> None:
    samples = [kind({"x": i}) for i in range(2)]
    batch = next(iter(GD.DataLoader(samples, 2, num_workers=workers)))
    assert type(batch) is kind and batch["x"].tolist() == [0, 1]
    batch = next(iter(GD.DataLoader(range(2), 2, num_workers=workers,
                                    collate_fn=lambda found: kind({"x": genesis.tensor(found)}))))
    assert type(batch) is kind and batch["x"].tolist() == [0, 1]
    rows = next(iter(GD.DataLoader([deque([1, 2]), deque([3, 4])], 2, num_workers=workers)))
    assert type(rows) is deque and [row.tolist() for row in rows] == [[1, 3], [2, 4]]


def test_what_a_collate_function_makes_here_is_the_batch() -> None:
    """No process is between: the tensor itself comes, with its gradient's history."""
    weight = genesis.ones(2, requires_grad=True)
    batch = next(iter(GD.DataLoader(range(4), 2, collate_fn=lambda found: weight * genesis.tensor(found))))
    batch.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [0, 1]


def test_gradients_go_through_batches_that_are_made_here() -> None:
    """A dataset of what is learnt, such as a vector for each sample."""
    for library, module in ((torch, TD), (genesis, GD)):
        learnt = library.ones(3, 2, requires_grad=True)
        for (batch,) in module.DataLoader(module.TensorDataset(learnt), 2):
            (batch * library.tensor([1.0, 2.0])).sum().backward()
        module.default_collate([learnt[0], learnt[2]]).sum().backward()
        assert learnt.grad.tolist() == [[2, 3], [1, 2], [2, 3]]


@pytest.mark.parametrize("options", [
    {}, {"num_workers": 1}, {"batch_size": None}, {"num_workers": 1, "prefetch_factor": 4},
    {"batch_sampler": [[0, 1]]}], ids=str)
def test_what_a_loader_says_of_itself_is_torchs(options: dict[str, Any]) -> None:
    """Libraries make a loader anew from these."""
    ours, theirs = GD.DataLoader(range(4), **options), TD.DataLoader(range(4), **options)
    for name in ("batch_size", "num_workers", "prefetch_factor", "drop_last", "timeout", "persistent_workers"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.collate_fn.__name__ == theirs.collate_fn.__name__
    again = GD.DataLoader(range(4), **options, collate_fn=ours.collate_fn)
    assert [plain(x) for x in again] == [plain(x) for x in ours] == [plain(x) for x in theirs]


def test_batches_come_where_shared_memory_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers have little of it, and writing to what is not there ends a process by SIGBUS."""
    def full(handle: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "posix_fallocate", full)
    before = set(os.listdir("/dev/shm"))
    rows = [np.full(40_000, i, np.float32) for i in range(4)]
    found = [batch[:, 0].tolist() for batch in GD.DataLoader(rows, 2, num_workers=1)]
    assert found == [[0, 1], [2, 3]] and set(os.listdir("/dev/shm")) <= before


def test_workers_are_forks() -> None:
    import multiprocessing
    for context in ("fork", multiprocessing.get_context("fork"), None):
        assert len(list(GD.DataLoader(range(4), 2, num_workers=1, multiprocessing_context=context))) == 2
    with pytest.raises(ValueError, match="'spawn', but workers are forks"):
        GD.DataLoader(range(4), 2, num_workers=1, multiprocessing_context="spawn")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_ends_an_iteration_of_its_own_is_an_error(workers: int) -> None:
    """A `next` too many in a dataset is no end of the data: nothing would say that samples are missing."""
    def ended(samples: list[int]) -> int:
        return next(iter(samples[2:]))
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(GD.DataLoader(range(8), 2, num_workers=workers, collate_fn=ended))


def die(_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genesis.utils.data.workers.LOOK", 0.2)
    with pytest.raises(RuntimeError, match=r"exited unexpectedly with status -9"):
        list(GD.DataLoader(range(8), 2, num_workers=1, collate_fn=die))


def test_a_batch_that_takes_too_long() -> None:
    with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
        list(GD.DataLoader(range(8), 2, num_workers=1, timeout=0.3, collate_fn=lambda _: time.sleep(30)))


def test_workers_have_seeds_and_numbers_of_their_own() -> None:
    def told(_: Any) -> tuple[int, float, float]:
        info = GD.get_worker_info()
        assert info is not None
        return info.id, float(np.random.rand()), genesis.rand(1).item()
    started: list[int] = []
    found = list(GD.DataLoader(range(4), 1, num_workers=2, collate_fn=told, worker_init_fn=started.append))
    assert [x[0] for x in found] == [0, 1, 0, 1] and len({x[1] for x in found}) == 4 == len({x[2] for x in found})
    assert started == [] and GD.get_worker_info() is None


class Drawing(GD.Dataset[tuple[float, ...]]):
    """Numbers of all generators that a dataset may draw from."""

    def __getitem__(self, index: int) -> tuple[float, ...]:
        return index, random.random(), np.random.rand(), genesis.rand(1).item()

    def __len__(self) -> int:
        return 12


class Streamed(GD.IterableDataset[tuple[float, ...]]):
    """The same, one after another; each worker has its own."""

    def __iter__(self) -> Iterator[tuple[float, ...]]:
        shift = np.random.rand()
        return ((shift, *Drawing()[i]) for i in range(8))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("dataset", [Drawing(), Streamed()], ids=["by index", "iterable"])
def test_what_workers_draw_is_the_same_in_a_pass_that_goes_on(dataset: Any, persistent: bool) -> None:
    """Of the second pass, before which workers that stay have drawn."""
    def make() -> GD.DataLoader:
        return GD.DataLoader(dataset, 2, num_workers=2, persistent_workers=persistent,
                             generator=genesis.Generator().manual_seed(4))

    def read(batches: Any) -> list[Any]:
        return [[column.tolist() for column in batch] for batch in batches]
    loader = make()
    whole = [read(loader)]
    batches = iter(loader)
    whole.append(read(islice(batches, 3)))
    state = loader.state_dict()
    rest = [read(batches), read(loader)]
    again = make()
    again.load_state_dict(state)
    assert [read(again), read(again)] == rest
    drawn = [x for part in (*whole, *rest) for batch in part for x in batch[-1]]
    assert len(set(drawn)) == len(drawn), "all batches draw different numbers"


def test_what_a_worker_init_fn_seeds_is_left_to_it() -> None:
    def seeds(worker: int) -> None:
        np.random.seed(worker)
    found = list(GD.DataLoader(Drawing(), 2, num_workers=1, worker_init_fn=seeds))
    assert np.concatenate([batch[2].numpy() for batch in found]).tolist() == pytest.approx(
        np.random.RandomState(0).rand(12))
    others = [x for batch in found for column in (batch[1], batch[3]) for x in column.tolist()]
    assert len(set(others)) == 24


def test_persistent_workers_are_the_same_processes() -> None:
    def process(_: Any) -> int:
        return os.getpid()
    kept = GD.DataLoader(range(2), 1, num_workers=1, collate_fn=process, persistent_workers=True)
    fresh = GD.DataLoader(range(2), 1, num_workers=1, collate_fn=process)
    assert set(kept) == set(kept) and set(fresh) != set(fresh)


PROGRAM = """
import os, sys, time
from genesis.utils.data import DataLoader
def slow(samples):
    time.sleep(60)
def told(number):
    sys.stdout.write(f"{os.getpid()}\\n")  # a piece, which no other worker's cuts
    sys.stdout.flush()
try:
    list(DataLoader(range(8), 2, num_workers=2, collate_fn=slow, worker_init_fn=told))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_leaves_no_process() -> None:
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True,
                          env={**os.environ, "PYTHONPATH": root}) as program:
        assert program.stdout is not None
        workers = [int(program.stdout.readline()) for _ in range(2)]
        os.killpg(program.pid, signal.SIGINT)
        assert program.stdout.readline() == "interrupted\n"
        program.wait(30)
    assert all(gone(worker) for worker in workers)


FORKS = """
import os
from genesis.utils.data import DataLoader
persistent = DataLoader(range(8), num_workers=1, persistent_workers=True)
first, second = iter(DataLoader(range(8), num_workers=1)), iter(persistent)
next(first), next(second)
child = os.fork()
if not child:
    del first, second, persistent
    os._exit(0)  # Python itself ends a process' daemonic children at its exit, those of its parent too
os.waitpid(child, 0)
print(sum(1 for _ in first), sum(1 for _ in second))
"""


def test_a_fork_leaves_its_parents_workers_alone() -> None:
    """Passes that are let go of in a child end nobody's workers and say nothing."""
    root = str(Path(__file__).resolve().parents[3])
    found = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60,
                           env={**os.environ, "PYTHONPATH": root})
    assert (found.stdout, found.stderr) == ("7 7\n", "")


FAILS_BEHIND_LARGE_ARRAYS = """
import sys, time
import numpy as np
from genesis.utils.data import DataLoader, Dataset
class Large(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        if index == 2 and sys.argv[1] == "fails":
            raise LookupError("no sample 2")
        return np.full(200_000, index, np.float32)
try:
    for batch in DataLoader(Large(), 1, num_workers=2):
        print(int(batch[0, -1]))
        time.sleep(0.3)  # the workers are ahead
except LookupError:
    print("told")
"""


@pytest.mark.parametrize(("how", "printed"), [("ends", "0 1 2 3 4 5"), ("fails", "0 1 told")])
def test_shared_memory_of_a_program_that_made_none_before(how: str, printed: str) -> None:
    """What watches over shared memory is one process for all: each worker's own would give back, as the worker ends,
    what the program has not read yet."""
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run([sys.executable, "-c", FAILS_BEHIND_LARGE_ARRAYS, how], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": root}, check=False)
    assert (done.stdout.split(), done.stderr) == (printed.split(), "")


def gone(process: int) -> bool:
    """Whether it ends within ten seconds. A zombie that nobody waits for has ended."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(("dataset", "options", "message"), [
    (range(3), {"num_workers": -1}, "num_workers=-1 is negative"),
    (range(3), {"prefetch_factor": 2}, "prefetch_factor needs workers"),
    (range(3), {"persistent_workers": True}, "persistent_workers needs workers"),
    (Numbers(3), {"shuffle": True}, "has its own order"),
    (Numbers(3), {"sampler": [1]}, "has its own order"),
    (range(3), {"sampler": [1], "shuffle": True}, "exclude each other"),
    (range(3), {"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler excludes"),
    (range(3), {"batch_size": None, "drop_last": True}, "drop_last must stay out"),
    (range(3), {"batch_size": 0}, "batch_size should be a positive integer"),
    (range(3), {"timeout": -1}, "timeout=-1 is negative"),
])
def test_arguments_that_exclude_each_other(dataset: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GD.DataLoader(dataset, **options)


def test_samples_that_cannot_be_stacked() -> None:
    with pytest.raises(RuntimeError, match=r"different shapes: \(1,\), \(2,\)"):
        list(GD.DataLoader([np.ones(1), np.ones(2)], 2))
    with pytest.raises(RuntimeError, match="equal size"):
        list(GD.DataLoader([[1], [2, 3]], 2))
    with pytest.raises(TypeError, match="found object"):
        list(GD.DataLoader([object(), object()], 2))
    for other in (3, None, np.ones(2)):
        with pytest.raises(TypeError, match="expected Tensor as element 1 of the batch"):
            list(GD.DataLoader([genesis.ones(2), other], 2))


def _vector(library: Any, dtype: str) -> Any:
    return library.ones(2, dtype=getattr(library, dtype))


def _array(library: Any, dtype: str) -> Any:
    return np.ones(2, dtype)


def _scalar(library: Any, dtype: str) -> Any:
    return getattr(np, dtype)(1)


@pytest.mark.parametrize("make", [_vector, _array, _scalar])
@pytest.mark.parametrize("of", ["int64 float32", "float32 int64", "float16 float32", "int32 float16", "uint8 int8",
                                "float64 float32"])
def test_samples_of_several_dtypes_promote_as_tensors_do(of: str, make: Callable[..., Any]) -> None:
    """numpy makes float64 of int64 and float32."""
    wanted, found = (module.default_collate([make(library, name) for name in of.split()])
                     for library, module in ((torch, TD), (genesis, GD)))
    assert str(found.dtype).split(".")[1] == str(wanted.dtype).split(".")[1] and found.tolist() == wanted.tolist()


def test_a_number_beside_one_of_numpys_is_of_its_dtype() -> None:
    assert GD.default_collate([np.float32(1), 2.5]).dtype is genesis.float32
    assert GD.default_collate([np.int32(1), 2]).dtype is genesis.int64  # as torch.as_tensor of the list


def test_an_interrupt_at_any_line_of_the_loader_leaves_a_place_that_the_pass_had() -> None:
    """Where the generator stands, and which pass is where, changes at once: no draw is lost, none is made twice."""
    from tests.faults.events import Traced, chosen

    def loader() -> Any:
        return GD.DataLoader(GD.TensorDataset(genesis.arange(6)), batch_size=3, shuffle=True,
                             generator=genesis.Generator().manual_seed(3))

    def place(of: Any) -> Any:
        state = of.state_dict()
        return state["seed"], state["batches"], state["generator"].tolist()

    def beginning() -> tuple[Any, Callable[[], Any]]:
        it = loader()
        return it, lambda: iter(it)

    def ending() -> tuple[Any, Callable[[], Any]]:
        it = loader()
        batches = iter(it)
        assert len([next(batches), next(batches)]) == 2
        return it, lambda: next(batches, None)

    def loading() -> tuple[Any, Callable[[], Any]]:
        it, other = loader(), loader()
        next(iter(other))
        return it, lambda: it.load_state_dict(other.state_dict())
    for make in (beginning, ending, loading):
        make()[1]()  # compiled, so that the runs below have the same lines
        it, run = make()
        before = place(it)
        lines = Traced("line", ("utils/data/",))
        places = lines.places(run)
        after = place(it)
        assert before != after
        for at in chosen(places):
            it, run = make()
            with pytest.raises(KeyboardInterrupt):
                lines.interrupt(run, at)
            assert place(it) in (before, after), f"interrupted at {places[at]}"
