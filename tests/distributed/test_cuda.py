"""Collectives in CUDA plans: on the fake GPU, with data moved by way of the host."""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import engine, nn
from genesis.distributed.fsdp import fully_shard
from genesis.distributed.optim import ZeroRedundancyOptimizer
from genesis.engine.backends import FakeCUDABackend
from genesis.frontend.at_once import at_once, changes
from genesis.ir.ops.collectives import order_type
from genesis.ir.place import Place
from genesis.ir.types import Device, DType, bool_, float32, tensor_type, uint8
from genesis.nn.parallel import DistributedDataParallel
from genesis.runtime.collectives import DistBackendError
from genesis.runtime.cuda import nccl
from genesis.runtime.cuda.collective_work import CollectiveWork
from genesis.runtime.cuda.staged_transport import StagedTransport
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.ledger import POINT_TO_POINT, Ledger, ledger
from genesis.runtime.plan import Collective
from tests.distributed.ranks import Ranks, on_the_host

pytestmark = on_the_host("a process has the pretended GPU or a real one")


def steps_of(model: Any, rank: int, device: str, count: int) -> tuple[list[float], Any]:
    """The losses of this rank's steps, and the last step's plan."""
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    losses, plan = [], None
    for i in range(count):
        optimizer.zero_grad()
        loss = (model(genesis.full((2, 4), float(rank + i), device=device)) ** 2).mean()
        loss.backward()
        optimizer.step()
        plan = engine.last_plan()
        losses.append(loss.item())
    return losses, plan


def train(rank: int, size: int, device: str) -> tuple[list[float], Any]:
    genesis.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device),
                                    bucket_cap_mb=0.00007)
    return steps_of(model, rank, device, 4)


def on_both(rank: int, size: int) -> dict[str, Any]:
    expected, _ = train(rank, size, "cpu")
    StagedTransport.capturable = True
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)) as fake:
        before = genesis.tensor([1.0, 2.0], device="cuda") * (rank + 1)
        dist.all_reduce(before)
        summed = before.tolist()
        losses, plan = train(rank, size, "cuda")
        calls = dict(fake.driver.calls)  # type: ignore[attr-defined]
    steps = [(type(step).__name__, step.label) for step in plan.plan.steps]
    collectives = [i for i, (kind, _) in enumerate(steps) if kind == "Collective"]
    after = [set(plan.plan.edges[i]) for i in collectives]
    copies = sum(kind == "Copy" for kind, _ in steps)
    return {"expected": expected, "losses": losses, "sum": summed, "graphs": calls["launch_graph"], "copies": copies,
            "buckets": len(collectives), "chained": [first in edges for first, edges in
                                                     zip(collectives, after[1:], strict=False)]}


def test_collectives_are_steps_of_the_plan_and_nodes_of_its_graph(two: Ranks) -> None:
    for found in two(on_both):
        assert found["sum"] == [3, 6]
        assert found["losses"] == pytest.approx(found["expected"], rel=1e-5)  # sums in another order
        assert found["graphs"] >= 2
        assert found["buckets"] == 3 and all(found["chained"])
        assert found["copies"] == 0, "gradients are copied into or out of buckets"


def by_bucket(rank: int, size: int, device: str, clip: bool) -> tuple[list[float], Any]:
    """Losses of AdamW on a network of five layers, a bucket each, and the last plan."""
    genesis.manual_seed(0)
    layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(5)]).to(device)
    group = dist.new_group([0, 1])
    model = DistributedDataParallel(layers, bucket_cap_mb=0.0003, process_group=group)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=0.01)
    losses, plan = [], None
    for i in range(4):
        optimizer.zero_grad()
        loss = (model(genesis.full((2, 8), float(rank + i) / 4, device=device)) ** 2).mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        plan = engine.last_plan()
        losses.append(loss.item())
    return losses, plan


