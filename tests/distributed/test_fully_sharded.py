"""Fully sharded training: each rank keeps a part of all parameters, and what they learn is what one process learns."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import engine, nn
from genesis.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from genesis.passes.memory.schedule import Lives
from tests.distributed.ranks import Ranks, device_type, on_the_host
from tests.distributed.training import REASSOCIATED, losses_and_plans, one_step, over_all, rank_batch


class Block(nn.Module):
    """A residual block; 33 rows are no multiple of the ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 33), nn.Linear(33, 16)

    def forward(self, x: Any) -> Any:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.embed, self.head, self.checkpointed = nn.Linear(6, 16), nn.Linear(16, 3), checkpointed
        self.blocks = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        for block in self.blocks:
            x = genesis.checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


def network(**options: Any) -> Any:
    genesis.manual_seed(3)
    return Net(**options)


def sharded(model: Any, **options: Any) -> Any:
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def train(rank: int, size: int, how: str, steps: int) -> tuple[list[float], int]:
    """Losses over all samples, of AdamW with clipping; and how many plans the last steps made."""
    torn = size > 1
    model = network(checkpointed=how == "checkpointed")
    if torn:
        mesh = dist.init_device_mesh(device_type(), (2, 2)) if how == "replicas" else None
        sharded(model, reshard_after_forward={"kept": False, "fewer": 2}.get(how), mesh=mesh)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=3e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        if how == "read early":
            loss.item()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    if how == "compiled":
        step = genesis.compile(step)
    known = 5 if how == "compiled" else 3  # views are watched before they are captured
    return losses_and_plans(step, rank, size, steps, known)


@pytest.mark.parametrize("how, steps", [("plain", 50), ("compiled", 12), ("read early", 8), ("kept", 8),
                                        ("checkpointed", 8)])
def test_losses_are_those_of_one_process_on_the_same_batches(two: Ranks, how: str, steps: int) -> None:
    (first, plans), (second, _) = two(train, how, steps)
    assert first == second
    assert plans == 0
    alone, _ = train(0, 1, how, steps)
    assert first == pytest.approx(alone, rel=REASSOCIATED)
    assert first[-1] < first[0]


@pytest.mark.parametrize("how", ["plain", "fewer", "replicas"])
def test_four_ranks(four: Ranks, how: str) -> None:
    found = four(train, how, 6)
    assert all(losses == found[0][0] for losses, _ in found)
    assert found[0][0] == pytest.approx(train(0, 1, how, 6)[0], rel=REASSOCIATED)


BLOCK, ROOT = 32 + 16 * 33 + 33 + 33 * 16 + 16, 16 * 6 + 16 + 3 * 16 + 3
"""Elements of a block's parameters, and of those that the model has beside its blocks."""


def program(rank: int, size: int, how: str) -> list[tuple[str, int]]:
    """The collectives of an undecorated step, in order, with the rows' elements that they move."""
    model = sharded(network(checkpointed=how == "checkpointed"), reshard_after_forward=False if how == "kept" else None)
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(genesis.ones(2, 6)).square().mean()
        loss.backward()
        optimizer.step()
    last = engine.last_plan()
    assert last is not None
    found = [node for node in last.stages["legal"].nodes if node.op.kind == "collective"]
    return [(node.op.name, sum(x.numel for x in node.type[:-1])) for node in found]


