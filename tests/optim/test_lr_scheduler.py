"""Learning rate schedules are torch's, epoch by epoch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis
from genesis import optim

CASES = {
    "lambda": ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    "a lambda for each group": ("LambdaLR", {"lr_lambda": [lambda epoch: 0.9**epoch, lambda epoch: 1 / (epoch + 1)]}),
    "step": ("StepLR", {"step_size": 3, "gamma": 0.5}),
    "linear": ("LinearLR", {"start_factor": 0.1, "total_iters": 4}),
    "linear down": ("LinearLR", {"start_factor": 1.0, "end_factor": 0.2, "total_iters": 6}),
    "cosine": ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.01}),
    "cosine past its end": ("CosineAnnealingLR", {"T_max": 4}),
}


def groups(framework: Any) -> list[dict[str, Any]]:
    return [{"params": [framework.ones(1, requires_grad=True)], "lr": lr} for lr in (0.5, 0.1)]


@pytest.mark.parametrize("name", CASES)
def test_rates_are_torchs(name: str) -> None:
    kind, options = CASES[name]
    optimizer, peer = optim.SGD(groups(genesis)), torch.optim.SGD(groups(torch))
    ours, theirs = (getattr(module.lr_scheduler, kind)(o, **options)
                    for module, o in ((optim, optimizer), (torch.optim, peer)))
    for _ in range(9):
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9)
        assert [group["lr"] for group in optimizer.param_groups] == ours.get_last_lr()
        peer.step()
        ours.step()
        theirs.step()


def test_a_schedule_goes_on_where_it_was_saved() -> None:
    first = optim.lr_scheduler.StepLR(optim.SGD(groups(genesis)), step_size=2)
    for _ in range(3):
        first.step()
    second = optim.lr_scheduler.StepLR(optim.SGD(groups(genesis)), step_size=2)
    second.load_state_dict(first.state_dict())
    first.step()
    second.step()
    assert first.get_last_lr() == second.get_last_lr() == pytest.approx([0.005, 0.001])


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected 2 lr_lambdas"):
        optim.lr_scheduler.LambdaLR(optim.SGD(groups(genesis)), [lambda epoch: 1.0])
    with pytest.raises(KeyError, match="initial_lr"):
        optim.lr_scheduler.StepLR(optim.SGD(groups(genesis)), 2, last_epoch=3)
