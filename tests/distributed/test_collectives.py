"""Collectives between processes: what torch.distributed's give, in the order in which they were called."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis.distributed import ReduceOp, functional
from genesis.distributed.tensor.parallel import parallelize_module
from genesis.models import AutoModelForCausalLM, config_for
from genesis.models.generation.decoding import Decoder
from genesis.models.generation.sampling import Sampling
from tests.distributed.ranks import Ranks, device_type, on_the_host


def of_each(rank: int, size: int) -> dict[str, Any]:
    """Every collective once; rank r has r + 1."""
    x = genesis.tensor([1.0, 2.0]) * (rank + 1)
    found: dict[str, Any] = {}
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
        y = x.clone()
        dist.all_reduce(y, getattr(ReduceOp, name))
        found[name] = y.tolist()
    y = x.clone()
    dist.broadcast(y, src=1)
    found["broadcast"] = y.tolist()
    y = x.clone()
    dist.reduce(y, dst=1)
    found["reduce"] = y.tolist() if rank == 1 else None
    whole, stacked = genesis.empty(2 * size), genesis.empty(size, 2)
    dist.all_gather_into_tensor(whole, x)
    dist.all_gather_into_tensor(stacked, x)
    found["all_gather_into_tensor"] = whole.tolist(), stacked.tolist()
    parts = [genesis.empty(2) for _ in range(size)]
    dist.all_gather(parts, x)
    found["all_gather"] = [part.tolist() for part in parts]
    mine = genesis.empty(1)
    dist.reduce_scatter_tensor(mine, x)
    found["reduce_scatter_tensor"] = mine.tolist()
    dist.reduce_scatter(mine, [x[:1], x[1:]], ReduceOp.MAX)
    found["reduce_scatter"] = mine.tolist()
    turned = genesis.empty(2)
    dist.all_to_all_single(turned, x)
    found["all_to_all_single"] = turned.tolist()
    uneven = genesis.empty(3 if rank else 1)
    received, sent = ([1, 2], [0, 2]) if rank else ([1, 0], [1, 1])
    dist.all_to_all_single(uneven, genesis.arange(2.0) + 10 * rank, received, sent)
    found["uneven"] = uneven.tolist()
    outs = [genesis.empty(1), genesis.empty(1)]
    dist.all_to_all(outs, [x[:1], x[1:]])
    found["all_to_all"] = [out.tolist() for out in outs]
    gathered = [genesis.empty(2), genesis.empty(2)] if rank == 0 else None
    dist.gather(x, gathered, dst=0)
    found["gather"] = gathered and [g.tolist() for g in gathered]
    scattered = genesis.empty(2)
    dist.scatter(scattered, [genesis.ones(2), genesis.ones(2) * 5] if rank == 1 else None, src=1)
    found["scatter"] = scattered.tolist()
    got = genesis.zeros(2)
    if rank == 0:
        dist.send(x, 1)
        found["recv"] = dist.recv(got, 1), got.tolist()
    else:
        found["recv"] = dist.recv(got, 0), got.tolist()
        dist.send(x, 0)
    return found


def test_each_collective_gives_what_torch_documents(two: Ranks) -> None:
    first, second = two(of_each)
    for name, value in {"SUM": [3, 6], "AVG": [1.5, 3], "PRODUCT": [2, 8], "MIN": [1, 2], "MAX": [2, 4],
                        "broadcast": [2, 4], "all_gather": [[1, 2], [2, 4]],
                        "all_gather_into_tensor": ([1, 2, 2, 4], [[1, 2], [2, 4]])}.items():
        assert first[name] == second[name] == value, name
    assert (first["reduce"], second["reduce"]) == (None, [3, 6])
    assert (first["reduce_scatter_tensor"], second["reduce_scatter_tensor"]) == ([3], [6])
    assert (first["reduce_scatter"], second["reduce_scatter"]) == ([2], [4])
    assert (first["all_to_all_single"], second["all_to_all_single"]) == ([1, 2], [2, 4])
    assert (first["uneven"], second["uneven"]) == ([0], [1, 10, 11])
    assert (first["all_to_all"], second["all_to_all"]) == ([[1], [2]], [[2], [4]])
    assert (first["gather"], second["gather"]) == ([[1, 2], [2, 4]], None)
    assert (first["scatter"], second["scatter"]) == ([1, 1], [5, 5])
    assert (first["recv"], second["recv"]) == ((1, [2, 4]), (0, [1, 2]))


def dtypes(rank: int, size: int) -> dict[str, Any]:
    found = {}
    for dtype in (genesis.float16, genesis.bfloat16, genesis.float64, genesis.int64, genesis.int32, genesis.int8,
                  genesis.uint8):
        x = genesis.tensor([rank + 1, 3], dtype=dtype)
        dist.all_reduce(x)
        y = genesis.empty(4, dtype=dtype)
        dist.all_gather_into_tensor(y, x)
        found[str(dtype)] = x.tolist(), y.tolist()
    flags = genesis.tensor([rank == 0, True])
    dist.broadcast(flags, 0)
    found["bool"] = flags.tolist()
    return found


def test_dtypes(two: Ranks) -> None:
    for found in two(dtypes):
        assert found.pop("bool") == [True, True]
        assert set(map(str, found.values())) <= {str(([3.0, 6.0], [3.0, 6.0] * 2)), str(([3, 6], [3, 6] * 2))}


def in_order(rank: int, size: int) -> list[Any]:
    """Rank 0 reads after each collective, rank 1 at the end: each computes another number of programs."""
    x, found = genesis.ones(2) * (rank + 1), []
    kept = []
    for i in range(4):
        y = x + i
        dist.all_reduce(y)
        dist.all_reduce(y, ReduceOp.MAX)  # of what the first one gave
        dist.all_reduce(genesis.ones(1))  # nobody reads it
        kept.append(y)
        if rank == 0:
            found.append(y.tolist())
    return found or [y.tolist() for y in kept]


def test_ranks_that_compute_at_other_times_run_the_same_collectives(two: Ranks) -> None:
    first, second = two(in_order)
    assert first == second == [[3 + 2 * i] * 2 for i in range(4)]


def equal_ones(rank: int, size: int) -> tuple[int, Any]:
    """Two equal collectives of one value, one of them unused on one rank."""
    from genesis import engine
    x = genesis.ones(2)
    a, b = x.clone(), x.clone()
    dist.all_reduce(a)
    dist.all_reduce(b)
    if rank == 0:
        del a
    value = b.tolist()
    last = engine.last_plan()
    assert last is not None
    return sum(group.nodes[0].op.name == "all_reduce" for group in last.schedule.groups), value


def test_equal_collectives_are_not_merged_and_unused_ones_not_dropped(two: Ranks) -> None:
    assert two(equal_ones) == [(2, [2, 2])] * 2


def gradients(rank: int, size: int) -> dict[str, Any]:
    """d/dw of a sum over both ranks of a loss that each has, by collectives that gradients flow through."""
    found = {}

    def of(name: str, f: Any) -> None:
        w = genesis.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        y = f(w * (rank + 1))
        (y * y * (rank + 1)).sum().backward()
        found[name] = w.grad.tolist()

    of("all_reduce", functional.all_reduce)
    of("all_gather", functional.all_gather_tensor)
    of("reduce_scatter", functional.reduce_scatter_rows)
    of("broadcast", lambda x: functional.broadcast(x, 1))
    of("all_to_all", functional.all_to_all_rows)
    kept = [genesis.empty(2, 2), genesis.empty(1, 2)]
    of("torch's all_to_all", lambda x: functional.all_to_all_single(kept[0], x))
    of("torch's reduce_scatter", lambda x: functional.reduce_scatter(kept[1], x.split(1)))
    lists = [genesis.empty(2), genesis.empty(1, 2)]
    of("lists", lambda x: genesis.stack([y.flatten() for y in functional.all_to_all(lists, x.unbind(0))]))
    assert lists[1].shape == (1, 2) and lists[1].flatten().tolist() == ([2.0, 4.0] if rank == 0 else [6.0, 8.0])
    of("reduce", lambda x: functional.reduce(x, 1) * float(rank == 1))
    of("gather", lambda x: genesis.cat(functional.gather(x, 1)))
    of("scatter", lambda x: functional.scatter(x.unbind(0), 1))
    assert not any(x.requires_grad for x in kept)
    assert kept[0].tolist() == [[1 + 2 * rank, 2 + 2 * rank], [2 + 4 * rank, 4 + 4 * rank]], "what came is there, too"
    return found


def test_gradients_flow_through_collectives(two: Ranks) -> None:
    """Against the derivative of the sum of both ranks' losses, written out in one process."""
    first, second = two(gradients)
    forms = {"all_reduce": lambda a, b: (a + b, a + b),
             "all_gather": lambda a, b: (genesis.cat([a, b]), genesis.cat([a, b])),
             "reduce_scatter": lambda a, b: ((a + b)[:1], (a + b)[1:]),
             "broadcast": lambda a, b: (b, b),
             "all_to_all": lambda a, b: (genesis.cat([a[:1], b[:1]]), genesis.cat([a[1:], b[1:]]))}
    forms.update({"lists": forms["all_to_all"], "reduce": lambda a, b: (0 * a, a + b),
                  "gather": lambda a, b: (0 * a, genesis.cat([a, b])), "scatter": lambda a, b: (b[0], b[1])})
    forms.update({f"torch's {name}": forms[name] for name in ("all_to_all", "reduce_scatter")})
    for name, form in forms.items():
        a, b = (genesis.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True) for _ in range(2))
        y, z = form(a, b * 2)
        ((y * y).sum() + 2 * (z * z).sum()).backward()
        expected = [(x.grad if x.grad is not None else genesis.zeros(2, 2)).tolist() for x in (a, b)]
        assert [first[name], second[name]] == expected, name


