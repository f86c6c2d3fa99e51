"""Data-parallel training: what several ranks learn is what one process learns of all their samples."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import engine, nn
from genesis.distributed.fsdp import fully_shard
from genesis.ir.graph import topological
from genesis.nn.parallel import DistributedDataParallel
from tests.distributed.ranks import Ranks, device_type
from tests.distributed.training import REASSOCIATED, losses_and_plans, over_all, rank_batch


def network() -> nn.Module:
    genesis.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 3))


def train(rank: int, size: int, how: str, steps: int) -> tuple[list[float], int]:
    """Losses over all samples, of AdamW with clipping; and how many plans the last steps made."""
    torn = size > 1
    model: Any = network()
    if torn:
        model = DistributedDataParallel(model, bucket_cap_mb=0.001)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = genesis.amp.GradScaler(enabled=how == "scaled", init_scale=1024.0)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        if how == "scaled":
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        else:
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if how == "scaled":
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        return loss.detach()

    if how == "compiled":
        step = genesis.compile(step)
    known = 5 if how == "compiled" else 3  # views are watched before they are captured
    return losses_and_plans(step, rank, size, steps, known)


@pytest.mark.parametrize("how, steps", [("plain", 50), ("compiled", 12), ("scaled", 8)])
def test_losses_are_those_of_one_process_on_the_same_batches(two: Ranks, how: str, steps: int) -> None:
    (first, plans), (second, _) = two(train, how, steps)
    assert first == second
    assert plans == 0
    alone, _ = train(0, 1, how, steps)
    assert first == pytest.approx(alone, rel=REASSOCIATED)
    assert first[-1] < first[0]


def compiled_modules(rank: int, size: int, how: str) -> dict[str, Any]:
    """A loop that compiles its forward alone: the loss, how far gradients are from the mean of all ranks', how often
    the forward was replayed, and the mean that batch norm keeps."""
    genesis.manual_seed(3)
    module: Any = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    compiled = genesis.compile(module) if how == "inside" else None
    model: Any = DistributedDataParallel(compiled or module)
    run = genesis.compile(model) if how == "outside" else model
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    found: dict[str, Any] = {"losses": [], "apart": []}
    for step in range(8):
        optimizer.zero_grad()
        x, y = rank_batch(step, rank, size)
        loss = ((run(x.clone()) - y) ** 2).mean()  # views are not captured at once
        loss.backward()
        mean = module[0].weight.grad.clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        found["apart"].append((mean - module[0].weight.grad).abs().max().item())
        optimizer.step()
        found["losses"].append(over_all(loss.detach().clone(), size))
    told = run if how == "outside" else compiled
    return found | {"hits": genesis.explain(told).hits if told is not None else 0,
                    "mean": module[1].running_mean.tolist()}


def test_a_compiled_forward_reduces_gradients_as_the_undecorated_one_does(two: Ranks) -> None:
    plain, _ = two(compiled_modules, "plain")
    for how in ("outside", "inside"):
        first, second = two(compiled_modules, how)
        assert first["apart"] == second["apart"] == plain["apart"] == [0] * 8
        assert first["hits"] >= 3 and second["hits"] >= 3
        assert first["losses"] == second["losses"] == pytest.approx(plain["losses"], rel=REASSOCIATED)
        assert first["mean"] == pytest.approx(plain["mean"], rel=1e-5)


def test_four_ranks(four: Ranks) -> None:
    found = four(train, "plain", 6)
    assert all(losses == found[0][0] for losses, _ in found)
    assert found[0][0] == pytest.approx(train(0, 1, "plain", 6)[0], rel=REASSOCIATED)


def step_program(rank: int, size: int) -> dict[str, Any]:
    """What an undecorated step is made of."""
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(16, 16) for _ in range(4))), bucket_cap_mb=0.00105)
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    plans: list[Any] = []
    for _ in range(2):
        optimizer.zero_grad()
        plans.clear()
        model(genesis.ones(2, 16)).square().mean().backward()
        with engine.observe(plans.append):
            optimizer.step()
    last = engine.last_plan()
    assert last is not None
    graph = last.stages["legal"]
    reduced = [node for node in graph.nodes if node.op.name == "all_reduce"]
    products = [sum(x.op.name in ("matmul", "linear") for x in topological([node])) for node in reduced]
    return {"buckets": [[x.type.nbytes for x in node.inputs[:-1]] for node in reduced], "products": products}


def test_a_step_is_one_plan_whose_buckets_are_reduced_while_backward_goes_on(two: Ranks) -> None:
    first, second = two(step_program)
    assert first == second
    assert first["buckets"] == [[64, 1024]] * 4  # the last layer's bias and weight, then those before
    assert first["products"] == sorted(set(first["products"])), "a bucket waits for gradients that are none of its own"


def accumulates(rank: int, size: int) -> list[Any]:
    w = nn.Linear(2, 1, bias=False)
    model = DistributedDataParallel(w)
    with genesis.no_grad():
        w.weight.fill_(1)
    found = []
    with model.no_sync():
        model(genesis.ones(1, 2) * (rank + 1)).sum().backward()
        found.append(w.weight.grad.tolist())
    model(genesis.ones(1, 2) * 10).sum().backward()
    found.append(w.weight.grad.tolist())
    with model.no_sync():
        loss = model(genesis.ones(1, 2) * (rank + 1)).sum()
    loss.backward()  # the forward decides, as in torch
    found.append(w.weight.grad.tolist())
    return found


def test_no_sync(two: Ranks) -> None:
    first, second = two(accumulates)
    assert (first[0], second[0]) == ([[1, 1]], [[2, 2]])
    assert first[1] == second[1] == [[11.5, 11.5]]
    assert (first[2], second[2]) == ([[12.5, 12.5]], [[13.5, 13.5]])


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.never = (nn.Parameter(genesis.ones(2)) for _ in range(3))

    def forward(self, which: int) -> Any:
        return (self.a if which == 0 else self.b).sum() * 2


def unused(rank: int, size: int) -> dict[str, Any]:
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    model(rank).backward()
    found = {name: None if p.grad is None else p.grad.tolist() for name, p in model.module.named_parameters()}
    model.zero_grad()
    model(0).backward()
    found["again"] = [p.grad is None for p in model.parameters()]
    strict = DistributedDataParallel(Branches())
    try:
        strict(0).backward()
    except RuntimeError as error:
        found["error"] = str(error)
    return found


def used_before(rank: int, size: int, compiled: bool) -> list[Any]:
    """Gradients after backwards without reduction through one branch, and one with it through the other."""
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)

    def accumulate(weight: Any) -> None:
        with model.no_sync():
            (model(1) * weight).backward()

    run = genesis.compile(accumulate) if compiled else accumulate
    found = []
    for step in range(3):
        model.zero_grad()
        run(genesis.tensor(1.0 + rank + step))
        model(0).backward()
        found.append([None if p.grad is None else p.grad.tolist() for p in model.parameters()])
    return found


@pytest.mark.parametrize("compiled", [False, True])
def test_what_was_used_before_the_backward_that_reduces_is_reduced_with_it(two: Ranks, compiled: bool) -> None:
    """It was taken for unused: each rank kept gradients of its own, and the ranks' models parted."""
    first, second = two(used_before, compiled)
    assert first == second == [[[2, 2], [3 + 2 * step, 3 + 2 * step], None] for step in range(3)]


