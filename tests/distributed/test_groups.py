"""Groups that only their own ranks make, or only two of their ranks use first: nobody waits for the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import genesis
from genesis import distributed as dist
from genesis import nn
from genesis.distributed.fsdp import fully_shard
from genesis.engine.backends import FakeCUDABackend
from genesis.nn.parallel.fsdp.group import _neighbours
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.distributed.ranks import Ranks, on_the_host


def summed(rank: int, group: Any) -> list[float]:
    x = genesis.ones(1) * (rank + 1)
    dist.all_reduce(x, group=group)
    return x.tolist()


def made_by_its_own(rank: int, size: int) -> dict[str, Any]:
    """Groups that the other ranks know nothing of, then one of all."""
    found: dict[str, Any] = {}
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    groups = [dist.new_group(pair, use_local_synchronization=True) for _ in range(2)]
    found["pairs"] = [summed(rank, group) for group in groups]
    if rank < 2:
        found["first two"] = summed(rank, dist.new_group([0, 1], use_local_synchronization=True))
    found["all"] = summed(rank, dist.new_group())
    found["outside"] = dist.new_group([size - 1], use_local_synchronization=True) is \
        dist.GroupMember.NON_GROUP_MEMBER
    return found


def test_ranks_make_a_group_without_the_others(four: Ranks) -> None:
    """The key of a group was the number of those that its process had made: ranks that had made different ones met
    nobody."""
    for rank, found in enumerate(four(made_by_its_own)):
        pair = sum(other + 1 for other in (rank // 2 * 2, rank // 2 * 2 + 1))
        assert found["pairs"] == [[pair]] * 2 and found["all"] == [10]
        assert found.get("first two") == ([3] if rank < 2 else None)
        assert found["outside"] == (rank != 3)


def neighbours(rank: int, size: int) -> list[float]:
    """What a slice of a mesh makes for `reshard_after_forward=2`, here of two ranks, which the other slice does too."""
    pair = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "fsdp"))["fsdp"].get_group()
    return summed(rank, _neighbours(pair, 2))


@on_the_host("NCCL finds the others by the same keys")
def test_slices_of_a_mesh_make_groups_of_neighbours_each(four: Ranks) -> None:
    """Both slices made a group of the same number, and their ranks met in it."""
    assert four(neighbours) == [[3], [3], [7], [7]]


def subgroups(rank: int, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    own, groups = dist.new_subgroups(2)
    found["of two"] = summed(rank, own), len(groups), [g == own for g in groups]
    own, groups = dist.new_subgroups(1, group=dist.new_group([size - 1, *range(size - 1)], sort_ranks=False))
    found["of a group"] = summed(rank, own), groups.index(own)
    own, groups = dist.new_subgroups_by_enumeration([[0, size - 1]])
    found["ends"] = own and summed(rank, own)
    split = dist.split_group(split_ranks=[[0], [size - 1]])
    found["split"] = split and summed(rank, split)
    half = dist.new_group([rank // 2 * 2, rank // 2 * 2 + 1], use_local_synchronization=True)
    again = dist.split_group(half, [[1]])  # the second of each half
    found["again"] = again and (dist.get_process_group_ranks(again), summed(rank, again))
    return found


def test_groups_of_equal_size_and_splits_of_groups(ranks: Ranks) -> None:
    results = ranks(subgroups)
    size = len(results)
    for rank, found in enumerate(results):
        pair, ends = rank // 2 * 2, rank in (0, size - 1)
        assert found["of two"] == ([2 * pair + 3], size // 2, [i == rank // 2 for i in range(size // 2)])
        assert found["of a group"] == ([rank + 1], (rank + 1) % size)
        assert found["ends"] == ([1 + size] if ends else None)
        assert found["split"] == ([rank + 1] if ends else None)
        assert found["again"] == (([rank], [rank + 1]) if rank % 2 else None)


def refused(rank: int, size: int) -> dict[str, str]:
    found = {}
    calls: dict[str, Callable[[], Any]] = {
        "three": lambda: dist.new_subgroups(3), "none": lambda: dist.new_subgroups(0), "no size": dist.new_subgroups,
        "empty": lambda: dist.new_subgroups_by_enumeration([]),
        "twice": lambda: dist.new_subgroups_by_enumeration([[0, 1], [1]]), "no split": dist.split_group,
        "split twice": lambda: dist.split_group(split_ranks=[[0, 1], [1]]),
        "no such": lambda: dist.split_group(split_ranks=[[size]])}
    for name, call in calls.items():
        try:
            call()
        except ValueError as error:
            found[name] = str(error).splitlines()[0]
    return found


@on_the_host("without a GPU the size has to be said")
def test_subgroups_that_cannot_be_are_refused(two: Ranks) -> None:
    for found in two(refused):
        assert found == {
            "three": "new_subgroups: The arg 'group_size' (3) must not exceed the world size (2)",
            "none": "new_subgroups: The arg 'group_size' (0) must be positive",
            "no size": "new_subgroups: without a GPU a group_size is needed",
            "empty": "new_subgroups_by_enumeration: The arg 'ranks_per_subgroup_list' cannot be empty",
            "twice": "new_subgroups_by_enumeration: Rank 1 has appeared in both subgroup [0, 1] and [1]",
            "no split": "split_group: split_ranks cannot be None or empty",
            "split twice": "split_group: Rank 1 has appeared in both subgroup [0, 1] and [1]",
            "no such": "split_group: [2] are not places in a group of 2"}


def order(rank: int, size: int) -> dict[str, Any]:
    given = dist.new_group([1, 0], sort_ranks=False)
    sorted_ = dist.new_group([1, 0])
    x, y = genesis.zeros(2), genesis.zeros(2)
    for out, group in ((x, given), (y, sorted_)):
        dist.all_gather_single(out, genesis.ones(1) * rank, group=group)
    part = genesis.zeros(1)
    dist.reduce_scatter_single(part, genesis.arange(2.0), group=given)
    return {"given": x.tolist(), "sorted": y.tolist(), "part": part.tolist(), "places": dist.get_rank(given)}


def test_ranks_have_their_places_as_given_where_that_is_asked(two: Ranks) -> None:
    for rank, found in enumerate(two(order)):
        assert found == {"given": [1, 0], "sorted": [0, 1], "part": [0] if rank else [2], "places": 1 - rank}


def message_of_a_gpu(rank: int, size: int) -> tuple[list[float], bool]:
    """Two of four ranks send each other a GPU's tensor through gloo; the others go on."""
    group = dist.new_group()  # with "gloo" for the CPU and GPUs
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        x = genesis.full((2,), 5.0 + rank, device="cuda")
        if rank == 0:
            dist.send(x, 1, group=group)
        elif rank == 1:
            dist.recv(x, 0, group=group)
        found = x.tolist()
    answers: list[Any] = [None] * size
    dist.all_gather_object(answers, found)  # with the other group: those that take no part wait here
    return found, answers[1] == [5, 5]


