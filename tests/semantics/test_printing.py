"""Tensors print as torch's, under every option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import genesis

RANDOM = np.random.default_rng(0)
NAN, INF = float("nan"), float("inf")

ARRAYS: dict[str, Any] = {
    "scalar": 3.14159, "whole scalar": 2.0, "integer": 5, "true": True, "empty": np.zeros(0, np.float32),
    "empty rows": np.zeros((2, 0, 3), np.float32), "no integers": np.zeros((0,), np.int64),
    "vector": np.float32([1.5, -2.25, 1e-3]), "whole": np.float32([1, 2, -300]), "zeros": np.zeros((2, 3), np.float32),
    "far apart": np.float32([1e-3, 5e4]), "whole and far apart": np.float32([1, 2000]), "large": np.float32([1.5, 3e9]),
    "small": np.float32([1e-5, 2e-5]), "special": np.float32([NAN, INF, -INF, 1.5]), "nan": np.float32([NAN, NAN]),
    "whole with nan": np.float32([NAN, 2, 30]), "long": RANDOM.standard_normal(50).astype(np.float32),
    "matrix": RANDOM.standard_normal((3, 4)).astype(np.float32), "wide": RANDOM.standard_normal((2, 30)),
    "cube": RANDOM.integers(-50, 9000, (2, 3, 4)), "deep": RANDOM.standard_normal((2, 1, 2, 3)).astype(np.float16),
    "summary": RANDOM.standard_normal(2000).astype(np.float32),
    "large matrix": RANDOM.standard_normal((40, 50)).astype(np.float32),
    "large cube": RANDOM.integers(0, 9, (10, 20, 30)), "tall": np.arange(5000).reshape(2500, 2),
    "bools": RANDOM.integers(0, 2, (2, 3)).astype(bool), "bytes": np.uint8([1, 200]), "int32": np.int32([-7, 12345678]),
}

OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"precision": 2}, {"precision": 8, "linewidth": 120}, {"threshold": 10, "edgeitems": 2}, {"profile": "short"},
    {"profile": "full", "linewidth": 200}, {"sci_mode": True}, {"sci_mode": False}, {"linewidth": 40},
)


def as_genesis(text: str) -> str:
    """torch's text with Genesis' names. They are two characters longer, so none may stand at the end of a full line."""
    return text.replace("torch.", "genesis.")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ARRAYS)
def test_prints_as_torch(name: str, options: dict[str, Any]) -> None:
    x = ARRAYS[name]
    if options.get("profile") == "full" and np.size(x) > 500:
        return
    try:
        torch.set_printoptions(profile="default")
        torch.set_printoptions(**options)
        want = repr(torch.tensor(x))
    finally:
        torch.set_printoptions(profile="default")
    with genesis.printoptions(**options):
        assert repr(genesis.tensor(x)) == as_genesis(want)


@pytest.mark.parametrize("make", [
    lambda T: T.ones(3, requires_grad=True), lambda T: T.ones(2, 3, dtype=T.float64, requires_grad=True),
    lambda T: T.ones(28, dtype=T.bfloat16), lambda T: T.ones(3, 23, dtype=T.float64, requires_grad=True),
    lambda T: T.ones(17, requires_grad=True),
    lambda T: T.arange(6).view(2, 3).t(), lambda T: T.zeros(0, 3, dtype=T.int32), lambda T: T.zeros(0, dtype=T.int64),
])
def test_notes(make: Callable[[Any], Any]) -> None:
    assert repr(make(genesis)) == as_genesis(repr(make(torch)))


def test_the_default_dtype_is_not_mentioned() -> None:
    before = genesis.get_default_dtype()
    try:
        genesis.set_default_dtype(genesis.float64)
        assert repr(genesis.ones(2, dtype=genesis.float64)) == "tensor([1., 1.])"
        assert repr(genesis.ones(2, dtype=genesis.float32)) == "tensor([1., 1.], dtype=genesis.float32)"
    finally:
        genesis.set_default_dtype(before)


def test_options_stay_until_they_are_set_again() -> None:
    before = genesis.get_printoptions()
    try:
        genesis.set_printoptions(precision=1, sci_mode=True)
        genesis.set_printoptions(edgeitems=1)
        found = genesis.get_printoptions()
        assert (found["precision"], found["edgeitems"], found["sci_mode"]) == (1, 1, None)
    finally:
        genesis.set_printoptions(profile="default")
    assert genesis.get_printoptions() == before


def test_an_unknown_profile() -> None:
    with pytest.raises(ValueError, match="there is no profile 'tiny'"):
        genesis.set_printoptions(profile="tiny")