def repeated_elements(rank: int, size: int) -> list[Any]:
    """Collectives of an element that is repeated, once, so that it counts as contiguous, and more often."""
    one, found = genesis.tensor(1.0 + rank), []
    for shape in ((1,), (1, 1), (2, 3)):
        whole = genesis.empty(size, *shape)
        dist.all_gather_into_tensor(whole, one.expand(shape))
        found.append(whole.flatten(1).unique(dim=1).flatten().tolist())
    turned = genesis.empty(size)
    dist.all_to_all_single(turned, one.expand(size))
    return [*found, turned.tolist()]


def test_a_repeated_element_is_moved(two: Ranks) -> None:
    """A step of 0 along the last dimension could not be shown as bytes."""
    assert two(repeated_elements) == [[[1.0, 2.0]] * 4] * 2


def one_tensor_for_a_list(rank: int, size: int) -> list[str]:
    said = []
    for call in (lambda: dist.all_gather(genesis.empty(size, 3), genesis.ones(3)),
                 lambda: dist.reduce_scatter(genesis.empty(3), genesis.ones(size, 3)),
                 lambda: dist.all_to_all(genesis.empty(size, 3), genesis.ones(size, 3))):
        try:
            call()
            said.append("")
        except TypeError as error:
            said.append(str(error))
    return said


