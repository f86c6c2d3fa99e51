"""Programs in the style of public repositories give torch's numbers after one rename, undecorated and compiled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import genesis

from .families import FAMILIES, PROGRAMS
from .lab import results

CASES = [pytest.param(name, marks=[] if found.quick else [pytest.mark.sweep]) for name, found in PROGRAMS.items()]


@pytest.fixture(autouse=True)
def flags_may_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own test helpers, which other tests import, forbid `torch.backends.cudnn.benchmark = True` for good."""
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)


def same(name: str, compiled: bool, device: str = "cpu") -> None:
    """float32 within 1e-5 of the largest number of an array; float64 within 1e-9, where rounding is amplified."""
    tolerance = 1e-9 if PROGRAMS[name].chaotic else 1e-5
    if device != "cpu":
        tolerance = PROGRAMS[name].tolerance_on_a_gpu or tolerance
    theirs = results(name, torch, device="cpu" if PROGRAMS[name].cpus_numbers else device)
    ours = results(name, genesis, compiled, device)
    assert len(ours) == len(theirs) > 0
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, f"result {number}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if b.dtype.kind in "US":
            assert a == b, f"result {number}"
            continue
        assert b.dtype.kind != "f" or np.isfinite(b).all(), f"result {number} compares nothing"
        atol = tolerance * max(1e-2, float(np.abs(b).max(initial=0))) if b.dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=atol, err_msg=f"result {number}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    same(name, compiled=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_program_compiled(name: str) -> None:
    same(name, compiled=True)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("compiled", [False, True], ids=["undecorated", "compiled"])
def test_program_on_a_gpu(name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside torch's on the same GPU, which rounds no float32 product to TF32 then."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    same(name, compiled, "cuda")


def test_there_are_at_least_forty() -> None:
    assert len(PROGRAMS) >= 40 and len(FAMILIES) == 30