def test_a_step_gathers_each_group_once_in_forward_and_once_in_backward_and_scatters_it_once(two: Ranks) -> None:
    padded, padded_root = BLOCK + 16 + 1, ROOT + 16 + 1  # one more row than 33, and than 3
    assert padded == 2 * 577
    forward = [("all_gather", padded_root)] + [("all_gather", padded)] * 3
    block = ("reduce_scatter", padded // 2)
    for how in ("plain", "checkpointed"):
        first, second = two(program, how)
        assert first == second
        again = ("all_gather", padded)
        assert first == [*forward, again, again, block, again, block, block, ("reduce_scatter", padded_root // 2)]
    kept, _ = two(program, "kept")
    assert kept == [*forward, block, block, block, ("reduce_scatter", padded_root // 2)]


def uneven(rank: int, size: int, budget: int) -> list[int]:
    """Of a backward through modules of unequal sizes: what is gathered (positive) and scattered (negative), in order.
    The first rank has read its loss."""
    before, genesis.config.prefetch_bytes = genesis.config.prefetch_bytes, budget
    try:
        shapes = (4, 4), (4, 64), (64, 4), (4, 4), (4, 2)
        model: Any = nn.Sequential(*[nn.Linear(*shape, bias=False) for shape in shapes])
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        loss = model(genesis.ones(2, 4)).square().mean()
        (loss.item if rank == 0 else loss.detach)()
        loss.backward()
        genesis.eval(*[p.grad for p in model.parameters()])
    finally:
        genesis.config.prefetch_bytes = before
    last = engine.last_plan()
    assert last is not None
    found = [(node.op.name, node) for node in last.stages["legal"].nodes if node.op.kind == "collective"]
    moved = [node.type[0].numel if name == "all_gather" else -size * node.type[0].numel for name, node in found]
    return moved if rank == 0 else moved[5:]  # without the forward's gathers


@pytest.mark.parametrize("budget, expected", [
    # the next one; behind the small one the large one, too, whose kernels would be too few; then one at a time
    (1 << 30, [8, 16, 256, -8, -16, 256, -256, 16, -256, -16]),
    (4 * 256, [8, 16, -8, 256, -16, 256, -256, 16, -256, -16]),  # not both of them at a time
    (0, [8, -8, 16, -16, 256, -256, 256, -256, 16, -16]),
])
def test_backward_gathers_a_large_module_ahead_of_small_ones(two: Ranks, budget: int, expected: list[int]) -> None:
    first, second = two(uneven, budget)
    assert first == second, "ranks that compute unequal parts of a step at once run unequal collectives"
    assert first == expected


def early(rank: int, size: int, reshard: bool) -> list[tuple[int, ...]]:
    """The shapes that a forward, read before its backward, keeps."""
    model = sharded(network(), reshard_after_forward=reshard)
    plans: list[Any] = []
    with engine.observe(plans.append):
        loss = model(genesis.ones(2, 6)).square().mean()
        loss.item()
    (plan,) = plans
    loss.backward()
    return [tuple(kind.shape) for kind in plan.plan.outputs]


def test_whole_parameters_are_not_kept_for_a_backward_that_comes_later(two: Ranks) -> None:
    whole = {(34, 16), (33, 16), (16, 33)}
    for resharded, kept in zip(two(early, True), two(early, False), strict=True):
        assert whole.isdisjoint(resharded) and len(resharded) > 3
        assert not whole.isdisjoint(kept)


def arena(rank: int, size: int, reshard: bool) -> int:
    """The most bytes that are alive at one time of a step's values, beside parameters and what it gives back."""
    model: Any = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(8)])
    for layer in model:
        fully_shard(layer, reshard_after_forward=reshard)
    fully_shard(model)
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    model(genesis.ones(1, 64)).sum().backward()
    optimizer.step()
    last = engine.last_plan()
    assert last is not None
    return Lives(last.stages["groups"]).peak()


@on_the_host("on a GPU the gathered layers that one kernel reads are alive together")
def test_a_gathered_layer_is_given_up_after_its_use(two: Ranks) -> None:
    """Eight layers of 16 KiB: kept, they are alive together. Gathered again, two of them are: the one in use, and the
    next; beside these a gradient and its padding."""
    layer = 64 * 64 * 4
    for resharded, kept in zip(two(arena, True), two(arena, False), strict=True):
        assert kept >= 8 * layer
        assert resharded <= 5 * layer


def held(rank: int, size: int) -> tuple[int, int]:
    """Bytes of parameters and optimizer state that a rank has."""
    model = network()
    if size > 1:
        sharded(model)
    optimizer = genesis.optim.AdamW(model.parameters())
    model(genesis.ones(2, 6)).sum().backward()
    optimizer.step()
    states = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, genesis.Tensor)]
    return (sum(p.storage.type.nbytes for p in model.parameters()),
            sum(x.storage.type.nbytes for x in states if x.ndim))


def test_a_rank_has_its_part_of_parameters_and_optimizer_state(ranks: Ranks) -> None:
    """Rows that do not divide make at most one row more of each parameter."""
    parameters, states = held(0, 1)
    assert states == 2 * parameters == 2 * 4 * (3 * BLOCK + ROOT)
    row = 4 * (3 * (1 + 1 + 16 + 1 + 33 + 1) + 6 + 1 + 16 + 1)
    found = ranks(held)
    assert sum(p for p, _ in found) == parameters and sum(s for _, s in found) == states
    assert max(p for p, _ in found) <= parameters / ranks.size + row
    assert max(s for _, s in found) <= 2 * (parameters / ranks.size + row)


def accumulates(rank: int, size: int) -> list[Any]:
    model: Any = nn.Linear(2, 3, bias=False)
    with genesis.no_grad():
        model.weight.fill_(1)
    fully_shard(model)
    model.set_requires_gradient_sync(False)
    model(genesis.ones(1, 2) * (rank + 1)).sum().backward()
    found = [model.weight.grad]
    model.set_requires_gradient_sync(True)
    model(genesis.ones(1, 2) * 10).sum().backward()
    found.append(model.weight.grad.tolist())
    model(genesis.ones(1, 2) * (rank + 1)).sum().backward()
    found.append(model.weight.grad.tolist())
    model.set_gradient_divide_factor(1.0)
    model.weight.grad = None
    model(genesis.ones(1, 2)).sum().backward()
    found.append(model.weight.grad.tolist())
    return found


def test_gradients_are_accumulated_whole_until_they_are_to_be_reduced(two: Ranks) -> None:
    rows = [2, 1]
    for rank, found in enumerate(two(accumulates)):
        assert found == [None] + [[[value] * 2] * rows[rank] for value in (11.5, 13.0, 2.0)]


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(genesis.ones(4, 4) / 3)
        self.seen: list[Any] = []

    def forward(self, x: Any) -> Any:
        self.seen.append((x.dtype, self.weight.dtype, tuple(self.weight.shape)))
        return x @ self.weight


def precise(rank: int, size: int) -> dict[str, Any]:
    model: Any = Reads()
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=genesis.bfloat16, reduce_dtype=genesis.float32,
                                                      output_dtype=genesis.float32))
    y = model(genesis.ones(2, 4))
    y.sum().backward()
    return {"seen": model.seen, "result": y.dtype, "value": y[0, 0].item(), "part": model.weight.dtype,
            "grad": (model.weight.grad.dtype, model.weight.grad.tolist())}