def test_a_tensor_in_the_place_of_a_list_is_refused_as_torch_does(two: Ranks) -> None:
    for said in two(one_tensor_for_a_list):
        assert len(said) == 3 and all("a list of tensors is needed" in text for text in said)


def objects(rank: int, size: int) -> dict[str, Any]:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "long": "x" * (10 * rank)})
    given = [rank, "own"] if rank else ["theirs", {1: 2}]
    dist.broadcast_object_list(given, 0)
    at_one: list[Any] = [None] * size
    dist.gather_object((rank,), at_one if rank == 1 else None, dst=1)
    one: list[Any] = [None]
    dist.scatter_object_list(one, [{"a"}, "b" * 100] if rank == 0 else None, src=0)
    return {"gathered": gathered, "given": given, "at_one": at_one, "one": one}


def test_objects(two: Ranks) -> None:
    first, second = two(objects)
    assert first["gathered"] == second["gathered"] == [{"rank": 0, "long": ""}, {"rank": 1, "long": "x" * 10}]
    assert first["given"] == second["given"] == ["theirs", {1: 2}]
    assert (first["at_one"], second["at_one"]) == ([None, None], [(0,), (1,)])
    assert (first["one"], second["one"]) == ([{"a"}], ["b" * 100])


def groups(rank: int, size: int) -> dict[str, Any]:
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine, other = pairs[rank % 2], pairs[1 - rank % 2]
    x = genesis.tensor([float(rank)])
    dist.all_reduce(x, group=mine)
    assert dist.all_reduce(x, group=other) is None
    dist.broadcast(x, src=mine.ranks[1], group=mine)
    whole = genesis.tensor([1.0])
    dist.all_reduce(whole)
    found = {"sum": x.item(), "all": whole.item(), "ranks": dist.get_process_group_ranks(mine),
             "place": dist.get_rank(mine), "outside": dist.get_rank(other), "size": dist.get_world_size(mine)}
    mesh = dist.init_device_mesh(device_type(), (2, 2), mesh_dim_names=("dp", "tp"))
    y = genesis.tensor([float(rank)])
    dist.all_reduce(y, group=mesh["tp"].get_group())
    z = genesis.tensor([float(rank)])
    dist.all_reduce(z, group=mesh.get_group("dp"))
    again = dist.init_device_mesh(device_type(), (2, 2), mesh_dim_names=("dp", "tp"))
    assert mesh == again and hash(mesh) == hash(again) and mesh != dist.init_device_mesh(device_type(), (4,))
    assert mesh != mesh["tp"] and mesh["tp"].mesh.tolist() == [rank - rank % 2, rank - rank % 2 + 1]
    assert mesh.mesh.dtype is genesis.int32 and mesh.mesh.tolist() == [[0, 1], [2, 3]]
    found |= {"tp": y.item(), "dp": z.item(), "coordinate": mesh.get_coordinate(), "local": mesh.get_local_rank("tp")}
    return found


