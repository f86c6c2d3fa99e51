"""A value that is read before its backward: what the backward needs is kept, and only when it is used."""

from __future__ import annotations

import gc
from typing import Any

import genesis
from genesis import engine, nn


def ops_of(plan: Any) -> list[str]:
    return [node.op.name for group in plan.schedule.groups for node in group.nodes]


def make() -> tuple[Any, Any, Any, Any]:
    genesis.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 11), nn.GELU(), nn.Linear(11, 3))
    return (model, genesis.optim.SGD(model.parameters(), lr=0.1), genesis.randn(5, 6), genesis.tensor([0, 1, 2, 1, 0]))


def test_a_backward_after_reading_the_loss_computes_no_forward() -> None:
    model, optimizer, x, target = make()
    plans: list[Any] = []
    with engine.observe(plans.append):
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(x), target)
            loss.item()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    backward = next(plan for plan in plans if "sgd" in ops_of(plan))
    assert "linear" not in ops_of(backward) and "gelu" not in ops_of(backward)
    assert "gelu_backward" in ops_of(backward)


def test_the_losses_are_those_of_a_loop_that_reads_later() -> None:
    losses = []
    for early in (True, False):
        model, optimizer, x, target = make()
        found = []
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(x), target)
            if early:
                found.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not early:
                found.append(loss.item())
        losses.append(found)
    assert losses[0] == losses[1]


def test_a_training_loop_goes_on_saving() -> None:
    model, optimizer, x, target = make()
    returned = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(x), target)
        loss.item()
        returned.append(len(engine.last_plan().plan.outputs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del loss
    assert min(returned) > 1, "besides the loss"


def test_an_evaluation_loop_stops_saving() -> None:
    model, _, x, target = make()
    plans: list[Any] = []
    with engine.observe(plans.append):
        for _ in range(4):
            nn.functional.cross_entropy(model(x[:4]), target[:4]).item()
    returned = [len(plan.graph.outputs) for plan in plans]
    assert returned[-1] == 1 < returned[0]


def test_after_evaluation_a_training_step_still_gets_its_gradients() -> None:
    model, _, x, target = make()
    for _ in range(3):
        nn.functional.cross_entropy(model(x[:3]), target[:3]).item()
    loss = nn.functional.cross_entropy(model(x[:3]), target[:3])
    loss.item()
    loss.backward()
    late = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    nn.functional.cross_entropy(model(x[:3]), target[:3]).backward()
    for kept, p in zip(late, model.parameters(), strict=True):
        assert genesis.equal(kept, p.grad)


def test_saved_values_die_with_the_loss() -> None:
    model, _, x, target = make()
    loss = nn.functional.cross_entropy(model(x[:2]), target[:2])
    loss.item()
    usage = loss.storage.cell.usage
    assert usage is not None and any(cell() is not None for cell in usage._saved)
    loss.backward()
    for p in model.parameters():
        p.grad.tolist()
    gc.collect()
    assert all(cell() is None for cell in usage._saved)