def test_forward_computes_and_gradients_are_reduced_in_the_policys_dtypes(two: Ranks) -> None:
    third = genesis.tensor(1 / 3, dtype=genesis.bfloat16).item()
    for found in two(precise):
        assert found["seen"] == [(genesis.bfloat16, genesis.bfloat16, (4, 4))]
        assert (found["result"], found["part"]) == (genesis.float32, genesis.float32)
        assert found["value"] == pytest.approx(4 * third, rel=2**-8)  # a sum in bfloat16
        assert found["grad"] == (genesis.float32, [[2.0] * 4] * 2)


def frozen(rank: int, size: int) -> dict[str, Any]:
    model = network()
    for name, p in model.named_parameters():
        p.requires_grad_("down" in name)
    sharded(model)
    loss = model(genesis.ones(2, 6)).square().mean()
    loss.item()
    loss.backward()
    return {name: None if p.grad is None else p.grad.tolist() for name, p in model.named_parameters()}


def alone_frozen() -> dict[str, Any]:
    model = network()
    model(genesis.ones(2, 6)).square().mean().backward()
    return {name: p.grad.tolist() for name, p in model.named_parameters()}


def test_frozen_parameters_get_no_gradient_and_let_others_through(two: Ranks) -> None:
    first, second = two(frozen)
    alone = alone_frozen()
    for name, expected in alone.items():
        if "down" in name:
            assert first[name] + second[name] == [pytest.approx(row, rel=1e-4, abs=1e-7) for row in expected]
        else:
            assert first[name] is None


