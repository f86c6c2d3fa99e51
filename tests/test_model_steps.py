"""Whole models of `benchmarks/model_steps.py`: one text, and the same training in both libraries."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
import torch

import genesis

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def model_steps(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    import model_steps
    yield model_steps
    for library in (torch, genesis):
        library.set_float32_matmul_precision("highest")
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize("name", ["llama-1b", "vit-b", "moe", "gpt2-b1", "mlp"])
def test_both_train_alike(model_steps, name: str) -> None:
    """Steps in bfloat16 autocast with clipping, on the CPU: products round alike, sums are in other orders."""
    args = argparse.Namespace(tiny=True, layers=1)
    sizes = model_steps.sizes_of(args, name)
    theirs = model_steps.TorchSide(name, sizes, "cpu")
    ours = model_steps.GenesisSide(name, sizes, "cpu", theirs.weights)
    for i in range(3):
        want = theirs.eager(*theirs.data[i]).item()
        found = ours.run(*ours.data[i]).item()
        assert found == pytest.approx(want, rel=4e-3), "an eighth of a bfloat16's step each, over a few dozen roundings"


def test_ratios_are_of_the_faster_peer(model_steps, capsys) -> None:
    row = {"losses": [2.0, 1.0], "first_s": 1.0}
    found = {"eager": {**row, "ms": 4.0, "above": 3e9}, "compile": {**row, "ms": 6.0, "above": 2e9},
             "genesis": {**row, "losses": [2.0, 1.1], "ms": 2.0, "above": 1e9}}
    model_steps.report("mlp", found)
    assert found["genesis"]["speed"] == 2.0 and found["genesis"]["memory"] == 0.5
    assert found["genesis"]["loss_off"] == pytest.approx(0.1)
    assert len(capsys.readouterr().out.splitlines()) == 3