def test_unused_parameters(two: Ranks) -> None:
    for found in two(unused):
        assert (found["a"], found["b"], found["never"]) == ([1, 1], [1, 1], None)
        assert found["again"] == [False, True, True]
        assert "b, never" in found["error"] and "find_unused_parameters=True" in found["error"]


def begins(rank: int, size: int) -> dict[str, Any]:
    genesis.manual_seed(rank)
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model = DistributedDataParallel(module)
    found: dict[str, Any] = {"weight": module[0].weight.tolist()}
    genesis.manual_seed(rank + 10)
    model(genesis.randn(4, 3))
    model(genesis.randn(4, 3)).sum().backward()
    found["own"] = module[1].running_mean.tolist()
    model(genesis.randn(4, 3))
    with genesis.no_grad():
        found["evaluated"] = model.eval()(genesis.ones(4, 3)).tolist()  # with the first one's buffers, as in torch
    found["mean"] = [x.tolist() for x in (module[1].num_batches_tracked,)]
    try:
        DistributedDataParallel(nn.Linear(3, 3 + rank))
    except RuntimeError as error:
        found["error"] = str(error).split("\n")[0]
    try:
        DistributedDataParallel(nn.ReLU())
    except RuntimeError as error:
        found["none"] = str(error).split("\n")[0]
    return found