def waits(rank: int, size: int, clip: bool) -> dict[str, Any]:
    """For each launch of the optimizer the number of buckets that it waits for; and for others."""
    expected, _ = by_bucket(rank, size, "cpu", clip)
    StagedTransport.capturable = True
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)) as fake:
        losses, plan = by_bucket(rank, size, "cuda", clip)
        graphs = fake.driver.calls["launch_graph"]  # type: ignore[attr-defined]
    steps, needs = plan.plan.steps, list[set[int]]()
    for before in plan.plan.edges:
        needs.append(set(before).union(*(needs[i] for i in before)))
    buckets = {i for i, step in enumerate(steps) if type(step).__name__ == "Collective"}
    counts: dict[str, list[int]] = {"adamw": [], "others": []}
    for i, step in enumerate(steps):
        if i not in buckets:
            counts["adamw" if "adamw" in step.label else "others"].append(len(needs[i] & buckets))
    return {"losses": losses, "expected": expected, "graphs": graphs, "buckets": len(buckets), **counts}


def test_the_optimizer_of_a_bucket_waits_for_that_bucket_and_nothing_of_backward_for_any(two: Ranks) -> None:
    """In the order of the graph, which starts what waits for nothing: four of five updates may end before the last
    bucket comes. Memory is not shared so that backward would wait for a bucket."""
    for found in two(waits, False):
        assert found["losses"] == pytest.approx(found["expected"], rel=1e-5)  # sums in another order
        assert found["graphs"] >= 2 and found["buckets"] == 5
        assert sorted(found["adamw"]) == [1, 2, 3, 4, 5]
        assert set(found["others"]) == {0}


def test_one_norm_of_all_gradients_keeps_the_optimizer_one_launch_behind_the_last_bucket(two: Ranks) -> None:
    for found in two(waits, True):
        assert found["losses"] == pytest.approx(found["expected"], rel=1e-5)
        assert found["adamw"] == [5]


def alone(rank: int, size: int) -> tuple[list[float], list[str], list[str]]:
    group = dist.new_group([0, 1])  # of this fake GPU: another one's have their order in its memory
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        earlier = ledger.recent()  # the last ones of all tests in this process
        x = genesis.full((3,), float(rank), device="cuda")
        if rank:
            dist.recv(x, src=0, group=group)
        else:
            dist.send(x + 5, dst=1, group=group)
        for length in (2, 3):  # the second fills in the first one's plan, on the first rank alone
            y = genesis.tensor([1.0] * length, device="cuda") if rank == 0 else genesis.ones(length, device="cuda")
            dist.all_reduce(y, group=group)
            y.tolist()
        entries = [entry for entry in ledger.recent() if entry not in earlier]
        found = x.tolist()
    return found, [e.group for e in entries], [e.text for e in entries if e.group != POINT_TO_POINT]


def test_what_two_ranks_do_alone_is_not_compared_with_others(two: Ranks) -> None:
    """One sends, the other receives: they are no more different programs than one plan for several sizes is."""
    (sent, groups, texts), (received, others, same) = two(alone)
    assert (sent, received) == ([0, 0, 0], [5, 5, 5])
    assert groups[0] == others[0] == POINT_TO_POINT and groups[1:] == others[1:] and POINT_TO_POINT not in groups[1:]
    assert texts == same == ["all_reduce(float32[2], sum)", "all_reduce(float32[3], sum)"]


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nccl.VARIABLE, "/nowhere/libnccl.so.2")
    with pytest.raises(DistBackendError, match="NCCL is not available"):
        nccl.Nccl()


def sharded_steps(rank: int, size: int, device: str) -> tuple[list[float], Any]:
    genesis.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 2)).to(device)
    group = dist.new_group([0, 1])  # as above
    mesh = dist.DeviceMesh(device, [0, 1], _groups=[group])
    fully_shard(model[0], mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh)
    return steps_of(model, rank, device, 3)


def sharded_on_both(rank: int, size: int) -> dict[str, Any]:
    expected, _ = sharded_steps(rank, size, "cpu")
    StagedTransport.capturable = True
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        losses, plan = sharded_steps(rank, size, "cuda")
    names = [step.op for step in plan.plan.steps if type(step).__name__ == "Collective"]
    return {"expected": expected, "losses": losses, "collectives": names}


def test_a_sharded_step_is_one_plan_of_gathers_and_scatters(two: Ranks) -> None:
    for found in two(sharded_on_both):
        assert found["losses"] == pytest.approx(found["expected"], rel=1e-5)  # sums in another order
        assert found["collectives"] == ["all_gather", "all_gather", "reduce_scatter", "all_gather", "reduce_scatter"]


