"""Initial values: what torch's are, or distributed as they are."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.nn import init


@pytest.mark.parametrize("shape, groups", [((4, 3, 3), 1), ((6, 2, 3, 5), 2), ((2, 4, 1, 2, 3), 1)])
def test_dirac(shape: tuple[int, ...], groups: int) -> None:
    found, wanted = init.dirac_(genesis.ones(*shape), groups), torch.nn.init.dirac_(torch.ones(*shape), groups)
    assert found.tolist() == wanted.tolist()


def test_eye() -> None:
    assert init.eye_(genesis.ones(2, 3)).tolist() == torch.nn.init.eye_(torch.ones(2, 3)).tolist()


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (6, 2, 2)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    x = init.orthogonal_(genesis.empty(*shape), gain=2.0).reshape(shape[0], -1).numpy()
    square = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
    np.testing.assert_allclose(square, 4 * np.eye(min(x.shape)), atol=1e-5)


def test_sparse() -> None:
    x = init.sparse_(genesis.empty(20, 7), 0.3, std=2.0).numpy()
    assert ((x == 0).sum(0) == 6).all() and 1 < x[x != 0].std() < 3


def test_truncated_normal() -> None:
    genesis.manual_seed(0)
    x = init.trunc_normal_(genesis.empty(20000), 1.0, 2.0, -1.0, 2.0).numpy()
    assert x.min() >= -1 and x.max() <= 2
    torch.manual_seed(0)
    like = torch.nn.init.trunc_normal_(torch.empty(20000), 1.0, 2.0, -1.0, 2.0).numpy()
    assert abs(x.mean() - like.mean()) < 0.03 and abs(x.std() - like.std()) < 0.03  # 4 standard errors of each


@pytest.mark.parametrize("draw", [
    lambda x, **how: init.uniform_(x, **how), lambda x, **how: init.normal_(x, **how),
    lambda x, **how: init.trunc_normal_(x, **how), lambda x, **how: init.kaiming_normal_(x, **how),
    lambda x, **how: init.xavier_uniform_(x, **how), lambda x, **how: init.orthogonal_(x, **how),
    lambda x, **how: init.sparse_(x, 0.5, **how),
])
def test_a_generator_gives_the_same_numbers_again(draw: Any) -> None:
    first, second = (draw(genesis.empty(4, 4), generator=genesis.Generator().manual_seed(5)) for _ in range(2))
    assert first.tolist() == second.tolist() != draw(genesis.empty(4, 4)).tolist()


@pytest.mark.parametrize("call", [
    lambda lib: lib.nn.init.dirac_(lib.ones(2, 2)), lambda lib: lib.nn.init.dirac_(lib.ones(3, 2, 2), 2),
    lambda lib: lib.nn.init.eye_(lib.ones(2)), lambda lib: lib.nn.init.orthogonal_(lib.ones(2)),
    lambda lib: lib.nn.init.sparse_(lib.ones(2), 0.5),
])
def test_what_torch_refuses_is_refused(call: Any) -> None:
    for lib in (genesis, torch):
        with pytest.raises(ValueError):
            call(lib)


def test_fans_have_torchs_private_names_too() -> None:
    """Layers that programs write themselves draw their biases within bounds of the fan, as nn.Linear does."""
    for shape in ((5, 2), (5, 2, 3, 3)):
        ours, theirs = genesis.empty(*shape), torch.empty(*shape)
        assert init._calculate_fan_in_and_fan_out(ours) == torch.nn.init._calculate_fan_in_and_fan_out(theirs)
        for mode in ("fan_in", "FAN_OUT"):
            found = torch.nn.init._calculate_correct_fan(theirs, mode)  # type: ignore[arg-type]
            assert init._calculate_correct_fan(ours, mode) == found
    with pytest.raises(ValueError, match="unknown"):
        init._calculate_correct_fan(genesis.empty(2, 2), "fan")


def test_attention_needs_no_import_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", "import genesis; genesis.nn.attention.SDPBackend.MATH"], check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name, options", [
    ("constant", {"val": 2.0}), ("uniform", {"a": 1.0, "b": 2.0}), ("normal", {"std": 0.0}), ("eye", {}),
    ("xavier_uniform", {}), ("xavier_normal", {"gain": 0.0}), ("kaiming_uniform", {"mode": "fan_out"}),
    ("kaiming_normal", {"a": 0.1, "nonlinearity": "relu"}), ("orthogonal", {}), ("sparse", {"sparsity": 0.5})])
def test_names_of_old_fill_and_warn(name: str, options: dict[str, Any]) -> None:
    for lib in (genesis, torch):
        x = lib.full((4, 4), 7.0)
        with pytest.warns(FutureWarning, match=f"in favor of `nn.init.{name}_`"):
            assert getattr(lib.nn.init, name)(x, **options) is x
        assert not (x == 7.0).any()