def test_ranks_begin_alike_and_share_the_first_ones_buffers(two: Ranks) -> None:
    first, second = two(begins)
    assert first["weight"] == second["weight"]
    assert first["evaluated"] == second["evaluated"]
    assert first["own"] != second["own"] and first["mean"] == second["mean"] == [3]
    assert "not the same" in first["error"] and "rank 1" in first["error"]
    assert "any parameters" in first["none"]


def whole_batch_norm(rank: int, size: int, sync: bool) -> dict[str, Any]:
    genesis.manual_seed(0)
    norm: Any = nn.BatchNorm2d(3)
    with genesis.no_grad():
        norm.weight.copy_(genesis.tensor([0.5, 1.0, 2.0]))
    x = genesis.randn(5, 3, 2, 2) * 3 + 100
    if sync:
        norm = nn.SyncBatchNorm.convert_sync_batchnorm(norm)
        x = x[:2] if rank == 0 else x[2:]
    x = x.detach().requires_grad_()
    y = norm(x)
    (y ** 3).sum().backward()
    gradients = [norm.weight.grad.clone(), norm.bias.grad.clone()]
    if sync:
        for g in gradients:
            dist.all_reduce(g)
    norm.eval()
    return {"y": y.flatten().tolist(), "dx": x.grad.flatten().tolist(), "dw": [g.tolist() for g in gradients],
            "mean": norm.running_mean.tolist(), "var": norm.running_var.tolist(),
            "count": norm.num_batches_tracked.item(), "eval": norm(x).sum().item()}


def test_sync_batch_norm_is_batch_norm_of_all_samples(two: Ranks) -> None:
    """float32 around 100: a mean loses 100 · 2^-24 of a spread of 3."""
    first, second = two(whole_batch_norm, True)
    alone = whole_batch_norm(0, 1, False)
    assert first["y"] + second["y"] == pytest.approx(alone["y"], rel=1e-4, abs=1e-4)
    assert first["dx"] + second["dx"] == pytest.approx(alone["dx"], rel=1e-3, abs=1e-3)
    for found in (first, second):
        for g, expected in zip(found["dw"], alone["dw"], strict=True):
            assert g == pytest.approx(expected, rel=1e-4, abs=1e-3)
        assert found["mean"] + found["var"] == pytest.approx(alone["mean"] + alone["var"], rel=1e-5)
        assert found["count"] == alone["count"] == 1


def uneven(rank: int, size: int, by_initial: bool) -> dict[str, Any]:
    """Rank r has r + 1 batches, of r + 1 each; plain gradient descent."""
    layer = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1, affine=False))
    with genesis.no_grad():
        layer[0].weight.zero_()
    model = DistributedDataParallel(layer)
    optimizer = genesis.optim.SGD(model.parameters(), lr=1.0)
    found = []
    with model.join(divide_by_initial_world_size=by_initial):
        for _ in range(rank + 1):
            optimizer.zero_grad()
            (layer[0].weight.sum() * (rank + 1) + model(genesis.ones(2, 1)).sum() * 0).backward()
            optimizer.step()
            found.append(layer[0].weight.item())
    return {"steps": found, "weight": layer[0].weight.item(), "count": layer[1].num_batches_tracked.item()}


@pytest.mark.parametrize("by_initial, second", [(True, -2.5), (False, -3.5)])
def test_ranks_with_fewer_batches_join_the_others(two: Ranks, by_initial: bool, second: float) -> None:
    """The mean of 1 and 2 is 1.5; then rank 1 is alone with 2, which is divided by 2 or by 1."""
    results = two(uneven, by_initial)
    assert results[0]["steps"] == [-1.5] and results[1]["steps"] == [-1.5, second]
    assert all(found["weight"] == second and found["count"] == 2 for found in results)


