"""What a dtype says of itself, as torch's does."""

from __future__ import annotations

import pytest
import torch

import genesis


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
                                  "float64"])
def test_a_dtype_is_torchs(name: str) -> None:
    ours, theirs = getattr(genesis, name), getattr(torch, name)
    for what in ("is_floating_point", "is_signed", "is_complex", "itemsize"):
        assert getattr(ours, what) == getattr(theirs, what), what
