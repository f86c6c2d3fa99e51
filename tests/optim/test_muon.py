"""Muon: steps and states are torch's, whether recorded or replayed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import optim

OPTIONS: list[dict[str, Any]] = [
    {}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.3, "ns_steps": 3}]

WITHIN = 0.03
"""Of a step's length. Products are rounded to bfloat16's 8 bits, in another order than torch's, and five polynomials of
slope 3.4 at zero carry that on."""


def problem(shape: tuple[int, int]) -> tuple[Any, torch.Tensor, Any, torch.Tensor]:
    rng = np.random.default_rng(0)
    weight, target = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    return (genesis.tensor(weight, requires_grad=True), torch.tensor(weight, requires_grad=True),
            genesis.tensor(target), torch.tensor(target))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=["default", "other options"])
@pytest.mark.parametrize("shape", [(8, 5), (5, 8), (32, 64)])
def test_five_steps_are_torchs(shape: tuple[int, int], options: dict[str, Any], compiled: bool) -> None:
    """With another learning rate at each step."""
    ours, theirs, target, ttarget = problem(shape)
    begin = theirs.detach().clone()
    mine, its = optim.Muon([ours], lr=0.05, **options), torch.optim.Muon([theirs], lr=0.05, **options)

    def one_step() -> Any:
        mine.zero_grad()
        ((ours - target) ** 2).mean().backward()
        mine.step()
        return None
    run = genesis.compile(one_step) if compiled else one_step
    for i in range(5):
        mine.param_groups[0]["lr"] = its.param_groups[0]["lr"] = 0.05 / (i + 1)
        run()
        its.zero_grad()
        ((theirs - ttarget) ** 2).mean().backward()
        its.step()
    moved = (theirs - begin).norm().item()
    assert np.linalg.norm(ours.detach().numpy() - theirs.detach().numpy()) < WITHIN * moved
    # The momentum has no products in it but for the parameters that the gradients are of.
    momentum = its.state_dict()["state"][0]["momentum_buffer"].numpy()
    assert set(mine.state_dict()["state"][0]) == {"momentum_buffer"}
    assert np.allclose(mine.state_dict()["state"][0]["momentum_buffer"].numpy(), momentum,
                       atol=WITHIN * abs(momentum).max())


def test_parameters_of_float64_take_the_step_of_bfloat16() -> None:
    ours, theirs, target, ttarget = problem((6, 4))
    ours, theirs = ours.detach().double().requires_grad_(), theirs.detach().double().requires_grad_()
    mine, its = optim.Muon([ours], lr=0.05), torch.optim.Muon([theirs], lr=0.05)
    for optimizer, w, goal in ((mine, ours, target), (its, theirs, ttarget)):
        ((w - goal.double()) ** 2).mean().backward()
        optimizer.step()
    assert ours.dtype is genesis.float64
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=WITHIN * 0.05)


def test_a_state_dict_carries_over() -> None:
    ours, _, target, _ = problem((6, 4))
    other = ours.detach().clone().requires_grad_()

    def steps(parameter: Any, optimizer: Any, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            ((parameter - target) ** 2).mean().backward()
            optimizer.step()
    whole = optim.Muon([ours], lr=0.05)
    steps(ours, whole, 4)
    first = optim.Muon([other], lr=0.05)
    steps(other, first, 2)
    second = optim.Muon([other], lr=1.0)
    second.load_state_dict(first.state_dict())
    steps(other, second, 2)
    assert other.tolist() == ours.tolist()


@pytest.mark.parametrize(("options", "message"), [
    ({"lr": -1.0}, "Invalid learning rate"), ({"adjust_lr_fn": "other"}, "is not supported"),
    ({"ns_steps": 100}, "less than 100"), ({"ns_coefficients": (1.0, 2.0)}, "three numbers")])
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optim.Muon([genesis.ones(2, 2, requires_grad=True)], **options)


def test_only_matrices() -> None:
    with pytest.raises(ValueError, match=r"Muon only supports 2D parameters.*\(2,\)"):
        optim.Muon([genesis.ones(2, requires_grad=True)])


def test_cuda_plans_exist() -> None:
    """The step is compiled for a GPU, whole: each op of it has a kernel."""
    from genesis.cli.inspect import compiled_for, last_step
    ours, _, target, _ = problem((16, 32))
    optimizer = optim.Muon([ours])
    ((ours - target) ** 2).mean().backward()
    optimizer.step()
    ours.tolist()
    assert compiled_for(last_step().captured, "cuda").schedule.groups
