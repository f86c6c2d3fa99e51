"""Results that are written where their concatenation lies: whole programs, in memory that was planned for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.nn import functional as F
from tests.gpu.compare import check, check_gradients, numbers
from tests.sweeping import by_default


def joined() -> int:
    """Concatenations of the last plan that no kernel copies."""
    plan: Any = engine.last_plan()
    return sum(group.kind == "joined" for group in plan.schedule.groups)


def _attention(x: Any, w: Any, b: Any, split: str) -> Any:
    batch, length, size = x.shape
    packed = F.linear(x, w, b)
    if split == "chunk":
        q, k, v = (part.reshape(batch, length, 2, size // 2).transpose(1, 2) for part in packed.chunk(3, -1))
    elif split == "split":
        q, k, v = (part.view(batch, length, 2, size // 2).transpose(1, 2) for part in packed.split(size, 2))
    else:
        q, k, v = packed.view(batch, length, 3, 2, size // 2).permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(batch, length, size)


@pytest.mark.parametrize("split", ["chunk", "split", "view"])
def test_the_gradient_of_packed_projections(cuda: Any, split: str) -> None:
    """However queries, keys and values are taken apart, their gradients are put together by nobody."""
    shapes = numbers(2, 12, 32), numbers(96, 32, seed=1), numbers(96, seed=2)
    check_gradients(lambda x, w, b: _attention(x, w, b, split), *shapes, tolerance=1e-4)
    assert joined() == 1


@by_default("gpu-*", "host-view-64-1-True")
@pytest.mark.parametrize(("split", "head", "shared", "causal"), [
    ("view", 64, 1, True), ("split", 80, 17, False)])
def test_the_gradient_of_packed_heads_that_are_streamed(cuda: Any, split: str, head: int, shared: int,
                                                        causal: bool) -> None:
    """The copy engine writes each gradient into its columns: rows are as far apart as the packed ones."""
    heads, length = 34, 130
    keys = heads // shared

    def program(x: Any, w: Any) -> Any:
        low = F.linear(x.to(genesis.bfloat16), w.to(genesis.bfloat16))
        if split == "view":
            q, k, v = low.view(1, length, 3, heads, head).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            parts = low.split([heads * head, *[keys * head] * 2], -1)
            q, k, v = (part.unflatten(-1, (-1, head)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared > 1)
        return y.transpose(1, 2).reshape(1, length, -1).to(genesis.float32)
    operands = numbers(1, length, 16), 0.3 * numbers((heads + 2 * keys) * head, 16, seed=1)
    check_gradients(program, *operands, tolerance=4e-2)
    plan: Any = engine.last_plan()
    labels = {step.label for step in plan.plan.steps}
    assert joined() == 1 and "streamed_attention_dq" in labels
    assert shared > 1 or "streamed_attention_dkv" in labels


def test_at_other_sizes(cuda: Any) -> None:
    """A plan that is filled in for another batch and another length has its slices where these are then."""
    for batch, length in ((2, 12), (3, 20), (1, 28)):
        shapes = numbers(batch, length, 32, seed=length), numbers(96, 32, seed=1), numbers(96, seed=2)
        check_gradients(lambda x, w, b: _attention(x, w, b, "view"), *shapes, tolerance=1e-4)
        assert joined() == 1


PROGRAMS = {
    "returned": lambda x, w, v: genesis.cat([x @ w, x @ v], 1),
    "stacked": lambda x, w, v: genesis.stack([x @ w, x @ v]),
    "read by a product": lambda x, w, v: genesis.cat([x @ w, x @ v], 1) @ genesis.cat([w, v], 1).t(),
    "returned and read": lambda x, w, v: (y := genesis.cat([x @ w, (x @ v).relu()], 1), y.sum(0), y * 2),
    "a part of it": lambda x, w, v: (y := genesis.cat([x @ w, x @ v], 1), y[:, 3:20].clone()),
    "of rows": lambda x, w, v: genesis.cat([(x @ w).softmax(-1), x @ v, F.layer_norm(x, (16,))], 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(cuda: Any, name: str) -> None:
    operands = numbers(12, 16), numbers(16, 16, seed=1), numbers(16, 16, seed=2)
    check(PROGRAMS[name], *operands, tolerance=1e-5)
    assert joined() == 1
    check_gradients(PROGRAMS[name], *operands, tolerance=1e-4)


def test_what_is_written_over_afterwards(cuda: Any) -> None:
    """The whole is written in place, parts are read before and after, its memory goes to other values."""
    def program(x: Any, w: Any, v: Any) -> list[Any]:
        one, other = x @ w, x @ v
        whole = genesis.cat([one, other], 1)
        first = whole.sum()
        whole.mul_(2)
        whole[:, :16].add_(one)
        again = genesis.cat([whole @ genesis.cat([w, v], 0), other.tanh() @ w], 0)
        again[3:5] = 0
        return [whole, first, again, one]
    check(program, numbers(12, 16), numbers(16, 16, seed=1), numbers(16, 16, seed=2), tolerance=1e-5)


def test_a_whole_that_overwrites_memory_it_is_made_from(cuda: Any) -> None:
    """`x[:] = cat(x @ w, x @ v)` reads x in both products: what is written first must not be seen by the second."""
    def program(x: Any, w: Any, v: Any) -> list[Any]:
        state = x.clone()
        genesis.eval(state)
        state.copy_(genesis.cat([state @ w, state @ v], 1))
        state[:] = genesis.cat([state @ w, state @ v], 1)
        return [state]
    check(program, numbers(12, 32), numbers(32, 16, seed=1), numbers(32, 16, seed=2), tolerance=1e-5)


def test_many_layers_share_memory(cuda: Any) -> None:
    """Wholes of layers take each other's memory, in a step that is run again and again."""
    genesis.manual_seed(0)

    def run(device: str) -> list[float]:
        genesis.manual_seed(0)
        layers = [genesis.nn.Linear(16, 16) for _ in range(6)]
        model = genesis.nn.ModuleList(layers).to(device)
        optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
        x = genesis.tensor(numbers(8, 16), device=device)
        losses = []
        for _ in range(3):
            y = x
            for one, other in zip(layers[::2], layers[1::2], strict=True):
                y = genesis.cat([one(y), other(y).relu()], 0).tanh()[::2] + y
            loss = (y * y).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    np.testing.assert_allclose(run("cuda"), run("cpu"), rtol=1e-5)


def test_a_part_that_another_view_of_it_is_returned_as(cuda: Any) -> None:
    """A product of three dimensions is known as its reshape where that is returned: it is no slice then."""
    def program(x: Any, w: Any, v: Any) -> Any:
        part = x @ v
        return part, genesis.cat([x @ w, part], -1)
    check(program, numbers(2, 6, 16), numbers(16, 16, seed=1), numbers(16, 8, seed=2), tolerance=1e-5)
    assert joined() == 0


def test_attention_of_one_token(cuda: Any) -> None:
    """The gradients of one query, key and value lie in the packed gradient, each in one row."""
    shapes = numbers(3, 1, 32), numbers(96, 32, seed=1), numbers(96, seed=2)
    check_gradients(lambda x, w, b: _attention(x, w, b, "chunk"), *shapes, tolerance=1e-4)
    assert joined() == 1
