"""Messages between ranks of the CPU: begun in one order, waited for in another, with others or without."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import genesis
from genesis import distributed as dist
from genesis.distributed.store import StoreServer
from tests.distributed.ranks import Ranks, ended, forked, join, on_the_host

pytestmark = on_the_host("on a GPU messages have their place in the order of the group's collectives")


def _waited(*works: dist.Work | None) -> None:
    for work in works:
        assert work is not None and work.wait() and work.is_completed()


def orders(rank: int, size: int) -> dict[str, Any]:
    """A ring, of which each rank begins to receive first; the second message first; a receipt that needs two requests;
    tags in another order than they were sent in; rows of a transposed tensor; and sends that nobody waits for."""
    before, behind = (rank - 1) % size, (rank + 1) % size
    first, second = genesis.zeros(2), genesis.zeros(2)
    begun = dist.irecv(first, before), dist.irecv(second, before)
    sent = dist.isend(genesis.full((2,), 1.0 + rank), behind), dist.isend(genesis.full((2,), 10.0 + rank), behind)
    _waited(*begun[::-1], *sent)
    found: dict[str, Any] = {"ring": (first[0].item(), second[0].item())}
    answer, asked = genesis.zeros(1), [genesis.zeros(1), genesis.zeros(1)]
    if rank == 0:
        work = dist.irecv(answer, 1)
        dist.isend(genesis.ones(1), 1)
        dist.isend(genesis.ones(1) * 2, 1)
        _waited(work)
    elif rank == 1:
        for x in asked:
            dist.recv(x, 0)
        dist.send(asked[0] + asked[1], 0)
    found["answer"] = answer.item()
    one, two = genesis.zeros(3, 2), genesis.zeros(2, dtype=genesis.bool)
    if rank == 0:
        dist.isend(genesis.arange(6.0).reshape(2, 3).t(), 1, tag=1)
        dist.isend(genesis.tensor([True, False]), 1, tag=2)
    elif rank == 1:
        works = dist.irecv(two, 0, tag=2), dist.irecv(one, 0, tag=1)
        _waited(*works)
    dist.barrier()
    return found | {"tags": (one.tolist(), two.tolist())}


def test_messages_are_waited_for_in_any_order(ranks: Ranks) -> None:
    found = ranks(orders)
    for rank, each in enumerate(found):
        before = (rank - 1) % len(found)
        assert each["ring"] == (1 + before, 10 + before)
    assert found[0]["answer"] == 3
    assert found[1]["tags"] == ([[0, 3], [1, 4], [2, 5]], [True, False])


def _two_of_three(rank: int, port: int, folder: Path) -> None:
    join(rank, 3, port)
    x = genesis.zeros(2)
    if rank == 0:
        dist.isend(genesis.ones(2), 1)  # goes on while the group is destroyed
    elif rank == 1:
        (folder / "source").write_text(f"{dist.recv(x)} {x.tolist()}")
    dist.destroy_process_group()


def test_two_ranks_need_no_third_for_a_message(tmp_path: Path) -> None:
    store = StoreServer(0)
    try:
        processes = [forked().Process(target=_two_of_three, args=(rank, store.port, tmp_path)) for rank in range(3)]
        for process in processes:
            process.start()
        assert ended(processes) == [0, 0, 0]
    finally:
        store.close()
    assert (tmp_path / "source").read_text() == "0 [1.0, 1.0]"


def exchanged(rank: int, size: int, width: tuple[int, ...]) -> list[Any]:
    """Ranks 0 and 1 exchange rows; others have none for anybody."""
    sent = [rank + 1, 1] + [0] * (size - 2) if rank < 2 else [0] * size
    received = [1, 2] if rank == 0 else [1, 1] if rank == 1 else [0, 0]
    x = genesis.full((sum(sent), *width), 1.0 + rank)
    out = genesis.zeros(sum(received), *width)
    dist.all_to_all_single(out, x, received + [0] * (size - 2), sent)
    found: list[Any] = out.tolist()
    return found


def test_a_rank_without_rows_takes_part_in_an_exchange(four: Ranks) -> None:
    assert four(exchanged, ()) == [[1, 2, 2], [1, 2], [], []]
    assert four(exchanged, (2,)) == [[[1, 1], [2, 2], [2, 2]], [[1, 1], [2, 2]], [], []]
    assert four(exchanged, (0,)) == [[[], [], []], [[], []], [], []]


def _with_gpus(rank: int, port: int, folder: Path) -> None:
    """A run of GPUs, as far as groups can tell: the CPU's connections are made when the first message asks for them."""
    from genesis import cuda
    cuda.is_available = lambda: True
    join(rank, 3, port, backend="cpu:gloo,cuda:nccl")
    group = dist.new_group([2, 1, 0])
    if rank == 2:
        while not (folder / "received").exists():
            time.sleep(0.05)  # it takes no part in what the others do
    elif rank == 0:
        dist.send_object_list([{"step": 3}], 1)
        dist.send(genesis.ones(2), 1, group=group)
    else:
        objects, x = [None], genesis.zeros(2)
        dist.recv_object_list(objects, 0)
        dist.recv(x, group=group)
        (folder / "received").write_text(f"{objects} {x.tolist()}")
    met = genesis.tensor([1.0])
    dist.all_reduce(met)
    assert met.item() == 3
    dist.destroy_process_group()


def test_on_gpus_the_first_message_of_the_cpu_needs_no_third_rank_either(tmp_path: Path) -> None:
    """Where the default backends are NCCL and gloo nobody has connected for the CPU before."""
    store = StoreServer(0)
    try:
        processes = [forked().Process(target=_with_gpus, args=(rank, store.port, tmp_path)) for rank in range(3)]
        for process in processes:
            process.start()
        assert ended(processes) == [0, 0, 0]
    finally:
        store.close()
    assert (tmp_path / "received").read_text() == "[{'step': 3}] [1.0, 1.0]"