def test_groups_and_meshes(four: Ranks) -> None:
    found = four(groups)
    assert [x["sum"] for x in found] == [2, 4, 2, 4]
    assert [x["all"] for x in found] == [4] * 4
    assert [x["ranks"] for x in found] == [[0, 2], [1, 3]] * 2
    assert [x["place"] for x in found] == [0, 0, 1, 1]
    assert {x["outside"] for x in found} == {-1} and {x["size"] for x in found} == {2}
    assert [x["tp"] for x in found] == [1, 1, 5, 5] and [x["dp"] for x in found] == [2, 4, 2, 4]
    assert [x["coordinate"] for x in found] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert [x["local"] for x in found] == [0, 1, 0, 1]


def handles(rank: int, size: int) -> list[Any]:
    x = genesis.ones(2)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    assert work.wait() and work.is_completed() and work.result() == [x]
    dist.barrier()
    return x.tolist()


def test_asynchronous_handles(two: Ranks) -> None:
    assert two(handles) == [[2, 2]] * 2


def errors(rank: int, size: int) -> list[str]:
    """What is refused is refused before anything is asked of other ranks."""
    x = genesis.ones(3)
    found = []
    for wrong, kind in (
            (lambda: dist.all_reduce(x, "most"), ValueError), (lambda: dist.broadcast(x, 7), ValueError),
            (lambda: dist.all_gather_into_tensor(genesis.empty(5), x), ValueError),
            (lambda: dist.reduce_scatter_tensor(genesis.empty(2), x), ValueError),
            (lambda: dist.all_to_all_single(genesis.empty(3), x), ValueError),
            (lambda: dist.all_reduce(genesis.ones(2, dtype=genesis.int32), ReduceOp.AVG), RuntimeError),
            (lambda: dist.send(x, rank), ValueError), (lambda: dist.new_group([0, 9]), ValueError),
            (lambda: dist.init_process_group("gloo"), ValueError)):
        with pytest.raises(kind) as raised:
            wrong()
        found.append(str(raised.value).split("\n")[0])
    dist.barrier()
    return found


