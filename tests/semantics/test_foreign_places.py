"""What is torch's says so wherever it is put: errors name its library and, of a tensor, how it is converted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import nn

Y = torch.ones(2, 3)
CONVERTED = r"torch\.Tensor(.|\n)*genesis\.tensor\(x\)"
CASES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("a parameter", lambda x: setattr(nn.Linear(3, 2), "weight", Y), CONVERTED),
    ("register_parameter", lambda x: nn.Module().register_parameter("w", Y), CONVERTED),
    ("register_buffer", lambda x: nn.Module().register_buffer("w", Y), CONVERTED),
    ("data", lambda x: setattr(x, "data", Y), CONVERTED),
    ("grad", lambda x: setattr(x, "grad", Y), r"grad of type torch\.Tensor"),
    ("backward", lambda x: x.backward(Y), CONVERTED),
    ("autograd.backward", lambda x: genesis.autograd.backward(x, np.ones((2, 3))), r"numpy\.ndarray(.|\n)*from_numpy"),
    ("grad of it", lambda x: genesis.autograd.grad(Y, x), CONVERTED),
    ("grad by it", lambda x: genesis.autograd.grad(x.sum(), Y), CONVERTED),
    ("a module", lambda x: nn.Sequential(torch.nn.Linear(2, 3)), r"torch\.Linear is not a Module subclass of genesis"),
    ("a list of modules", lambda x: nn.ModuleList([torch.nn.ReLU()]), r"torch\.ReLU is not a Module"),
]


@pytest.mark.parametrize(("place", "call", "said"), CASES, ids=[place for place, _, _ in CASES])
def test_what_is_torchs(place: str, call: Callable, said: str) -> None:
    x = genesis.ones(2, 3, requires_grad=True)
    before = x.tolist()
    with pytest.raises(TypeError, match=said):
        call(x)
    assert x.tolist() == before and x.grad is None


def test_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^save: a torch\.Tensor at 'w' cannot be saved"):
        genesis.save({"w": Y}, tmp_path / "w")
    assert not (tmp_path / "w").exists()


class Own(nn.Module):
    """A user's module."""

    def forward(self, input: Any, mask: Any = None) -> Any:
        """The input, or an error of its own."""
        return input if mask is None else input.add(mask, aplha=2)


@pytest.mark.parametrize(("call", "said"), [
    (lambda x: Own()(x, maks=x), r"^Own.forward\(\) got an unexpected keyword argument 'maks'; did you mean 'mask'\?$"),
    (lambda x: nn.Linear(3, 2)(inputs=x), r"'inputs'; did you mean 'input'\?$"),
    (lambda x: genesis.utils.data.DataLoader([1], batchsize=2), r"'batchsize'; did you mean 'batch_size'\?$"),
    (lambda x: genesis.distributions.Normal(0.0, scal=1.0), r"'scal'; did you mean 'scale'\?$"),
    (lambda x: genesis.amp.GradScaler(enable=True), r"'enable'; did you mean 'enabled'\?$"),
    (lambda x: Own()(x, mask=x), r"unexpected keyword argument 'aplha'"),  # another call's keyword is not the module's
])
def test_a_wrong_keyword_suggests_the_right_one(call: Callable, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call(genesis.ones(2, 3))
