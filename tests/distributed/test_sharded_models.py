"""Sharded models as they are used: weights that two sharded modules share, and texts that a sharded model writes."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import nn
from genesis.distributed.fsdp import fully_shard
from genesis.models import AutoModelForCausalLM, config_for
from tests.distributed.ranks import Ranks, device_type
from tests.distributed.training import REASSOCIATED, over_all


class Tied(nn.Module):
    """Eleven tokens: the table is read at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.inner(self.table(ids)).tanh())


def trains_tied(rank: int, size: int, how: str) -> dict[str, Any]:
    """Losses over all rows of five steps, and how many parameters there are."""
    genesis.manual_seed(2)
    model = Tied()
    if size > 1:
        for module in {"both": (model.table, model.head), "one": (model.table,)}[how]:
            fully_shard(module)
        fully_shard(model)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for step in range(5):
        rows = genesis.arange(32, device=device_type()).reshape(8, 4) * (step + 3) % 11
        ids = rows[rank * 8 // size:(rank + 1) * 8 // size]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), (ids.flatten() + 1) % 11)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(over_all(loss.detach().clone(), size))
    return {"losses": losses, "count": len(list(model.parameters())), "same": model.head.weight is model.table.weight}


def test_modules_that_share_a_weight_are_sharded_one_by_one(two: Ranks) -> None:
    alone = trains_tied(0, 1, "both")
    for how in ("both", "one"):
        for found in two(trains_tied, how):
            assert found["losses"] == pytest.approx(alone["losses"], rel=REASSOCIATED)
            assert found["count"] == alone["count"] == 3 and found["same"]


def shares_over_others(rank: int, size: int) -> str:
    model = Tied()
    fully_shard(model.table)
    with pytest.raises(ValueError, match="shared") as error:
        fully_shard(model.head, mesh=dist.init_device_mesh(device_type(), (1, 2)))
    return str(error.value)


def test_a_shared_weight_is_sharded_over_the_same_ranks_everywhere(two: Ranks) -> None:
    for told in two(shares_over_others):
        assert "the smallest module that has both" in told


def norms(rank: int, size: int) -> list[float]:
    """Norms of gradients and of parameters, which are handed over by themselves."""
    genesis.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    if size > 1:
        fully_shard(model[0])
    x = genesis.arange(48.0, device=device_type()).reshape(8, 6).sin()
    model(x).square().mean().backward()
    parameters = list(model.parameters())
    gradients = [p.grad for p in parameters]
    total = nn.utils.get_total_norm(gradients, 3.0)
    nn.utils.clip_grads_with_norm_(parameters, 0.01, total)
    return [total.item(), *(nn.utils.get_total_norm(gradients, p).item() for p in (1.0, 2.0, float("inf"))),
            nn.utils.get_total_norm(parameters).item()]


def test_a_norm_of_parts_is_that_of_the_whole(two: Ranks) -> None:
    alone = norms(0, 1)
    for found in two(norms):
        assert found == pytest.approx(alone, rel=1e-5)


def writes(rank: int, size: int) -> dict[str, Any]:
    """What a model writes before and after a step, sharded or not; and that it is shown in parts again."""
    genesis.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_for(
        "llama", vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2))
    if size > 1:
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model.model)
        fully_shard(model)
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.5)
    ids = genesis.tensor([[1, 2, 3], [5, 4, 3]], device=device_type())
    found: dict[str, Any] = {"before": model.generate(ids, max_new_tokens=6, temperature=0).tolist()}
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    found["after"] = model.generate(ids, max_new_tokens=6, temperature=0).tolist()
    return found | {"rows": model.lm_head.weight.shape[0]}


def test_a_sharded_model_writes_what_the_whole_one_writes(two: Ranks) -> None:
    alone = writes(0, 1)
    assert alone["before"] != alone["after"]
    first, second = two(writes)
    for found, rows in ((first, 9), (second, 8)):
        assert found == {**alone, "rows": rows}