def test_errors_are_raised_where_the_collective_is_called(two: Ranks) -> None:
    first, second = two(errors)
    assert first == second
    assert "twice" in first[-1] and "Global rank 7" in first[1]


def compiled(rank: int, size: int) -> tuple[list[float], str]:
    """A compiled step that reduces its gradients by hand."""
    genesis.manual_seed(0)
    w = genesis.ones(3, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.25)

    @genesis.compile
    def step(x: Any) -> Any:
        loss = (w * x).sum()
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(w.grad, ReduceOp.AVG)
        optimizer.step()
        return loss

    for i in range(4):
        step(genesis.ones(3) * (i + rank))
    return w.tolist(), str(genesis.explain(step))


def test_a_compiled_step_replays_its_collectives(two: Ranks) -> None:
    (first, told), (second, _) = two(compiled)
    assert first == second == [1 - 0.25 * sum(i + 0.5 for i in range(4))] * 3
    assert "1 captures, 3 replays" in told


def bits_and_messages(rank: int, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("BAND", "BOR", "BXOR"):
        x = genesis.tensor([5 + rank, 12, -1 - rank], dtype=genesis.int64)
        dist.all_reduce(x, getattr(ReduceOp, name))
        flags = genesis.tensor([True, rank == 0])
        dist.all_reduce(flags, getattr(ReduceOp, name))
        found[name] = x.tolist(), flags.tolist()
    try:
        dist.all_reduce(genesis.ones(2), ReduceOp.BAND)
    except RuntimeError as error:
        found["float"] = "integers" in str(error)
    if rank == 1:
        for tag in (7, 3):
            dist.send(genesis.tensor([float(tag)]), 0, tag=tag)
        dist.send(genesis.tensor([99.0]), 0)
    elif rank == 0:
        got = genesis.empty(1)
        found["tags"] = [(dist.recv(got, 1, tag=tag), got.item()) for tag in (7, 3)]  # as sent: gloo waits
        found["any"] = dist.recv(got), got.item()
    return found


@on_the_host("NCCL has no bitwise reductions, no tags and no recv from any")
def test_bitwise_reductions_tags_and_messages_from_any(two: Ranks) -> None:
    """5 and 6, 12 and 12, -1 and -2."""
    first, second = two(bits_and_messages)
    for found in (first, second):
        assert found["BAND"] == ([4, 12, -2], [True, False])
        assert found["BOR"] == ([7, 12, -1], [True, True])
        assert found["BXOR"] == ([3, 0, 1], [False, True])
        assert found["float"]
    assert first["tags"] == [(1, 7.0), (1, 3.0)] and first["any"] == (1, 99.0)


def replays(rank: int, size: int) -> dict[str, Any]:
    """Compiled functions that name a group, a mesh, and a model's parts."""
    group, mesh = dist.new_group([0, 1]), dist.init_device_mesh(device_type(), (2,), mesh_dim_names=("dp",))

    @genesis.compile
    def over_group(x: Any) -> Any:
        y = x * 2
        dist.all_reduce(y, group=group)
        return y + group.size()

    @genesis.compile
    def over_mesh(x: Any) -> Any:
        y = x + mesh.get_local_rank("dp")
        dist.all_reduce(y, group=mesh.get_group("dp"))
        return y

    model = AutoModelForCausalLM.from_config(config_for("qwen3", vocab_size=8, hidden_size=8, intermediate_size=8,
                                                        num_hidden_layers=1, num_attention_heads=2, head_dim=4,
                                                        num_key_value_heads=2))
    parallelize_module(model, mesh, model.tp_plan(2))
    decoder = Decoder(model.eval(), 1, 16, Sampling(temperature=0))
    with genesis.no_grad():
        step = decoder.prefill(genesis.tensor([[1, 2, 3]]))
        for _ in range(8):
            step = decoder.step(step.tokens)
            step.tokens.tolist()
    told = genesis.explain(decoder._next)
    found: dict[str, Any] = {"decoder": (told.hits, str(told))}
    for name, run in (("group", over_group), ("mesh", over_mesh)):
        values = [run(genesis.ones(2) * (rank + i)).tolist()[0] for i in range(4)]
        found[name] = values, genesis.explain(run).captures, genesis.explain(run).hits
    return found


def test_what_names_a_group_or_a_mesh_is_replayed(two: Ranks) -> None:
    """Their connections are no content that a program depends on."""
    for found in two(replays):
        assert found["group"] == ([4, 8, 12, 16], 1, 3)
        assert found["mesh"] == ([2, 4, 6, 8], 1, 3)
        assert found["decoder"][0] >= 6, found["decoder"]


def batches(rank: int, size: int) -> dict[str, Any]:
    """Each sends to all others and receives from them, receiving first on even ranks; and lists of objects."""
    others = [other for other in range(size) if other != rank]
    got = {other: genesis.zeros(2) for other in others}
    ops = [dist.P2POp(dist.irecv, got[other], other) for other in others]
    sent = [dist.P2POp(dist.isend, genesis.full((2,), 10.0 * rank + other), other) for other in others]
    for work in dist.batch_isend_irecv(ops + sent if rank % 2 == 0 else sent[::-1] + ops):
        work.wait()
    found: dict[str, Any] = {"got": {other: x.tolist()[0] for other, x in got.items()}}
    objects: list[Any] = [None, None] if rank else [{"step": 3}, "x"]
    if rank == 0:
        dist.send_object_list(objects, 1)
    elif rank == 1:
        found["from"] = dist.recv_object_list(objects, 0)
    found["objects"] = objects
    for wrong in ([], [dist.irecv]):
        with pytest.raises(ValueError, match="p2p_op_list"):
            dist.batch_isend_irecv(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Invalid ``op``"):
        dist.P2POp(dist.send, genesis.ones(1), others[0])  # type: ignore[arg-type]
    return found


def test_messages_in_a_batch_are_in_no_order_that_ranks_wait_for_each_other_in(ranks: Ranks) -> None:
    results = ranks(batches)
    for rank, found in enumerate(results):
        assert found["got"] == {other: 10 * other + rank for other in range(len(results)) if other != rank}
    assert results[1]["from"] == 0 and results[0]["objects"] == results[1]["objects"] == [{"step": 3}, "x"]


def ring(rank: int, size: int) -> dict[str, Any]:
    """Each receives from the rank before it, and then sends to the one behind: small and large tensors, single
    messages, a batch, and a captured function; what was received goes on to the next."""
    before, behind = (rank - 1) % size, (rank + 1) % size
    found: dict[str, Any] = {}
    for count in (3, 1 << 20):
        got = genesis.zeros(count)
        works = dist.irecv(got, before), dist.isend(genesis.full((count,), 1.0 + rank), behind)
        for work in works:
            assert work is not None and work.wait()
        found[str(count)] = got[0].item(), got[-1].item()

    @genesis.compile
    def turned(x: Any) -> Any:
        y = genesis.empty_like(x)
        for each in dist.batch_isend_irecv([dist.P2POp(dist.irecv, y, before), dist.P2POp(dist.isend, x * 2, behind)]):
            each.wait()
        return y + 1

    x = genesis.full((2,), float(rank))
    for _ in range(size):
        x = turned(x)
    found["all the way round"] = x.tolist()
    return found


def test_a_ring_in_which_all_receive_first(ranks: Ranks) -> None:
    results = ranks(ring)
    for rank, found in enumerate(results):
        size, before = len(results), (rank - 1) % len(results)
        assert found["3"] == found[str(1 << 20)] == (1 + before, 1 + before)
        assert found["all the way round"] == [rank * 2**size + 2**size - 1] * 2
