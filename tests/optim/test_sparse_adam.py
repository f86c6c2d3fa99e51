"""SparseAdam beside torch's: rows that a step looks up are Adam's, and others keep their values and moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

TABLE = np.random.default_rng(0).standard_normal((7, 3)).astype("float32")
ROWS = np.random.default_rng(1).integers(0, 7, (8, 4))


def trained(T: Any, compiled: bool = False, **options: Any) -> list[Any]:
    """The table after steps on four rows each, the second parameter's last rows never being seen, and the state."""
    tables = [T.nn.Embedding.from_pretrained(T.tensor(TABLE), freeze=False, sparse=True) for _ in range(2)]
    optimizer = T.optim.SparseAdam([x.weight for x in tables], lr=0.1, **options)

    def step(rows: Any) -> Any:
        optimizer.zero_grad()
        loss = (tables[0](rows) * tables[1](rows // 2)).sum(-1).sigmoid().log().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()
    if compiled:
        step = T.compile(step)
    losses = [step(T.tensor(rows)) for rows in ROWS]
    states = [optimizer.state[x.weight] for x in tables]
    return [*losses, *[x.weight.detach() for x in tables], *[s[name] for s in states for name in
                                                             ("exp_avg", "exp_avg_sq")], *[s["step"] for s in states]]


@pytest.mark.parametrize("compiled", [False, True], ids=["undecorated", "compiled"])
@pytest.mark.parametrize("options", [{}, {"betas": (0.5, 0.9), "eps": 1e-3}, {"maximize": True}], ids=str)
def test_eight_steps_of_few_rows_each(options: dict[str, Any], compiled: bool) -> None:
    for ours, theirs in zip(trained(genesis, compiled, **options), trained(torch, **options), strict=True):
        if isinstance(theirs, int):
            assert ours == theirs == 8
        else:
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6)


def test_a_state_is_saved_and_loaded() -> None:
    weight = genesis.tensor(TABLE, requires_grad=True)
    first = genesis.optim.SparseAdam([weight], lr=0.1)
    weight[2].sum().backward()
    first.step()
    second = genesis.optim.SparseAdam([weight], lr=0.2)
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["lr"] == 0.1 and second.state[weight]["step"] == 1
    assert second.state[weight]["exp_avg"].tolist() == first.state[weight]["exp_avg"].tolist()
    assert second.state[weight]["exp_avg"].any(1).tolist() == [row == 2 for row in range(7)]


@pytest.mark.parametrize("T", [genesis, torch], ids=["genesis", "torch"])
@pytest.mark.parametrize("options", [{"lr": 0.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}], ids=str)
def test_what_is_refused(T: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Invalid"):
        T.optim.SparseAdam([T.zeros(2, 2, requires_grad=True)], **options)