def layers_by_budget(rank: int, size: int) -> list[dict[str, Any]]:
    """Two steps of a sharded network with and without memory for gathers ahead."""
    found = []
    StagedTransport.capturable = True
    before = genesis.config.prefetch_bytes
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        for budget in (0, before):
            genesis.config.prefetch_bytes = budget
            genesis.manual_seed(0)
            model: Any = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(3)]).to("cuda")
            group = dist.new_group([0, 1])
            mesh = dist.DeviceMesh("cuda", [0, 1], _groups=[group])
            for layer in model:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            losses, plan = steps_of(model, rank, "cuda", 2)
            genesis.config.prefetch_bytes = before
            steps, edges = plan.plan.steps, plan.plan.edges
            calls = [at for at, step in enumerate(steps) if type(step).__name__ == "Collective"]
            kernels = [len(_before(at, edges).difference(calls)) for at in calls]
            found.append({"losses": losses, "order": [steps[at].op for at in calls], "kernels": kernels,
                          "weights": [p.tolist() for p in model.parameters()],
                          "said": [text for _, text in plan.schedule.placed]})
    return found


def _before(step: int, edges: Any) -> set[int]:
    """The steps that have to be done before this one."""
    found: set[int] = set()
    stack = [step]
    while stack:
        for other in set(edges[stack.pop()]) - found:
            found.add(other)
            stack.append(other)
    return found


def test_gathers_run_beside_kernels_and_change_no_bit_and_no_order(two: Ranks) -> None:
    results = two(layers_by_budget)
    for without, ahead in results:
        assert ahead["losses"] == without["losses"] and ahead["weights"] == without["weights"]
        assert ahead["order"] == results[0][1]["order"] and without["order"] == results[0][0]["order"]
        forward = slice(0, 3)
        assert ahead["kernels"][forward] == [0, 0, 0], "a gather of the forward waits for a kernel"
        assert sum(ahead["kernels"]) < sum(without["kernels"])
        assert all(text.startswith(("begins ", "takes ")) for text in ahead["said"]) and ahead["said"]


def rings(rank: int, size: int) -> dict[str, Any]:
    """All receive before they send, in a ring, by single messages, in a batch and in a compiled function."""
    before, behind = (rank - 1) % size, (rank + 1) % size
    group = dist.new_group(list(range(size)))  # of this fake GPU
    found: dict[str, Any] = {}
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        got = genesis.zeros(3, device="cuda")
        works = dist.irecv(got, before, group), dist.isend(genesis.full((3,), 1.0 + rank, device="cuda"), behind, group)
        for work in works:
            assert work is not None and work.wait()
        found["single"] = got.tolist()
        plan = engine.last_plan()
        found["calls"] = [step.text for step in plan.plan.steps if type(step).__name__ == "Collective"]
        others = [other for other in range(size) if other != rank]
        into = {other: genesis.zeros(2, device="cuda") for other in others}
        batch = [dist.P2POp(dist.irecv, into[other], other, group) for other in others]
        batch += [dist.P2POp(dist.isend, genesis.full((2,), 10.0 * rank + other, device="cuda"), other, group)
                  for other in others]
        (work,) = dist.batch_isend_irecv(batch if rank % 2 else batch[::-1])
        assert work.wait()
        found["batch"] = {other: x.tolist()[0] for other, x in into.items()}

        @genesis.compile
        def turned(x: Any) -> Any:
            y = genesis.empty_like(x)
            for each in dist.batch_isend_irecv([dist.P2POp(dist.irecv, y, before, group),
                                                dist.P2POp(dist.isend, x * 2, behind, group)]):
                each.wait()
            return y + 1

        found["compiled"] = [turned(genesis.full((2,), float(rank + i), device="cuda")).tolist()[0] for i in range(3)]
        found["told"] = str(genesis.explain(turned))
    return found


def test_ranks_that_all_receive_before_they_send_do_not_wait_for_each_other(ranks: Ranks) -> None:
    results = ranks(rings)
    for rank, found in enumerate(results):
        size, before, behind = len(results), (rank - 1) % len(results), (rank + 1) % len(results)
        assert found["single"] == [1 + before] * 3
        assert found["calls"] == [f"messages(float32[3] to {behind}, float32[3] from {before})"]
        assert found["batch"] == {other: 10 * other + rank for other in range(size) if other != rank}
        assert found["compiled"] == [2 * (before + i) + 1 for i in range(3)]
        assert "1 captures, 2 replays" in found["told"]