@on_the_host("a process has the pretended GPU or a real one")
def test_two_ranks_messages_of_gpus_through_gloo_wait_for_no_other(four: Ranks) -> None:
    """gloo connects all of a group's ranks for the first message."""
    assert four(message_of_a_gpu) == [([5, 5], True), ([5, 5], True), ([7, 7], True), ([8, 8], True)]


def across(rank: int, size: int) -> list[float]:
    """Collectives of two groups in one program, whose results the ranks read in different orders."""
    one, other = dist.new_group(), dist.new_group()
    x, y = genesis.ones(2) * (rank + 1), genesis.ones(3) * (rank + 1)
    a, b = (x * 2).exp().log(), y.exp().log()
    dist.all_reduce(a, group=one)
    dist.all_reduce(b, group=other)
    first, second = (a, b) if rank == 0 else (b, a)
    return sorted([first.sum().item(), second.sum().item()])


@on_the_host("on GPUs groups run beside each other")
def test_two_groups_collectives_run_in_one_order_on_all_ranks(two: Ranks) -> None:
    """Nothing put one group's before another's: each rank waited in the group whose result it had asked for."""
    for found in two(across):
        assert [round(x, 4) for x in found] == [9, 12]


def uneven(rank: int, size: int) -> list[float]:
    """Rows that the ranks have unequally many of, in a group each: one pads its part, so that programs differ."""
    genesis.manual_seed(0)
    model: Any = nn.Sequential(*[nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 10), nn.Linear(10, 5)) for _ in range(3)])
    for block in model:
        for layer in block:
            fully_shard(layer, mesh=dist.DeviceMesh("cpu", range(size)))
        fully_shard(block, mesh=dist.DeviceMesh("cpu", range(size)))
    optimizer = genesis.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for i in range(2):
        loss = (model(genesis.full((2, 5), float(rank + i))) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@on_the_host("on GPUs groups run beside each other")
def test_ranks_of_unequal_parts_run_several_groups_in_one_order(two: Ranks) -> None:
    assert all(loss > 0 for losses in two(uneven) for loss in losses)


def handle(rank: int, size: int) -> Any:
    work: Any = dist.all_reduce(genesis.ones(1), async_op=True)
    return work.wait(), work.exception(), dist.get_backend_config(), dist.get_pg_count() >= 1


@on_the_host("the backend is NCCL there")
def test_a_handle_has_no_error_of_its_own(two: Ranks) -> None:
    assert two(handle) == [(True, None, "cpu:gloo,cuda:gloo", True)] * 2


def late(rank: int, size: int) -> dict[str, str]:
    """Rank 1 of two, or 1 and 2 of four, come later than the others wait for them."""
    found = {}
    group = dist.new_group()
    dist.monitored_barrier(group)
    for name, everyone in (("first", False), ("all", True)):
        dist.barrier()
        if rank in (1, size - 2) and rank:
            time.sleep(1)
        try:
            dist.monitored_barrier(group, timedelta(seconds=0.3), wait_all_ranks=everyone)
        except dist.DistBackendError as error:
            found[name] = str(error).splitlines()[0].removeprefix("monitored_barrier: ")
    dist.monitored_barrier(group, timedelta(seconds=20))
    return found


def test_a_monitored_barrier_names_who_has_not_come(ranks: Ranks) -> None:
    """It was a barrier, which waited for as long as the group's collectives may take, and named nobody."""
    results = ranks(late)
    first, others = "Rank 1 failed to pass monitoredBarrier in 0.3 s", {
        2: "Rank 1 failed to pass monitoredBarrier in 0.3 s",
        4: "Ranks 1, 2 failed to pass monitoredBarrier in 0.3 s"}[len(results)]
    assert results[0] == {"first": first, "all": others}
    for rank, found in enumerate(results[1:], 1):
        assert found == {"first": f"Rank {rank} has reached it, but {first}",
                         "all": f"Rank {rank} has reached it, but {others}"}
