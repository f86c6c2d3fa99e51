"""Samplers: which samples come, in which order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.generator import Generator, default_generator
from genesis.ir.interrupting import from_inside
from genesis.ops.creation import as_tensor
from genesis.ops.random import multinomial, randint, randperm

Index = TypeVar("Index", covariant=True)


class Sampler(Generic[Index]):
    """Indices, in an order: subclasses define `__iter__`, most `__len__` too."""

    def __iter__(self) -> Iterator[Index]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, …"""

    def __init__(self, data_source: Any):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def fresh_seed(generator: Generator | None = None) -> int:
    """A seed, drawn from a generator."""
    return kept_seed(generator, lambda seed: [])


def kept_seed(generator: Generator | None, keep: Callable[[int], list[Change]]) -> int:
    """A seed, drawn from a generator: it moves on at once with what keeps the seed, or where something raises not at
    all, so that no interrupt loses a draw.

    Args:
        generator: the default one for None.
        keep: the changes that keep the seed.
    """
    source = default_generator if generator is None else generator
    while True:
        _, moves, expected = source.ahead({})
        seed = int(randint(0, 2 ** 62, (1,), generator=source.clone_state()).item())
        try:
            at_once(changes((), [*moves, *keep(seed)], expected))
        except from_inside(KeyError):  # another thread drew meanwhile
            continue
        return seed


class RandomOrder(Sampler[int]):
    """A sampler that draws its order, all of it when a pass begins: drawn again from where its generator stood then it
    is the same, so that a loader can go on in the middle of a pass.

    Attributes:
        generator: of the draws; None for a default.
    """

    generator: Generator | None

    def __iter__(self) -> Iterator[int]:
        yield from self.order(self.source())

    def source(self) -> Generator:
        """What the next order is drawn from."""
        return default_generator if self.generator is None else self.generator

    def order(self, generator: Generator) -> Iterator[int]:
        """An order that is drawn from this generator, before its first index is given."""
        raise NotImplementedError


class RandomSampler(RandomOrder):
    """Samples in a random order, or drawn one by one.

    Args:
        data_source: with a length.
        replacement: a sample may come again.
        num_samples: how many come; all by default.
        generator: of the draws; by default, a new one for each pass, seeded from the CPU's.
    """

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None,
                 generator: Generator | None = None):
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement should be True or False, not {replacement!r}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        if self.num_samples <= 0:
            raise ValueError(f"RandomSampler: num_samples should be a positive integer, not {self.num_samples}")

    @property
    def num_samples(self) -> int:
        """How many indices a pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def source(self) -> Generator:
        """What the next order is drawn from."""
        if self.generator is not None:
            return self.generator
        return Generator().manual_seed(fresh_seed())

    def order(self, generator: Generator) -> Iterator[int]:
        """Numbers from 0 to the number of samples, as permutations one behind the other, or drawn one by one."""
        count, left = len(self.data_source), self.num_samples
        if self.replacement:
            yield from randint(0, count, (left,), generator=generator).tolist()
            return
        for rounds in [randperm(count, generator=generator) for _ in range(-(-left // count))]:
            yield from rounds.tolist()[:left]
            left -= count

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(RandomOrder):
    """Some indices, in a random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def order(self, generator: Generator) -> Iterator[int]:
        """A permutation of the indices."""
        for i in randperm(len(self.indices), generator=generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(RandomOrder):
    """Indices drawn with given weights, which need not sum to 1."""

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True,
                 generator: Generator | None = None):
        if num_samples <= 0:
            raise ValueError(f"WeightedRandomSampler: num_samples should be a positive integer, not {num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"WeightedRandomSampler: replacement should be True or False, not {replacement!r}")
        self.weights = as_tensor(weights).double()
        if self.weights.ndim != 1:
            raise ValueError("WeightedRandomSampler: weights should be a 1d sequence, not of shape "
                             f"{tuple(self.weights.shape)}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def order(self, generator: Generator) -> Iterator[int]:
        """Indices that are drawn by their weights."""
        yield from multinomial(self.weights, self.num_samples, self.replacement, generator=generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of a sampler's indices.

    >>> list(BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"BatchSampler: batch_size should be a positive integer value, but got {batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last should be True or False, not {drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return self.batches(self.sampler)

    def batches(self, indices: Iterable[int]) -> Iterator[list[int]]:
        """Lists of these indices."""
        batch: list[int] = []
        for index in indices:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler[int]):
    """Every process's own part of a dataset, of equal lengths: some samples come twice, or some never (`drop_last`).

    Args:
        dataset: with a length.
        num_replicas, rank: how many processes there are, and which this is; by default what `genesis.distributed` says.
        shuffle: in an order that is the same in all processes, and another for each `set_epoch`.
        seed: of that order.
        drop_last: leave the last samples out instead of repeating the first.
    """

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False):
        if num_replicas is None or rank is None:
            from genesis import distributed as dist
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"DistributedSampler: invalid rank {rank}, rank should be in the interval "
                             f"[0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else math.ceil(count / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Another order for each pass."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order: list[int] = list(range(len(self.dataset)))
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = randperm(len(order), generator=generator).tolist()
        while 0 < len(order) < self.total_size:
            order += order[:self.total_size - len(order)]
        return iter(order[self.rank:self.total_size:self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
