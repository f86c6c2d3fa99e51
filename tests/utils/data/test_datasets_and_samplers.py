"""Datasets and samplers beside torch's."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.data as TD

import genesis
from genesis.utils import data as GD


def test_concatenated_chained_stacked_and_cut_datasets() -> None:
    ours, theirs = GD.ConcatDataset([[1, 2], [3]]), TD.ConcatDataset([[1, 2], [3]])
    assert [ours[i] for i in range(-3, 3)] == [theirs[i] for i in range(-3, 3)] and len(ours) == len(theirs) == 3
    with pytest.raises(IndexError, match="index 3 is out of range for 3 samples"):
        ours[3]
    assert list(GD.ChainDataset([[1, 2], [3]])) == [1, 2, 3] and len(GD.ChainDataset([[1, 2], [3]])) == 3
    assert list(GD.Subset("abcdef", [4, 1])) == ["e", "b"]
    assert GD.StackDataset([1, 2], [3, 4])[1] == (2, 4)
    assert GD.StackDataset(x=[1, 2], y=[3, 4])[0] == {"x": 1, "y": 3}
    for error, bad in ((ValueError, lambda: GD.ConcatDataset([])), (ValueError, lambda: GD.StackDataset()),
                       (ValueError, lambda: GD.StackDataset([1], [2, 3])),
                       (AssertionError, lambda: GD.TensorDataset(genesis.ones(2), genesis.ones(3)))):
        with pytest.raises(error, match="ataset"):
            bad()


@pytest.mark.parametrize(("count", "lengths"), [
    (10, [7, 3]), (10, [0.5, 0.25, 0.25]), (7, [0.3, 0.3, 0.4]), (3, [3, 0])])
def test_random_parts_have_torchs_lengths_and_no_common_samples(count: int, lengths: list[Any]) -> None:
    parts = GD.random_split(range(count), lengths)
    assert [len(p) for p in parts] == [len(p) for p in TD.random_split(range(count), lengths)]
    assert sorted(x for part in parts for x in part) == list(range(count))
    with pytest.raises(ValueError, match="lengths sum to"):
        GD.random_split(range(count), [1, 1])


def test_samplers_without_chance_are_torchs() -> None:
    for drop_last in (False, True):
        ours, theirs = (list(m.BatchSampler(range(7), 3, drop_last)) for m in (GD, TD))
        assert ours == theirs
    assert list(GD.SequentialSampler("abc")) == [0, 1, 2]
    for count, replicas in ((10, 3), (2, 4), (9, 3)):
        for drop_last in (False, True):
            for rank in range(replicas):
                ours = GD.DistributedSampler(range(count), replicas, rank, shuffle=False, drop_last=drop_last)
                theirs = TD.DistributedSampler(range(count), replicas, rank, shuffle=False, drop_last=drop_last)
                assert list(ours) == list(theirs) and len(ours) == len(theirs), (count, replicas, rank, drop_last)


def test_processes_share_an_order_that_changes_by_epoch() -> None:
    def order(epoch: int) -> list[int]:
        samplers = [GD.DistributedSampler(range(12), 3, rank, seed=5) for rank in range(3)]
        for sampler in samplers:
            sampler.set_epoch(epoch)
        return sorted(x for sampler in samplers for x in sampler)
    assert order(0) == order(1) == list(range(12))
    first, second = GD.DistributedSampler(range(12), 3, 0), GD.DistributedSampler(range(12), 3, 0)
    second.set_epoch(1)
    assert list(first) != list(second)


def test_random_samplers() -> None:
    genesis.manual_seed(0)
    sampler = GD.RandomSampler(range(30))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(30)) and first != second
    assert len(list(GD.RandomSampler(range(4), num_samples=10))) == 10
    drawn = list(GD.RandomSampler(range(4), replacement=True, num_samples=400))
    assert len(drawn) == 400 and set(drawn) == {0, 1, 2, 3}
    assert sorted(GD.SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    weighted = list(GD.WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
    # Of n draws with p = 3/4 the count has deviation √(np(1-p)) = 27: five of them.
    assert 0 not in weighted and abs(weighted.count(2) - 3000) < 140
    for bad in (lambda: GD.RandomSampler([1], num_samples=0), lambda: GD.WeightedRandomSampler([1.0], 0),
                lambda: GD.BatchSampler([1], 0, False), lambda: GD.DistributedSampler([1], 2, 2)):
        with pytest.raises(ValueError, match="should be"):
            bad()


def test_converting_without_a_batch() -> None:
    sample = {"x": [1, 2], "y": torch.ones(2).numpy()}
    found = GD.default_convert(sample)
    assert found["x"] == [1, 2] and isinstance(found["y"], genesis.Tensor)
    Point = namedtuple("Point", "x y")
    for kind, data in ((genesis, GD), (torch, TD)):
        samples = list(data.DataLoader([(1, Point(2, (3,)), [kind.ones(1)])] * 2, batch_size=None))
        assert samples[1][:2] == [1, Point(2, [3])] and type(samples[0][1]) is Point and type(samples[0][2]) is list


REFUSED: dict[str, Any] = {
    "a number for replacement": lambda data: data.RandomSampler(range(3), replacement=1),
    "a number for replacement, with weights": lambda data: data.WeightedRandomSampler([0.5, 0.5], 2, replacement=1),
    "a text for drop_last": lambda data: data.BatchSampler(range(3), 2, "x"),
    "no samples in a random order": lambda data: data.RandomSampler([]),
    "no samples, shuffled": lambda data: data.DataLoader([], shuffle=True),
    "an index before the first sample": lambda data: data.ConcatDataset([range(3), range(2)])[-6],
    "a negative fraction": lambda data: data.random_split(range(10), [-0.5, 1.5]),
    "a context without workers": lambda data: data.DataLoader(range(3), multiprocessing_context="fork"),
    **{f"another {name}": (lambda data, name=name: setattr(data.DataLoader(range(3)), name, 2)) for name in (
        "batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")},
}


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
def test_what_torch_refuses_is_refused_by_the_same_error(made: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        made(TD)
    with pytest.raises(theirs.type):
        made(GD)


def test_a_loader_goes_around_what_is_set_once() -> None:
    """As loaders with endless samplers do, which programs write over torch's."""
    loader: GD.DataLoader[Any] = GD.DataLoader(range(4), batch_size=2)
    object.__setattr__(loader, "batch_sampler", [[3], [1, 0]])
    loader.collate_fn = list
    assert list(loader) == [[3], [1, 0]]
