"""ZeRO 1: ranks share out an optimizer's state, and learn what each learns with all of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import engine, nn, optim
from genesis.checkpointing import CheckpointManager
from genesis.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from genesis.distributed.fsdp import fully_shard
from genesis.distributed.optim import ZeroRedundancyOptimizer
from genesis.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from genesis.nn.parallel import DistributedDataParallel
from tests.distributed.ranks import Ranks, device_type
from tests.distributed.training import REASSOCIATED, losses_and_plans, one_step, over_all, rank_batch


class Network(nn.Module):
    """Parameters of all kinds: rows that ranks share evenly, or not, fewer than ranks, and one without a dimension."""

    def __init__(self) -> None:
        super().__init__()
        genesis.manual_seed(3)
        self.up, self.norm, self.down = nn.Linear(6, 33), nn.LayerNorm(33), nn.Linear(33, 3)
        self.row = nn.Parameter(genesis.ones(1, 3))
        self.scale = nn.Parameter(genesis.tensor(1.5))
        self.register_buffer("seen", genesis.zeros(()))

    def forward(self, x: Any) -> Any:
        return self.down(self.norm(nn.functional.gelu(self.up(x)))) * self.scale + self.row


ROUNDED = {"rel": 1e-6, "abs": 1e-7}
"""Of weights below 1 after a few steps: torch's kernels round the last elements of a row of vectors otherwise than
those of whole vectors, by a unit of 2^-24, and which these are depends on where a rank's rows end."""


OPTIMIZERS: dict[str, tuple[type, dict[str, Any]]] = {
    "adamw": (optim.AdamW, {"lr": 3e-3}),
    "amsgrad": (optim.Adam, {"lr": 3e-3, "amsgrad": True, "weight_decay": 0.1}),
    "sgd": (optim.SGD, {"lr": 0.05}),
    "nesterov": (optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "ascent": (optim.SGD, {"lr": 1e-3, "maximize": True, "momentum": 0.5, "dampening": 0.3}),
    "rmsprop": (optim.RMSprop, {"lr": 1e-3, "momentum": 0.5, "centered": True}),
    "adagrad": (optim.Adagrad, {"lr": 0.01, "lr_decay": 0.1}),
    "adadelta": (optim.Adadelta, {}),
    "adamax": (optim.Adamax, {}),
    "nadam": (optim.NAdam, {}),
    "radam": (optim.RAdam, {}),
    "rprop": (optim.Rprop, {}),
    "asgd": (optim.ASGD, {"t0": 2.0}),
}


def optimizer_of(parameters: Any, name: str, how: str, **where: Any) -> Any:
    """The optimizer: "whole" has all of its state on each rank, "shared" a part."""
    kind, options = OPTIMIZERS[name]
    return kind(parameters, **options) if how == "whole" else ZeroRedundancyOptimizer(
        parameters, optimizer_class=kind, **where, **options)


def numbers(values: Any) -> list[float]:
    """All elements of tensors."""
    return [float(x) for value in values for x in value.detach().flatten().tolist()]


def steps_of(rank: int, size: int, name: str, how: str, steps: int) -> Any:
    model: Any = Network()
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.001) if size > 1 else model
    optimizer = optimizer_of(model.parameters(), name, how)
    losses = [over_all(one_step(parallel, optimizer, *rank_batch(i, rank, size)), size) for i in range(steps)]
    return losses, numbers(model.parameters())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_are_those_of_an_optimizer_with_all_of_its_state(two: Ranks, name: str) -> None:
    first, second = two(steps_of, name, "shared", 3)
    assert first == second
    losses, weights = two(steps_of, name, "whole", 3)[0]
    assert first[0] == pytest.approx(losses, rel=1e-6) and first[1] == pytest.approx(weights, **ROUNDED)
    assert first[0] == pytest.approx(steps_of(0, 1, name, "whole", 3)[0], rel=REASSOCIATED)


def test_four_ranks_of_which_some_have_no_rows(four: Ranks) -> None:
    shared = four(steps_of, "adamw", "shared", 4)
    assert all(each == shared[0] for each in shared)
    losses, weights = four(steps_of, "adamw", "whole", 4)[0]
    assert shared[0][0] == pytest.approx(losses, rel=1e-6) and shared[0][1] == pytest.approx(weights, **ROUNDED)
    assert shared[0][0] == pytest.approx(steps_of(0, 1, "adamw", "whole", 4)[0], rel=REASSOCIATED)


