"""Datasets: what gives a sample for an index, or samples one after another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from genesis.frontend.generator import Generator
from genesis.frontend.tensor import Tensor
from genesis.ops.random import randperm

Sample = TypeVar("Sample", covariant=True)


class Dataset(Generic[Sample]):
    """A sample for each index: subclasses define `__getitem__`, most `__len__` too.

    `__getitems__(indices)`, where it is defined, gives a whole batch at once.
    """

    def __getitem__(self, index: Any) -> Sample:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Sample]):
    """Samples one after another: subclasses define `__iter__`.

    Each worker has a copy that gives all samples: `get_worker_info()` tells a copy which part is its own.
    """

    def __iter__(self) -> Iterator[Sample]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The rows of tensors: sample i is (tensor[i], …).

    Raises:
        AssertionError: the tensors have unequal numbers of rows.

    >>> import genesis
    >>> TensorDataset(genesis.arange(3), genesis.ones(3, 2))[1]
    (tensor(1), tensor([1., 1.]))
    """

    def __init__(self, *tensors: Tensor):
        if len({tensor.shape[0] for tensor in tensors}) > 1:
            raise AssertionError("TensorDataset: size mismatch between tensors: "
                                 + ", ".join(str(tuple(tensor.shape)) for tensor in tensors))
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


def _several(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """The samples at these indices."""
    at_once = getattr(dataset, "__getitems__", None)
    if at_once is None:
        return [dataset[i] for i in indices]
    found: list[Any] = at_once(indices)
    if len(found) != len(indices):
        raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(found)}")
    return found


class StackDataset(Dataset[Any]):
    """Datasets of one length side by side: a sample is a tuple of theirs, or a dictionary for named ones."""

    def __init__(self, *datasets: Any, **named: Any):
        if bool(datasets) == bool(named):
            raise ValueError("StackDataset: datasets, or named ones: not both, and at least one")
        self.datasets: Any = named or datasets
        lengths = {len(dataset) for dataset in (named.values() if named else datasets)}
        if len(lengths) > 1:
            raise ValueError("StackDataset: size mismatch between datasets")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples, at once where the datasets can."""
        if isinstance(self.datasets, dict):
            rows = zip(*(_several(dataset, indices) for dataset in self.datasets.values()), strict=True)
            return [dict(zip(self.datasets, row, strict=True)) for row in rows]
        return list(zip(*(_several(dataset, indices) for dataset in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Datasets one after another.

    >>> both = ConcatDataset(["ab", "cde"])
    >>> len(both), both[1], both[-1]
    (5, 'b', 'e')
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise TypeError("ConcatDataset does not support IterableDataset: ChainDataset does")
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):  # torch's errors: counted from the end it is a value, from the start an end
            raise (ValueError if index < 0 else IndexError)(f"index {index} is out of range for {len(self)} samples")
        which = bisect_right(self.cumulative_sizes, place)
        return self.datasets[which][place - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after another."""

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


class Subset(Dataset[Any]):
    """The samples of a dataset at some indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples, at once where the dataset can."""
        return _several(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset]:
    """Parts of a dataset without common samples.

    Args:
        dataset: with a length.
        lengths: of the parts, or fractions that sum to 1; what rounding leaves goes to the first parts, one each.
        generator: of the draws.

    Raises:
        ValueError: the lengths do not sum to the dataset's, or a fraction is not between 0 and 1.

    >>> import genesis
    >>> [len(part) for part in random_split(range(10), [0.5, 0.25, 0.25])]
    [6, 2, 2]
    """
    total = len(dataset)
    if abs(sum(lengths) - 1) < 1e-9 and sum(lengths) <= 1 + 1e-9 and not all(isinstance(n, int) for n in lengths):
        if any(not 0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"random_split: fractions are between 0 and 1, not {list(lengths)}")
        sizes = [int(total * fraction) for fraction in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(n) for n in lengths]
    if sum(sizes) != total:
        raise ValueError(f"random_split: the lengths sum to {sum(sizes)}, the dataset has {total} samples")
    order = randperm(total, generator=generator).tolist()
    ends = list(accumulate(sizes))
    return [Subset(dataset, order[end - size:end]) for size, end in zip(sizes, ends, strict=True)]