class Coder(nn.Module):
    """Has two methods beside forward, which calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 5), nn.Linear(5, 6)

    def encode(self, x: Any) -> Any:
        return self.inner(x).tanh()

    def decode(self, x: Any) -> Any:
        return self.outer(x)

    def forward(self, x: Any) -> Any:
        return self.decode(self.encode(x))


def by_methods(rank: int, size: int, compiled: bool) -> list[Any]:
    """Losses of steps that call the methods, and once forward; then an error's text."""
    genesis.manual_seed(3)
    model: Any = Coder()
    error = ""
    if size > 1:
        fully_shard(model)
        for name in ("encode", "decode"):
            register_fsdp_forward_method(model, name)
        try:
            register_fsdp_forward_method(model, "sample")
        except ValueError as problem:
            error = str(problem).splitlines()[0]
    register_fsdp_forward_method(nn.Linear(1, 1), "anything")
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model.decode(model.encode(x)) - x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = genesis.compile(step) if compiled else step
    losses = [run(genesis.ones(2, 6) * (i + 1)).item() for i in range(4)]
    return [*losses, model(genesis.ones(2, 6)).sum().item(), error]


@pytest.mark.parametrize("compiled", [False, True])
def test_methods_that_are_registered_gather_parameters_as_forward_does(two: Ranks, compiled: bool) -> None:
    *alone, _ = by_methods(0, 1, False)
    for *found, error in two(by_methods, compiled):
        assert found == pytest.approx(alone, rel=REASSOCIATED)
        assert error == "register_fsdp_forward_method: FSDPCoder does not have a method sample"


class Table(nn.Module):
    """Hands its frozen weight out, to be read elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(genesis.randn(8, 3), requires_grad=False)

    def forward(self) -> Any:
        return self.weight


class Adapted(nn.Module):
    """A frozen projection in front of what learns, and behind an adapter that does: backward has long had the
    gradients of the module's own head when it comes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter, self.projection = nn.Linear(6, 6), nn.Linear(6, 8).requires_grad_(False)
        self.block, self.head, self.table = nn.Linear(8, 8), nn.Linear(8, 8), Table()

    def forward(self, x: Any) -> Any:
        return self.head(self.block(self.projection(self.adapter(x))).tanh()).tanh() @ self.table()


def frozen_between(rank: int, size: int) -> list[Any]:
    """Gradients where the first rank alone reads the loss before backward."""
    genesis.manual_seed(3)
    model = Adapted()
    if size > 1:
        for part in (model.adapter, model.block, model.table):
            fully_shard(part)
        fully_shard(model, reshard_after_forward=True)
    loss = model(genesis.ones(2, 6)).square().mean()
    if rank == 0:
        loss.item()
    loss.backward()
    return [p.grad.tolist() for p in model.parameters() if p.requires_grad]


def test_frozen_parameters_are_gathered_again_wherever_backward_reads_them(two: Ranks) -> None:
    """A gather of the forward that backward ran again would meet another collective on the other rank."""
    for first, second, alone in zip(*two(frozen_between), two(by_one, frozen_between)[0], strict=True):
        found, expected = genesis.tensor(first + second), genesis.tensor(alone)
        assert (found - expected).abs().max().item() <= 1e-6 * expected.abs().max().item()