def test_steps_are_those_of_torch(two: Ranks) -> None:
    import torch
    given = Network()
    model = [torch.tensor(p.tolist(), requires_grad=True) for p in given.parameters()]
    names = [name for name, _ in given.named_parameters()]
    theirs = torch.optim.AdamW(model, lr=3e-3)
    p = dict(zip(names, model, strict=True))
    losses = []
    for i in range(6):
        x, y = (torch.tensor(z.tolist()) for z in rank_batch(i, 0, 1))
        theirs.zero_grad()
        hidden = torch.nn.functional.gelu(torch.nn.functional.linear(x, p["up.weight"], p["up.bias"]))
        hidden = torch.nn.functional.layer_norm(hidden, (33,), p["norm.weight"], p["norm.bias"])
        out = torch.nn.functional.linear(hidden, p["down.weight"], p["down.bias"]) * p["scale"] + p["row"]
        loss = ((out - y) ** 2).mean()
        loss.backward()
        theirs.step()
        losses.append(loss.item())
    ours, _ = two(steps_of, "adamw", "shared", 6)[0]
    assert ours == pytest.approx(losses, rel=REASSOCIATED)


def train(rank: int, size: int, how: str, state: str, steps: int) -> Any:
    """Losses over all samples, of AdamW with clipping, two groups and a schedule; plans that the last steps made; and
    the elements of state that a rank has."""
    inner: Any = Network()
    model: Any = DistributedDataParallel(inner, bucket_cap_mb=0.001) if size > 1 else inner
    listed = list(inner.parameters())
    optimizer = optimizer_of([{"params": listed[:3], "weight_decay": 0.1}, {"params": listed[3:]}], "adamw", state)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    scaler = genesis.amp.GradScaler(enabled=how == "scaled", init_scale=1024.0)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with genesis.autocast(device_type(), dtype=genesis.bfloat16, enabled=how == "autocast"):
            loss = ((model(x) - y) ** 2).mean()
        scaler.scale(loss).backward()
        if how == "accumulated":
            ((model(x + 1) - y) ** 2).mean().backward()
        if how == "scaled":
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(listed, 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        return loss.detach()

    if how == "compiled":
        step = genesis.compile(step)
    losses, plans = losses_and_plans(step, rank, size, steps, 6 if how == "compiled" else 3)
    kept = sum(x.numel() for state in optimizer.state.values() for x in state.values()
               if isinstance(x, genesis.Tensor))
    hits = genesis.explain(step).hits if how == "compiled" else None
    return {"losses": losses, "plans": plans, "weights": numbers(listed), "kept": kept, "hits": hits}


def test_losses_over_fifty_steps_are_those_of_one_process(two: Ranks) -> None:
    first, second = two(train, "plain", "shared", 50)
    assert first["losses"] == second["losses"] and first["weights"] == second["weights"]
    assert first["losses"] == pytest.approx(train(0, 1, "plain", "whole", 50)["losses"], rel=REASSOCIATED)


@pytest.mark.parametrize("how", ["plain", "compiled", "scaled", "accumulated", "autocast"])
def test_clipping_scaling_schedules_and_compiled_steps_see_any_optimizer(two: Ranks, how: str) -> None:
    steps = 12 if how == "compiled" else 6
    shared, whole = two(train, how, "shared", steps), two(train, how, "whole", steps)
    for ours, theirs in zip(shared, whole, strict=True):
        assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-6 if how != "autocast" else 1e-3)
        assert ours["weights"] == pytest.approx(theirs["weights"], **(ROUNDED if how != "autocast" else {"abs": 1e-3}))
        assert ours["plans"] == 0 and ours["hits"] == theirs["hits"]
        assert how != "compiled" or ours["hits"] >= 5
    assert shared[0]["weights"] == shared[1]["weights"]
    counted = sum(p.numel() for p in Network().parameters())
    assert whole[0]["kept"] == 2 * counted
    assert sum(each["kept"] for each in shared) == 2 * (counted + 1), "the parameter without a dimension is kept twice"
    alone = train(0, 1, how, "whole", steps)["losses"]
    assert shared[0]["losses"] == pytest.approx(alone, rel=1e-2 if how == "autocast" else REASSOCIATED)


def program(rank: int, size: int) -> dict[str, Any]:
    """What an undecorated step is made of."""
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.00105)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.AdamW)
    for _ in range(2):
        optimizer.zero_grad()
        parallel(genesis.ones(2, 16)).square().mean().backward()
        optimizer.step()
    last = engine.last_plan()
    assert last is not None
    found: dict[str, Any] = {"gathers": [], "updates": [], "reduced": 0}
    for node in last.stages["grad"].nodes:
        if node.op.name == "all_gather":
            found["gathers"].append([tuple(x.shape) for x in node.inputs[:-1]])
        if node.op.name == "adamw":
            found["updates"].append(sorted({tuple(x.shape) for x in node.inputs if x.shape}))
    found["reduced"] = sum(node.op.name == "all_reduce" for node in last.stages["legal"].nodes)
    return found