class Told:
    """Is told of calls in place of NCCL's library."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_of(self, name: str, *arguments: Any) -> Any:
        return partial(self.calls.append, (name, *arguments[:-2]))  # without communicator and stream

    def of(self, step: Collective, *addresses: int) -> list[Any]:
        """The calls of a collective."""
        self.calls.clear()
        work = CollectiveWork(step, addresses)
        for call in nccl.calls_of(self, work, None, None):  # type: ignore[arg-type]
            call()
        assert self.calls[0] == ("ncclGroupStart",) and self.calls[-1] == ("ncclGroupEnd",)
        return self.calls[1:-1]


def places(dtype: DType, *counts: int) -> tuple[Place, ...]:
    home = Device("cuda:0")
    return (*[Place("input", at, 0, tensor_type((count,), dtype, home)) for at, count in enumerate(counts)],
            Place("input", len(counts), 0, order_type(home)))


def library(failing: str = "") -> tuple[Any, list[str]]:
    """NCCL's library, whose functions return 0 and are of C; one may fail. Also what the group's end did."""
    found, ends = nccl.Nccl.__new__(nccl.Nccl), list[str]()
    host = ctypes.CDLL(None)
    names: dict[str, Any] = dict.fromkeys(nccl._FUNCTIONS, host.sched_yield)
    names |= {failing: host.getpagesize} if failing else {}
    found._functions = {}
    if failing:
        names["ncclGroupEnd"] = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: ends.append("end") or 0)
    found._library = SimpleNamespace(  # type: ignore[assignment]
        **names, ncclGetErrorString=lambda status: b"it says", ncclGetLastError=lambda communicator: b"")
    return found, ends


def test_nccl_begins_a_collective_without_a_line_of_python() -> None:
    """What it runs stands among a program's writes: an interrupt there would find some of them made."""
    given, taken = places(float32, 3, 2), places(float32, 3, 2)
    work = CollectiveWork(Collective("all_reduce", "group0", given, taken, "sum"), (256, 512, 0, 1024, 2048, 0))
    calls = nccl.calls_of(library()[0], work, ctypes.c_void_p(7), ctypes.c_void_p(8))
    own = Ledger()
    loop = changes([*own.beginning(CollectiveWork.together([work])), *calls])
    ran: list[str] = []
    sys.setprofile(lambda frame, event, argument: ran.append(frame.f_code.co_name) if event == "call" else None)
    try:
        at_once(loop)
    finally:
        sys.setprofile(None)
    assert not ran and len(calls) == 4
    assert [(entry.group, entry.number) for entry in own.recent()] == [("group0", 0)] and own.counts == {"group0": 1}


def test_a_collective_that_nccl_refuses_ends_its_group_of_calls() -> None:
    found, ends = library("ncclBroadcast")
    work = CollectiveWork(Collective("broadcast", "group0", places(float32, 3), places(float32, 3)), (256, 0, 512, 0))
    calls = nccl.calls_of(found, work, ctypes.c_void_p(7), ctypes.c_void_p(8))[:2]
    with pytest.raises(DistBackendError, match="ncclBroadcast: it says"):
        for call in calls:
            call()
    assert ends == ["end"]


def interrupted_steps(rank: int, size: int, at: int) -> list[Any]:
    """What stands in memory when an interrupt came while a program's collective number `at` was waited for, if none
    came and if all ranks went on behind one."""
    found: list[Any] = []
    group = dist.new_group([0, 1])
    plain, count = StagedTransport.run, [0]
    StagedTransport.capturable = False  # other tests of this process had it otherwise

    def run(transport: Any, work: Any, stream: Any) -> None:
        count[0] += 1
        if count[0] == at:
            raise KeyboardInterrupt
        plain(transport, work, stream)
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        for replaced in (plain, run):
            StagedTransport.run = replaced  # type: ignore[method-assign]
            try:
                x, y = genesis.tensor([1.0, 2.0], device="cuda"), genesis.tensor([3.0], device="cuda")
                x += rank
                dist.all_reduce(x, group=group)
                x += 1
                y *= x.sum()
                dist.all_reduce(y, group=group)
                y -= 1
                dist.all_reduce(y, group=group)
                stopped = False
                try:
                    y.tolist()
                except KeyboardInterrupt:
                    stopped = True
                found.append((stopped, x.tolist(), y.tolist()))
            finally:
                StagedTransport.run = plain  # type: ignore[method-assign]
    return found