def odd_ways(rank: int, size: int) -> dict[str, Any]:
    """What surrounds a forward: exceptions, whole parameters by hand, two backwards, evaluation."""
    model = network()
    expected = model.blocks[0].up.weight.detach().clone()
    sharded(model)
    found: dict[str, Any] = {"class": (type(model).__name__, isinstance(model, FSDPModule), isinstance(model, Net))}
    up = model.blocks[0].up
    try:
        model(genesis.ones(2, 7))
    except RuntimeError:
        found["after an error"] = tuple(up.weight.shape)
    found["full"] = bool((up.weight.full_tensor() == expected).all().item()), tuple(up.weight.sharding.shape)
    model.blocks[0].unshard()
    found["by hand"] = bool((up.weight == expected).all().item())
    model.blocks[0].reshard()
    found["again"] = tuple(up.weight.shape)
    with genesis.no_grad():
        before = model(genesis.ones(2, 6)).tolist()
    model.set_reshard_after_backward(False)
    loss = model(genesis.ones(2, 6)).sum()
    loss.backward(retain_graph=True)
    once = up.weight.grad.tolist()
    loss.backward()
    found["twice"] = genesis.allclose(up.weight.grad, 2 * genesis.tensor(once))
    model.set_reshard_after_backward(True)
    found["same"] = model(genesis.ones(2, 6)).tolist() == before
    for wrong in (lambda: fully_shard(model), lambda: fully_shard(nn.Linear(2, 2), reshard_after_forward=3)):
        try:
            wrong()
        except ValueError as error:
            found.setdefault("errors", []).append(str(error).split("\n")[0])
    return found


def test_what_surrounds_a_forward(two: Ranks) -> None:
    for rank, found in enumerate(two(odd_ways)):
        assert found["class"] == ("FSDPNet", True, True)
        assert found["after an error"] == found["again"] == (17 - rank, 16)
        assert found["full"] == (True, (33, 16))
        assert found["by hand"] and found["twice"] and found["same"]
        assert "sharded already" in found["errors"][0] and "no factor of the 2 ranks" in found["errors"][1]


def by_one(rank: int, size: int, function: Any) -> Any:
    """What one process does where the ranks are: a GPU's numbers are not the CPU's to the last bit."""
    return function(0, 1)


def filled(rank: int, size: int) -> dict[str, Any]:
    """A model that is initialised anew, after it was sharded where there are several ranks."""
    model = network()
    model.first, model.last = nn.Embedding(5, 2, padding_idx=0), nn.Embedding(5, 2, padding_idx=4)
    if size > 1:
        sharded(model)
    genesis.manual_seed(11)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    nn.init.xavier_normal_(model.head.weight)
    return {name: p.tolist() for name, p in model.named_parameters()}


def test_parts_are_initialised_as_their_part_of_the_whole(two: Ranks) -> None:
    first, second = two(filled)
    assert {name: first[name] + second[name] for name in first} == two(by_one, filled)[0]


def drawn(rank: int, size: int) -> dict[str, Any]:
    """Draws in place, by a parameter and by its `data`, of parts where there are several ranks."""
    model: Any = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3))
    if size > 1:
        fully_shard(model)
    genesis.manual_seed(4)
    found = {}
    weight, bias = model[0].weight, model[1].bias
    with genesis.no_grad():
        for name, args in {"normal_": (1.0, 2.0), "uniform_": (-1, 1), "bernoulli_": (0.3,), "random_": (0, 9),
                           "exponential_": (2.0,), "geometric_": (0.2,), "log_normal_": (), "cauchy_": ()}.items():
            getattr(weight, name)(*args)
            getattr(bias.data, name)(*args)
            found[name] = [weight.tolist(), bias.tolist()]
        for name, view in {"columns": weight[:, 1:], "every other": weight.data[:, ::2], "turned": weight.t(),
                           "one column": weight.select(1, 2), "row by row": weight.view(-1, 1, 3)}.items():
            found[name] = [(view.normal_(), weight.tolist())[1], bias.tolist()]
        found["flat"] = [(weight.view(-1).uniform_(), weight.tolist())[1], bias.tolist()]
        for init in (nn.init.xavier_uniform_, nn.init.kaiming_normal_, nn.init.orthogonal_):
            init(weight.data)
            init(weight[:, :2])
            found[init.__name__] = [weight.tolist(), bias.tolist()]
    said = ""
    try:
        weight.data[:1].normal_()
    except RuntimeError as error:
        said = str(error)
    return {"drawn": found, "said": said}


