"""Leaf tensors that a step writes to: what stands for their contents is used again, where nobody else holds it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import genesis
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.utils.checkpoint import checkpoint


def model() -> tuple[Any, Any]:
    w = genesis.tensor([1.0, 2.0], requires_grad=True)
    return w, genesis.optim.SGD([w], lr=0.5, momentum=0.5)


def step(w: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    (w * w).sum().backward()
    optimizer.step()


def test_what_a_step_wrote_is_the_leaf_of_its_memory_and_the_node_that_watched_the_old_one_watches_it() -> None:
    w, optimizer = model()
    step(w, optimizer)
    before, written = id(w.storage.watching), w.storage._node
    assert written.op is leaves.data and not written.inputs and written["type"] is w.spec
    assert written.buffer is w.storage.cell and w.storage.settled
    (w * 3).sum().backward()
    now = w.storage.watching
    assert id(now) == before and now.inputs[0] is written
    assert now.number > written.number, "a node is younger than what it is made of"


def test_a_graph_that_is_held_keeps_what_it_read() -> None:
    """A backward behind the step asks for the content before, and the next forward for the one after."""
    w, optimizer = model()
    step(w, optimizer)
    held = (w * w).sum()
    node = w.storage.watching
    with genesis.no_grad():
        optimizer.step()  # with the last gradients
    later = (w * 2).sum()
    assert w.storage.watching is not node and node.inputs[0].buffer is not w.storage.cell
    later.backward()
    assert w.grad.tolist() == [4.0, 6.0]
    del held


@pytest.mark.parametrize("with_hook", [False, True])
def test_two_leaves_over_one_memory_have_nodes_of_their_own(with_hook: bool) -> None:
    w, optimizer = model()
    seen: list[Any] = []
    step(w, optimizer)
    twin = w.detach().requires_grad_()
    if with_hook:
        twin.register_hook(lambda g: seen.append(g.tolist()))
    for _ in range(2):
        w.grad = twin.grad = None
        (w * twin * 3).sum().backward()
        assert w.grad.tolist() == [3 * x for x in twin.tolist()] == twin.grad.tolist()
        optimizer.step()
    assert len(seen) == 2 * with_hook


def test_the_same_numbers_as_without_steps_between() -> None:
    """Steps whose parameters are read by views, with and without gradients, under checkpoint and compiled beside."""
    def run(mixed: bool) -> list[float]:
        genesis.manual_seed(0)
        nn: Any = genesis.nn
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = genesis.optim.AdamW(net.parameters(), lr=0.1)
        x = genesis.linspace(-1, 1, 15).view(5, 3)
        compiled = genesis.compile(lambda: (net(x) ** 2).mean())
        losses = []
        for turn in range(12):
            optimizer.zero_grad()
            if mixed and turn % 4 == 1:
                loss = compiled()
            elif mixed and turn % 4 == 2:
                loss = (checkpoint(net, x, use_reentrant=False) ** 2).mean()
            else:
                loss = (net(x) ** 2).mean()
            if mixed and turn % 3 == 0:
                net[0].weight[0].sum().item()
                net[0].weight.t().detach().numpy()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses
    assert run(True) == pytest.approx(run(False), rel=1e-5)


def test_nothing_of_a_history_is_kept() -> None:
    """A leaf that was read before it was computed forgets how that was."""
    x = genesis.ones(3)
    made: Any = x * 2 + 1
    node = weakref.ref(made.storage.node.inputs[0])
    w = made.detach().requires_grad_()
    (w * 3).sum().backward()
    genesis.eval(w, w.grad)
    del made
    gc.collect()
    assert node() is None
    assert w.grad.tolist() == [3.0] * 3


def test_results_of_an_optimizer_are_in_no_table() -> None:
    """Recorded again, the op's results are new nodes, not what became the leaf of a memory."""
    w, optimizer = model()
    (w * w).sum().backward()
    optimizer.step()
    leaf = w.storage._node
    assert isinstance(leaf, Node) and leaf.shown
    again = genesis.tensor([1.0, 2.0], requires_grad=True)
    other = genesis.optim.SGD([again], lr=0.5, momentum=0.5)
    step(again, other)
    assert again.storage._node is not leaf and again.tolist() == w.tolist() == [0.0, 0.0]


def test_a_replayed_forward_reads_a_parameter_through_the_node_of_the_step_before() -> None:
    (w, optimizer), (plain, other) = model(), model()
    forward = genesis.compile(lambda: (w * w).sum())
    for _ in range(4):
        optimizer.zero_grad()
        forward().backward()
        optimizer.step()
        step(plain, other)
    assert forward.hits == 3
    before, written = id(w.storage.watching), w.storage._node
    optimizer.zero_grad()
    loss = forward()
    assert id(w.storage.watching) == before and w.storage.watching.inputs[0] is written
    loss.backward()
    assert w.tolist() == plain.tolist() and w.grad.tolist() == [2 * x for x in plain.tolist()]


def test_a_replayed_forward_that_is_held_keeps_what_it_read() -> None:
    w, optimizer = model()
    forward = genesis.compile(lambda: (w * 3).sum())
    for _ in range(2):
        step(w, optimizer)
        forward().backward()
    held = forward()
    node = w.storage.watching
    optimizer.step()
    later = forward()
    assert forward.hits == 3 and w.storage.watching is not node
    optimizer.zero_grad()
    (held + later).backward()
    assert w.grad.tolist() == [6.0, 6.0]
