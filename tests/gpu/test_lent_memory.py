"""A step's gradients lend their memory to what forward keeps: the same bits in less memory."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis import engine, nn
from genesis.passes.memory import plan_memory
from genesis.passes.memory.arena import ALIGNMENT
from genesis.runtime.plan_edges import places_of
from tests.sweeping import by_default

from .compare import array, numbers

BATCHES = (5, 5, 5, 8, 6, 8)
"""Two graphs' replays, then a plan for a larger batch and one that fits into its places."""


def trained(compiled: bool) -> tuple[list[Any], set[int], set[int]]:
    """Weights and gradients after each step, as arrays; the plans' arenas; how many places in gradients' memory are
    not the gradients' own."""
    engine.reset()
    genesis.manual_seed(1)
    model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 24)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = genesis.compile(step) if compiled else step
    found, held, arenas, lent = [], [], set(), set()
    for at, batch in enumerate(BATCHES):
        loss = run(genesis.tensor(numbers(batch, 24, seed=at), device="cuda"))
        found += [array(loss), *(array(x) for p in model.parameters() for x in (p, p.grad))]
        held.append(model[2].weight.grad if at == 1 else None)  # it keeps its values over the steps that follow
        plan = next(x.plan for x in [engine.last_plan()] if x is not None)
        if plan.updates:
            arenas.add(plan.arena_bytes)
            lent.add(sum(place.where == "output" and place.type is not plan.outputs[place.index]
                         for launch in plan.steps for place in places_of(launch)))
    return [*found, *(array(x) for x in held if x is not None)], arenas, lent


@by_default("gpu-*", "host-compiled")
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "recorded"])
def test_lending_changes_no_bit_and_takes_less_memory(cuda: Any, compiled: bool,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    without, arenas, none = trained(compiled)
    monkeypatch.setattr(plan_memory, "LEAST_LENT", ALIGNMENT)
    lending, smaller, places = trained(compiled)
    assert none == {0} and min(places) > 0
    assert max(smaller) < min(arenas)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(without, lending, strict=True))
