"""State dicts of sharded modules: of parts, and of the whole, which fits any number of ranks."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from tests.distributed.ranks import Ranks
from tests.distributed.test_fully_sharded import network, sharded
from tests.distributed.training import REASSOCIATED, one_step, rank_batch

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def made(size: int) -> tuple[Any, Any]:
    model = network()
    if size > 1:
        sharded(model)
    return model, genesis.optim.AdamW(model.parameters(), lr=3e-3)


def stepped(model: Any, optimizer: Any, rank: int, size: int, first: int) -> None:
    for i in range(first, first + 3):
        one_step(model, optimizer, *rank_batch(i, rank, size))


def plain(state: Any) -> Any:
    """A state dict without tensors, as processes send it."""
    if isinstance(state, genesis.Tensor):
        return ("tensor", state.tolist())
    return {key: plain(value) for key, value in state.items()} if isinstance(state, dict) else state


def tensors(state: Any) -> Any:
    """The inverse of `plain`."""
    if isinstance(state, tuple) and state[:1] == ("tensor",):
        return genesis.tensor(state[1])
    return {key: tensors(value) for key, value in state.items()} if isinstance(state, dict) else state


def saved(rank: int, size: int) -> Any:
    model, optimizer = made(size)
    stepped(model, optimizer, rank, size, 0)
    return [plain(state) for state in get_state_dict(model, optimizer, options=WHOLE)]


def resumed(rank: int, size: int, state: Any) -> dict[str, Any]:
    genesis.manual_seed(8)
    model, optimizer = made(size)
    for p in model.parameters():
        with genesis.no_grad():
            p.fill_(7.0)
    weights, moments = map(tensors, state)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments, options=WHOLE)
    same = plain(get_model_state_dict(model, options=WHOLE))
    stepped(model, optimizer, rank, size, 3)
    return {"same": same, "after": plain(get_model_state_dict(model, options=WHOLE))}


def flat(value: Any) -> list[float]:
    return [x for part in value for x in flat(part)] if isinstance(value, (list, tuple)) else [value]


def test_a_whole_state_fits_any_number_of_ranks(four: Ranks, two: Ranks) -> None:
    state, *others = four(saved)
    assert all(other == [{}, {}] for other in others)
    on_two = two(resumed, state)[0]
    alone = resumed(0, 1, state)
    assert on_two["same"] == alone["same"] == state[0]
    for name, (_, values) in alone["after"].items():
        # weights of about 0.2, which three steps change by 0.01: as in other tests, but absolute
        assert flat(on_two["after"][name][1]) == pytest.approx(flat(values), rel=REASSOCIATED, abs=1e-5)


FROM_THE_FIRST = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def resumed_from_the_first(rank: int, size: int, state: Any) -> list[Any]:
    """As `resumed`, where the first rank alone has read the state."""
    model, optimizer = made(size)
    weights, moments = map(tensors, state if rank == 0 else [{}, {}])
    missing, unexpected = set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments,
                                         options=FROM_THE_FIRST)
    assert not missing and not unexpected
    return [plain(x) for x in get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))]


def test_the_first_rank_gives_all_their_parts_of_what_it_alone_has_read(two: Ranks) -> None:
    state, _ = two(saved)
    for found in two(resumed_from_the_first, state):
        assert found == state
    with pytest.raises(ValueError, match="full_state_dict must be True"):
        StateDictOptions(broadcast_from_rank0=True)


def parts(rank: int, size: int) -> dict[str, Any]:
    model, _ = made(size)
    before = get_model_state_dict(model)
    shapes = {name: tuple(x.shape) for name, x in before.items()}
    kept = {name: x.clone() for name, x in before.items()}
    with genesis.no_grad():
        for p in model.parameters():
            p.fill_(0.0)
    found = set_model_state_dict(model, kept)
    back = all((x == kept[name]).all().item() for name, x in model.state_dict().items())
    try:
        set_model_state_dict(model, {"embed.weight": genesis.ones(3, 3)},
                             options=StateDictOptions(full_state_dict=True, strict=False))
    except RuntimeError as error:
        wrong = str(error).split("\n")[0]
    return {"shape": shapes["blocks.0.up.weight"], "missing": list(found.missing_keys), "back": back, "wrong": wrong}


def test_a_state_of_parts_is_each_ranks_own(two: Ranks) -> None:
    for rank, found in enumerate(two(parts)):
        assert found["shape"] == (17 - rank, 16) and found["missing"] == [] and found["back"]
        assert "embed.weight is of shape [16, 6]" in found["wrong"]