def test_a_step_is_one_plan_in_which_a_rank_updates_its_rows_and_one_collective_gathers_them(two: Ranks) -> None:
    for found in two(program):
        assert found == {"gathers": [[(8, 16), (8,)] * 3], "updates": [[(8,), (8, 16)]], "reduced": 3}


# States

def made(rank: int, size: int, how: str = "world") -> tuple[Any, Any, Any]:
    """A network, what trains it and its optimizer."""
    model: Any = Network()
    if size == 1:
        return model, model, optimizer_of(model.parameters(), "adamw", "whole")
    where: dict[str, Any] = {}
    if how == "replicas":
        where["device_mesh"] = dist.init_device_mesh(device_type(), (2, size // 2))
    if how == "neighbours":  # pairs, each of which has the whole state
        pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
        where["process_group"] = pairs[rank // 2]
    return model, DistributedDataParallel(model), optimizer_of(model.parameters(), "adamw", "shared", **where)


def consolidated(rank: int, size: int, to: int) -> dict[str, Any]:
    _, parallel, optimizer = made(rank, size)
    said = []

    def tried(call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as error:
            said.append(str(error))
    one_step(parallel, optimizer, *rank_batch(0, rank, size))
    tried(optimizer.state_dict)
    optimizer.consolidate_state_dict(to=to)
    state: dict[str, Any] = {"state": {}, "param_groups": []}
    tried(lambda: state.update(optimizer.state_dict()))
    moments = {number: numbers([held["exp_avg"], held["exp_avg_sq"]]) for number, held in state["state"].items()}
    steps = [held["step"] for held in state["state"].values()]
    devices = {str(held["exp_avg"].device) for held in state["state"].values()}
    one_step(parallel, optimizer, *rank_batch(1, rank, size))
    tried(optimizer.state_dict)
    return {"said": said, "moments": moments, "steps": steps, "devices": devices,
            "groups": [group["params"] for group in state["param_groups"]]}


def test_a_whole_state_is_where_it_was_gathered_until_the_next_step(two: Ranks) -> None:
    first, second = two(consolidated, 1)
    assert len(first["said"]) == 3 and all("has not been consolidated on this rank" in x for x in first["said"])
    assert not first["moments"]
    assert "has not been consolidated" in second["said"][0] and "has changed since" in second["said"][1]
    assert second["steps"] == [1] * 8 and second["devices"] == {"cpu"} and second["groups"] == [list(range(8))]
    _, parallel, alone = made(0, 1)
    one_step(parallel, alone, *rank_batch(0, 0, 1))
    for number, held in alone.state_dict()["state"].items():
        assert second["moments"][number] == pytest.approx(numbers([held["exp_avg"], held["exp_avg_sq"]]), rel=1e-4,
                                                          abs=1e-8)


def saved_whole(rank: int, size: int, path: str) -> Any:
    model, parallel, optimizer = made(rank, size)
    losses = [over_all(one_step(parallel, optimizer, *rank_batch(i, rank, size)), size) for i in range(2)]
    if size > 1:
        optimizer.consolidate_state_dict()
    if rank == 0:
        genesis.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    if size > 1:
        dist.barrier()
    return losses


def loaded_whole(rank: int, size: int, path: str) -> Any:
    model, parallel, optimizer = made(rank, size)
    stored = genesis.load(path)
    model.load_state_dict(stored["model"])
    optimizer.load_state_dict(stored["optimizer"])
    optimizer.load_state_dict(optimizer.local_state_dict() if size > 1 else optimizer.state_dict())  # its own, too
    return [over_all(one_step(parallel, optimizer, *rank_batch(i, rank, size)), size) for i in range(2, 4)]


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """The losses of one process that never stops."""
    _, model, optimizer = made(0, 1)
    return [one_step(model, optimizer, *rank_batch(i, 0, 1)).item() for i in range(8)]


def test_a_whole_state_loads_at_any_number_of_ranks(four: Ranks, two: Ranks, alone: list[float],
                                                    tmp_path: Path) -> None:
    path = str(tmp_path / "state.safetensors")
    assert four(saved_whole, path)[0] == pytest.approx(alone[:2], rel=REASSOCIATED)
    for found in (two(loaded_whole, path)[0], two(loaded_whole, path)[1], loaded_whole(0, 1, path)):
        assert found == pytest.approx(alone[2:4], rel=REASSOCIATED)
    saved_whole(0, 1, path)
    assert four(loaded_whole, path)[3] == pytest.approx(alone[2:4], rel=REASSOCIATED)


def by_names(rank: int, size: int, whole: bool) -> Any:
    """State dicts by parameters' names, taken over by another model and optimizer."""
    options = StateDictOptions(full_state_dict=whole)
    model, parallel, optimizer = made(rank, size)
    one_step(parallel, optimizer, *rank_batch(0, rank, size))
    weights, state = get_state_dict(model, optimizer, options=options)
    shape = tuple(state["state"]["up.weight"]["exp_avg"].shape)
    other, parallel, again = made(rank, size)
    set_state_dict(other, again, model_state_dict=weights, optim_state_dict=state, options=options)
    return shape, [over_all(one_step(parallel, again, *rank_batch(i, rank, size)), size) for i in (1, 2)]


@pytest.mark.parametrize("whole", [True, False])
def test_states_by_names_are_whole_or_a_ranks_own(two: Ranks, alone: list[float], whole: bool) -> None:
    for rank, (shape, losses) in enumerate(two(by_names, whole)):
        assert shape == (33 if whole else 17 - rank, 6)
        assert losses == pytest.approx(alone[1:3], rel=REASSOCIATED)


def run(rank: int, size: int, folder: str, last: int, how: str = "world") -> Any:
    """A run that goes on from the folder's newest checkpoint, to a step behind which it saves."""
    model, parallel, optimizer = made(rank, size, how)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 100)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    manager = CheckpointManager(folder, every=1)
    found = manager.resume(**parts)
    losses = [over_all(one_step(parallel, optimizer, *rank_batch(step, rank, size)), size)
              for step in range(found.step, last)]
    manager.save(last, **parts)
    manager.wait()
    return found.step, losses


@pytest.mark.parametrize("how", ["world", "replicas", "neighbours"])
def test_checkpoints_of_four_ranks_then_two_then_one(four: Ranks, two: Ranks, alone: list[float], how: str,
                                                     tmp_path: Path) -> None:
    for ranks, first, last in ((four, 0, 2), (two, 2, 4), (None, 4, 5), (four, 5, 7), (two, 7, 8)):
        found = [run(0, 1, str(tmp_path), last)] if ranks is None else ranks(
            run, str(tmp_path), last, how if ranks is four else "world")
        for begun, losses in found:
            assert begun == first
            assert losses == pytest.approx(alone[first:last], rel=REASSOCIATED)
    files = [file.name for file in (tmp_path / "step-00000007").glob("optimizer.part-*")]
    assert len(files) == (4 if how == "world" else 2 if how == "replicas" else 4)


# What else is done to parameters

def overwritten(rank: int, size: int, how: str) -> Any:
    """Weights that are written to, replaced or left out between steps."""
    model, parallel, _ = made(rank, size)
    optimizer = optimizer_of(model.parameters(), "adamw", how)
    for i in range(4):
        if i == 1:
            with genesis.no_grad():
                model.up.weight.mul_(0.5)
            model.down.weight.data = genesis.full_like(model.down.weight, 0.1)
        if i == 2:
            model.load_state_dict({name: x * 0.9 for name, x in model.state_dict().items()})
        if i == 3:
            model.norm.weight.requires_grad_(False)
        one_step(parallel, optimizer, *rank_batch(i, rank, size))
    return numbers(model.parameters())


def test_what_is_written_to_weights_between_steps_counts(two: Ranks) -> None:
    first, second = two(overwritten, "shared")
    assert first == second == pytest.approx(two(overwritten, "whole")[0], **ROUNDED)


def added(rank: int, size: int) -> Any:
    model, parallel, _ = made(rank, size)
    optimizer = ZeroRedundancyOptimizer(model.up.parameters(), optim.SGD, lr=0.1, momentum=0.9)
    optimizer.add_param_group({"params": list(model.down.parameters()), "lr": 0.01})
    for i in range(2):
        one_step(parallel, optimizer, *rank_batch(i, rank, size))
    return [group["lr"] for group in optimizer.param_groups], sorted(
        tuple(state["momentum_buffer"].shape) for state in optimizer.state.values()), isinstance(
        optimizer, optim.SGD), numbers(model.parameters())


def test_groups_are_added_as_to_any_optimizer(two: Ranks) -> None:
    found = two(added)
    for rank, (rates, shapes, is_sgd, weights) in enumerate(found):
        assert rates == [0.1, 0.01] and is_sgd
        assert shapes == sorted([(17 - rank, 6), (17 - rank,), (2 - rank, 33), (2 - rank,)])
        assert weights == found[0][3]


def low_precision(rank: int, size: int, how: str) -> Any:
    model: Any = Network().to(genesis.bfloat16)
    parallel = DistributedDataParallel(model)
    optimizer = optimizer_of(model.parameters(), "adamw", how)
    for i in range(3):
        x, y = rank_batch(i, rank, size)
        one_step(parallel, optimizer, x.bfloat16(), y.bfloat16())
    dtypes = {x.dtype.name for state in optimizer.state.values() for x in state.values()
              if isinstance(x, genesis.Tensor)}
    return numbers(model.parameters()), dtypes


def test_parameters_of_16_bits_have_a_state_of_32(two: Ranks) -> None:
    (first, dtypes), (second, _) = two(low_precision, "shared")
    assert first == second == two(low_precision, "whole")[0][0]
    assert dtypes == {"float32"}


def tensor_parallel(rank: int, size: int, how: str) -> Any:
    genesis.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3))
    if size == 1:
        optimizer = optimizer_of(model.parameters(), "adamw", "whole")
        return [one_step(model, optimizer, *rank_batch(i, 0, 1)).item() for i in range(4)]
    mesh = dist.init_device_mesh(device_type(), (2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    parallel = DistributedDataParallel(model, device_mesh=mesh["dp"])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, device_mesh=mesh["dp"], lr=3e-3)
    losses = [one_step(parallel, optimizer, *rank_batch(i, mesh.get_local_rank("dp"), 2)) for i in range(4)]
    for loss in losses:
        dist.all_reduce(loss, dist.ReduceOp.AVG, mesh.get_group("dp"))
    optimizer.consolidate_state_dict()
    whole = numbers([optimizer.state_dict()["state"][0]["exp_avg"]]) if mesh.get_local_rank("dp") == 0 else []
    return [loss.item() for loss in losses], tuple(optimizer.state[model[0].weight]["exp_avg"].shape), len(whole)


def test_rows_of_what_tensor_parallelism_has_left(four: Ranks) -> None:
    alone = tensor_parallel(0, 1, "whole")
    for rank, (losses, shape, whole) in enumerate(four(tensor_parallel, "shared")):
        assert losses == pytest.approx(alone, rel=REASSOCIATED)
        assert shape == (3, 6) and whole == (72 if rank < 2 else 0)


def refused(rank: int, size: int) -> list[str]:
    model = nn.Linear(4, 4)
    sharded = fully_shard(nn.Linear(4, 4))

    class Own(optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            """A user's."""
    outside = dist.new_group([0])
    mesh = dist.init_device_mesh(device_type(), (1, 1, size))
    said = []
    for arguments, options in (
            ((model.parameters(), optim.Muon), {}), ((model.parameters(), optim.LBFGS), {}),
            ((model.parameters(), Own), {}), ((model.parameters(), "AdamW"), {}),
            ((sharded.parameters(), optim.AdamW), {}), (([], optim.AdamW), {}),
            ((model.parameters(), optim.AdamW), {"process_group": dist.group.WORLD, "device_mesh": mesh}),
            ((model.parameters(), optim.AdamW), {"device_mesh": mesh}),
            ((model.parameters(), optim.AdamW), {"learning_rate": 1}),
            ((model.parameters(), optim.AdamW), {"process_group": outside})):
        try:
            ZeroRedundancyOptimizer(*arguments, **options)
            said.append("")
        except (TypeError, ValueError, NotImplementedError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def test_what_cannot_be_shared_out_is_refused(two: Ranks) -> None:
    for rank, said in enumerate(two(refused)):
        for wanted, found in zip((
                "ValueError: .*a step of Muon depends on all of a parameter", "ValueError: .*a step of LBFGS depends",
                "NotImplementedError: .*Own is an optimizer of your own", "TypeError: .*optimizer_class is 'AdamW'",
                "ValueError: .*ranks have parts of a parameter already", "ValueError: optimizer got an empty",
                "ValueError: .*Cannot specify both", "ValueError: .*a mesh of one dimension",
                "TypeError: .*unexpected keyword argument 'learning_rate'",
                "ValueError: .*outside of the process group" if rank else "^$"), said, strict=True):
            assert re.match(wanted, found, re.DOTALL), (wanted, found)

