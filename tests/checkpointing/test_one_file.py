"""`save_checkpoint` and `load_checkpoint`, by both signatures of the documents that Genesis starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis import nn, optim


def trained() -> tuple[nn.Module, optim.Optimizer]:
    """A model and an optimizer that have seen a step."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = optim.Adam(model.parameters(), lr=0.001)
    step(model, optimizer)
    return model, optimizer


def step(model: Any, optimizer: Any) -> float:
    """A step; its loss."""
    optimizer.zero_grad()
    loss = (model(genesis.ones(2, 3)) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def test_a_dictionary(tmp_path: Path) -> None:
    model, optimizer = trained()
    genesis.save_checkpoint({"model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict(),
                             "epoch": 7, "loss": 0.25}, tmp_path / "checkpoint.pth")
    losses = [step(model, optimizer) for _ in range(3)]
    checkpoint = genesis.load_checkpoint(str(tmp_path / "checkpoint.pth"))
    model, optimizer = trained()
    model.load_state_dict(checkpoint["model_state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    assert (checkpoint["epoch"], checkpoint["loss"]) == (7, 0.25)
    assert [step(model, optimizer) for _ in range(3)] == losses


@pytest.mark.parametrize("given", ["states", "objects"])
def test_a_model_and_an_optimizer(given: str, tmp_path: Path) -> None:
    model, optimizer = trained()
    what = (model, optimizer) if given == "objects" else (model.state_dict(), optimizer.state_dict())
    genesis.save_checkpoint(*what, tmp_path / "checkpoint.pth")
    losses = [step(model, optimizer) for _ in range(3)]
    model_state, optimizer_state = genesis.load_checkpoint(tmp_path / "checkpoint.pth", map_location="cpu")
    model, optimizer = trained()
    model.load_state_dict(model_state)
    optimizer.load_state_dict(optimizer_state)
    assert [step(model, optimizer) for _ in range(3)] == losses


def test_objects_in_a_dictionary(tmp_path: Path) -> None:
    model, _ = trained()
    genesis.save_checkpoint({"model": model, "epoch": 1}, tmp_path / "file")
    found = genesis.load_checkpoint(tmp_path / "file")
    assert list(found["model"]) == list(model.state_dict()) and found["epoch"] == 1


@pytest.mark.parametrize(("arguments", "message"), [
    (("file",), "two or three arguments, got 1"), ((1, 2, 3, "file"), "got 4"), (({}, {}, {}), "no path"),
    (({"a": object()}, "file"), "cannot be saved")])
def test_other_arguments(arguments: tuple[Any, ...], message: str, tmp_path: Path,
                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=message):
        genesis.save_checkpoint(*arguments)
    assert list(tmp_path.iterdir()) == []