def test_draws_in_place_are_those_of_the_whole(two: Ranks) -> None:
    first, second = two(drawn)
    alone = two(by_one, drawn)[0]["drawn"]
    assert {name: [a + b for a, b in zip(values, second["drawn"][name], strict=True)]
            for name, values in first["drawn"].items()} == alone
    for part in ("normal_: this view shows a slice of what ranks share out of a parameter of shape [5, 3]",
                 "of shape (1, 3)", "test_fully_sharded.py", "or slices of its other dimensions"):
        assert part in first["said"]


def made_empty(rank: int, size: int) -> dict[str, Any]:
    """A model that never had values, gets memory for its parts, and then values, and learns."""
    with genesis.device("meta" if size > 1 else device_type()):
        model = Net()
    if size > 1:
        sharded(model)
        assert all(p.is_meta for p in model.parameters())
        model.to_empty(device=device_type())
    genesis.manual_seed(11)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    with genesis.no_grad():
        model.head.weight.data.normal_()  # over the new memory
    found = {name: p.tolist() for name, p in model.named_parameters()}
    optimizer = genesis.optim.AdamW(model.parameters(), lr=3e-3)
    losses = [over_all(one_step(model, optimizer, *rank_batch(i, rank, size)), size) for i in range(3)]
    return {"values": found, "losses": losses}


def test_a_model_on_meta_is_sharded_before_it_has_memory(two: Ranks, ranks: Ranks) -> None:
    alone = two(by_one, made_empty)[0]
    results = ranks(made_empty)
    for name, values in alone["values"].items():
        assert [row for found in results for row in found["values"][name]] == values, name
    assert results[0]["losses"] == pytest.approx(alone["losses"], rel=REASSOCIATED)


def refused_parts(rank: int, size: int) -> list[str]:
    model: Any = fully_shard(nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)))
    said = []
    for make in (genesis.optim.Muon, genesis.optim.LBFGS):
        try:
            make(model.parameters())
        except ValueError as error:
            said.append(str(error))
    genesis.optim.Muon(nn.parallel.DistributedDataParallel(nn.Linear(4, 4, bias=False)).parameters())
    return said


def test_an_optimizer_whose_steps_depend_on_whole_parameters_refuses_parts(two: Ranks) -> None:
    for muon, lbfgs in two(refused_parts):
        for name, said in (("Muon", muon), ("LBFGS", lbfgs)):
            assert said.startswith(f"{name}: a step depends on all of a parameter, and this is a rank's part of one of "
                                   "shape [4, 4]")
            assert "genesis.float32 of shape (2, 4) on " in said, "the part is not described"
            assert "test_fully_sharded.py:" in said and "make(model.parameters())" in said, "the line is not told"
            assert f"DistributedDataParallel, with which {name} has whole parameters" in said


def listed(rank: int, size: int) -> dict[str, Any]:
    """A list of modules, each of which is sharded; and what has no forward of its own."""
    genesis.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2)).to(device_type())
    x = genesis.ones(1, 3)
    expected = model(x).tolist()
    same = fully_shard([model[0], model[1]]) == [model[0], model[1]]
    fully_shard(model)
    try:
        fully_shard(nn.ModuleList([nn.Linear(2, 2)]))
        refused = ""
    except ValueError as error:
        refused = str(error).splitlines()[0]
    return {"same": same, "out": model(x).tolist() == expected, "refused": refused,
            "names": [type(x).__name__ for x in model.modules()]}


def test_each_module_of_a_list_is_sharded_and_a_container_is_refused(two: Ranks) -> None:
    """Nobody calls a ModuleList: its modules would have computed with parts of their parameters."""
    for found in two(listed):
        assert found["same"] and found["out"]
        assert found["names"] == ["FSDPSequential", "FSDPLinear", "FSDPLinear", "Linear"]
        assert found["refused"] == ("fully_shard: fully_shard does not support containers that do not implement "
                                    "forward: ModuleList")