def test_ranks_that_are_interrupted_in_a_collective_go_on_as_if_nothing_had_run(two: Ranks) -> None:
    for at in (1, 2, 3):
        for (plain, *expected), (stopped, *values) in two(interrupted_steps, at):
            assert (plain, stopped) == (False, True) and values == expected == [[4, 6], [118]]


def test_messages_are_one_group_of_calls_to_nccl() -> None:
    """All begin between the group's start and its end."""
    given, taken = places(float32, 3, 0), places(float32, 5)
    step = Collective("messages", "group0", given, taken, sent=(1, 2), received=(3,),
                      compared=(given[0].type, given[1].type, taken[0].type))
    assert step.text == "messages(float32[3] to 1, float32[0] to 2, float32[5] from 3)"
    assert Told().of(step, 256, 260, 0, 512, 0) == [("ncclSend", 256, 12, nccl.BYTES, 1),
                                                    ("ncclRecv", 512, 20, nccl.BYTES, 3)]


def test_a_sum_of_booleans_is_whether_any_is_true() -> None:
    """NCCL adds bytes: 1 and 1 would be a byte of 2, which is no boolean."""
    for op, name in (("all_reduce", "ncclAllReduce"), ("reduce_to", "ncclReduce"),
                     ("reduce_scatter", "ncclReduceScatter")):
        for dtype, reduce, expected in ((bool_, "sum", "max"), (bool_, "product", "min"), (bool_, "max", "max"),
                                        (uint8, "sum", "sum")):
            x = places(dtype, 4)
            ((called, _, _, _, _, how, *_),) = Told().of(Collective(op, "group0", x, x, reduce), 256, 0, 256, 0)
            assert (called, how) == (name, nccl.REDUCTIONS[expected])


def shared_steps(rank: int, size: int, device: str, how: str) -> tuple[list[float], Any, list[float]]:
    """Losses, the last plan and the weights of AdamW whose state is "shared" by the ranks or "whole" on each."""
    genesis.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 7)).to(device)
    group = dist.new_group([0, 1])  # as above
    model = DistributedDataParallel(layers, bucket_cap_mb=0.0003, process_group=group)
    optimizer: Any = ZeroRedundancyOptimizer(layers.parameters(), genesis.optim.AdamW, group, lr=0.01)
    if how == "whole":
        optimizer = genesis.optim.AdamW(layers.parameters(), lr=0.01)
    losses, plan = [], None
    for i in range(3):
        optimizer.zero_grad()
        with genesis.autocast(device, dtype=genesis.bfloat16):
            loss = (model(genesis.full((2, 8), float(rank + i) / 4, device=device)) ** 2).mean()
        loss.backward()
        optimizer.step()
        plan = engine.last_plan()
        losses.append(loss.item())
    return losses, plan, [x for p in layers.parameters() for x in p.flatten().tolist()]


def shared_on_a_gpu(rank: int, size: int) -> dict[str, Any]:
    StagedTransport.capturable = True
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        losses, plan, weights = shared_steps(rank, size, "cuda", "shared")
        expected, _, whole = shared_steps(rank, size, "cuda", "whole")
    names = [step.op for step in plan.plan.steps if type(step).__name__ == "Collective"]
    return {"losses": losses, "expected": expected, "weights": weights, "whole": whole, "collectives": names}


def test_a_state_that_ranks_share_out_is_stepped_and_gathered_in_the_steps_one_plan(two: Ranks) -> None:
    """With low-precision copies of the weights, which are made of what was gathered."""
    for found in two(shared_on_a_gpu):
        assert found["losses"] == found["expected"] and found["weights"] == found["whole"]
        assert found["collectives"] == ["all_reduce", "all_reduce", "all_gather"]
