"""fully_shard along one dimension of a mesh and parallelize_module along the other: what one process learns."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import nn
from genesis.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from genesis.distributed.fsdp import fully_shard
from genesis.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from genesis.models import AutoModelForCausalLM, config_for
from tests.distributed.ranks import Ranks, device_type

BOUND = 2e-5
"""Relative, of losses: sums of up to 100 float32 products in another order, and of as many gradients, six times."""

FIELDS: dict[str, dict[str, Any]] = {
    "llama": {"vocab_size": 49, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
              "tie_word_embeddings": True},
    "gpt2": {"vocab_size": 49, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "resid_pdrop": 0.2,
             "embd_pdrop": 0.2, "attn_pdrop": 0.2},
}


def whole(family: str) -> Any:
    genesis.manual_seed(5)
    return AutoModelForCausalLM.from_config(config_for(family, **FIELDS[family], initializer_range=0.1))


def shared(model: Any, mesh: Any, over: Any = "fsdp") -> Any:
    parallelize_module(model, mesh["tp"], model.tp_plan(mesh["tp"].size()))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh[over])
    return fully_shard(model, mesh=mesh[over])


def trained(rank: int, size: int, family: str, compiled: bool, steps: int) -> dict[str, Any]:
    """Losses of steps of AdamW with clipping over 4 rows, the gradient's norm, and the weights at the end."""
    model, place, count = whole(family), 0, 1
    if size == 8:
        mesh = dist.init_device_mesh(device_type(), (2, 2, 2), mesh_dim_names=("dp", "fsdp", "tp"))
        shared(model, mesh, ("dp", "fsdp"))
        place, count = 2 * mesh["dp"].get_local_rank() + mesh["fsdp"].get_local_rank(), 4
    elif size > 1:
        mesh = dist.init_device_mesh(device_type(), (2, size // 2), mesh_dim_names=("fsdp", "tp"))
        shared(model, mesh)
        place, count = mesh["fsdp"].get_local_rank(), 2
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-2)

    def step(ids: Any) -> tuple[Any, Any]:
        optimizer.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach(), norm

    run = genesis.compile(step) if compiled else step
    generator = genesis.Generator().manual_seed(1)
    losses, norms = [], []
    genesis.manual_seed(9)
    for _ in range(steps):
        ids = genesis.randint(0, 49, (4, 8), generator=generator, device="cpu").to(device_type())
        loss, norm = run(ids.chunk(count)[place])
        if size > 1:
            loss = loss.clone()
            for name in ("dp", "fsdp")[size < 8:]:
                dist.all_reduce(loss, dist.ReduceOp.AVG, mesh[name].get_group())
        losses.append(loss.item())
        norms.append(norm.item())
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return {"losses": losses, "norms": norms, "weights": {name: x.flatten().tolist() for name, x in state.items()},
            "held": sum(p.numel() for p in model.parameters())}


@pytest.mark.parametrize("family, compiled", [("llama", False), pytest.param("llama", True, marks=pytest.mark.sweep),
                                              ("gpt2", False)])
def test_losses_and_weights_are_those_of_one_process(four: Ranks, family: str, compiled: bool) -> None:
    results, alone = four(trained, family, compiled, 6), trained(0, 1, family, compiled, 6)
    for found in results:
        assert found["losses"] == results[0]["losses"] and found["norms"] == results[0]["norms"]
        assert found["losses"] == pytest.approx(alone["losses"], rel=BOUND)
        assert found["norms"] == pytest.approx(alone["norms"], rel=10 * BOUND)
        assert found["held"] < alone["held"] / 3, "parts of a fourth, and norms that two have"
    for name, values in alone["weights"].items():
        # AdamW divides by the root of the square: where a gradient is rounding alone, a step of 1e-2 has any sign
        if name.endswith("k_proj.bias"):  # of which all gradients are: a softmax leaves out what all keys have
            continue
        wrong = sum(abs(a - b) > 1e-3 for a, b in zip(results[0]["weights"][name], values, strict=True))
        assert wrong <= len(values) / 20, name


@pytest.mark.sweep
def test_replicas_of_shards_of_shared_layers_on_eight_ranks(eight: Ranks) -> None:
    results, alone = eight(trained, "llama", False, 4), trained(0, 1, "llama", False, 4)
    for found in results:
        assert found["losses"] == results[0]["losses"] and found["norms"] == results[0]["norms"]
        assert found["losses"] == pytest.approx(alone["losses"], rel=BOUND)
        assert found["held"] < alone["held"] / 3


def odd(rank: int, size: int) -> dict[str, Any]:
    """Both cut dimension 0, of 10 rows: by 2, then 5 by 2."""
    mesh = dist.init_device_mesh(device_type(), (2, 2), mesh_dim_names=("fsdp", "tp"))
    genesis.manual_seed(1)
    model: Any = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 3))
    expected = model[0].weight.tolist()
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["fsdp"])
    (first, last), _ = model[0].weight.sharding.region()
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    said = ""
    other: Any = nn.Linear(4, 4)
    parallelize_module(other, mesh["tp"], ColwiseParallel())
    try:
        fully_shard(other)
    except ValueError as error:
        said = str(error)
    return {"region": (first, last), "own": model[0].weight.tolist() == expected[first:last],
            "whole": state["0.weight"].tolist() == expected, "said": said}


def test_two_cuts_of_one_dimension(four: Ranks) -> None:
    found = four(odd)
    assert [each["region"] for each in found] == [(0, 3), (5, 8), (3, 5), (8, 10)]
    assert all(each["own"] and each["whole"] for each in found)
    assert all("not slices of one mesh" in each["said"] for each in found)