def throws(rank: int, size: int) -> str:
    model = DistributedDataParallel(nn.Linear(1, 1))
    try:
        with model.join(throw_on_early_termination=True):
            for _ in range(rank + 1):
                model(genesis.ones(1, 1)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""


def test_all_ranks_raise_when_the_first_is_done(two: Ranks) -> None:
    assert all("exhausted inputs" in found for found in two(throws))


def hooked(rank: int, size: int, name: str) -> dict[str, Any]:
    from genesis.distributed.algorithms.ddp_comm_hooks import default_hooks
    model = DistributedDataParallel(nn.Linear(3, 2), bucket_cap_mb=1e-5)
    seen: list[tuple[int, bool, list[int]]] = []

    def hook(state: Any, bucket: Any) -> Any:
        seen.append((bucket.index(), bucket.is_last(), [g.numel() for g in bucket.gradients()]))
        chosen = getattr(default_hooks, name)
        chosen = chosen(default_hooks.allreduce_hook) if name.endswith("wrapper") else chosen
        return chosen(state, bucket)
    model.register_comm_hook(None, hook)
    x = genesis.ones(1, 3) * (1 + 2**-9 * (rank + 1))
    model(x).sum().backward()
    try:
        model.register_comm_hook(None, hook)
    except RuntimeError as error:
        return {"seen": seen, "weight": model.module.weight.grad[0, 0].item(), "error": str(error)}
    return {}


@pytest.mark.parametrize("name, expected", [
    ("allreduce_hook", 1 + 1.5 * 2**-9), ("fp16_compress_hook", 1 + 2**-9 + 2**-10), ("fp16_compress_wrapper", None),
    ("bf16_compress_hook", 1.0)])
def test_hooks_reduce_buckets(two: Ranks, name: str, expected: float | None) -> None:
    """float16 has 10 bits behind the point, bfloat16 7: the sum of both is rounded to that."""
    first, second = two(hooked, name)
    assert first == second
    assert first["seen"] == [(0, False, [2]), (1, True, [6])]
    assert expected is None or first["weight"] == expected
    assert abs(first["weight"] - 1) < 2**-7 and "only be called once" in first["error"]


def own_buffers(rank: int, size: int) -> dict[str, Any]:
    """The buffer's value after the module was wrapped, and after a forward behind a backward."""
    found: dict[str, Any] = {}
    for name, given in {"neither": {}, "none": {"broadcast_buffers": False}, "begin": {"forward_sync_buffers": False},
                        "mesh": {"device_mesh": dist.init_device_mesh(device_type(), (size,))}}.items():
        layer: Any = nn.Linear(2, 2).to(device_type())
        layer.register_buffer("own", genesis.full((1,), float(rank)))
        model: Any = DistributedDataParallel(layer, **given)
        begun = layer.own.item()
        layer.own.fill_(5.0 + rank)
        model(genesis.ones(1, 2)).sum().backward()
        found[name] = begun, layer.own.item()
    try:
        DistributedDataParallel(layer, process_group=dist.group.WORLD, device_mesh=dist.DeviceMesh(
            device_type(), range(size)))
    except RuntimeError as error:
        found["both"] = str(error).splitlines()[0]
    return found


def test_buffers_are_the_first_ranks_at_the_start_and_at_forwards_as_torch_has_it(two: Ranks) -> None:
    """broadcast_buffers=False leaves each rank its own; forward_sync_buffers=False, the newer word, begins alike."""
    for rank, found in enumerate(two(own_buffers)):
        assert found["neither"] == found["mesh"] == (0, 5)
        assert found["none"] == (rank, 5 + rank) and found["begin"] == (0, 5 + rank)
        assert "Cannot specify both process_group and device_mesh arguments." in found["both"]


def copied(rank: int, size: int) -> dict[str, Any]:
    """A deep copy beside its original, and averages of a wrapped model."""
    inner = network()
    model = DistributedDataParallel(inner, process_group=dist.new_group(list(range(size))))
    other = copy.deepcopy(model)
    grads = []
    for each in (model, other):
        x, y = rank_batch(0, rank, size)
        ((each(x) - y) ** 2).mean().backward()
        grads.append([p.grad.tolist() for p in each.parameters()])
    swa = genesis.optim.swa_utils
    averages = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.5))
    averages.update_parameters(model)
    with genesis.no_grad():
        inner[0].weight.fill_(1.0)
    averages.update_parameters(model)
    try:
        copy.deepcopy(fully_shard(nn.Linear(4, 4)))
        said = ""
    except AssertionError as error:
        said = str(error)
    return {"grads": grads, "apart": other.module[0].weight is not inner[0].weight, "same": other.process_group is
            model.process_group, "average": averages.module.module[0].weight[0, 0].item(), "said": said}


def test_a_copy_of_a_wrapped_model_reduces_its_own_gradients(two: Ranks) -> None:
    first, second = two(copied)
    assert first["grads"] == second["grads"] and first["grads"][0] == first["grads"][1]
    for found in (first, second):
        assert found["apart"] and found["same"]
        assert found["average"] == pytest.approx((network()[0].weight[0, 0].item() + 1) / 2)
        assert "FSDP does not support deepcopy" in found["said"]
