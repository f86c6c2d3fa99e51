"""Saving and loading: what comes back, what other tools see, what is refused."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from torch_peer import array_of, numbers

import genesis
from genesis import nn, optim

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def round_trip(obj: Any, path: Path) -> Any:
    genesis.save(obj, path)
    return genesis.load(path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)], ids=str)
def test_every_dtype_and_shape(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = genesis.tensor(np.arange(math.prod(shape)).reshape(shape)).to(getattr(genesis, dtype))
    y = round_trip({"x": x}, tmp_path / "file")["x"]
    assert y.dtype is x.dtype and y.shape == x.shape
    assert np.array_equal(array_of(x), array_of(y))


def test_structure_comes_back(tmp_path: Path) -> None:
    obj = {"a": [1, 2.5, "text", None, True], 3: (genesis.ones(2), {"b": []}), "inf": float("inf"), "": {}}
    back = round_trip(obj, tmp_path / "file")
    assert back["a"] == obj["a"] and back["a"][4] is True
    assert isinstance(back[3], tuple) and back[3][0].tolist() == [1.0, 1.0] and back[3][1] == {"b": []}
    assert back["inf"] == float("inf") and back[""] == {}


def test_a_single_tensor_and_a_number(tmp_path: Path) -> None:
    assert round_trip(genesis.ones(2), tmp_path / "file").tolist() == [1.0, 1.0]
    assert round_trip(7, tmp_path / "file") == 7


def test_names_that_collide(tmp_path: Path) -> None:
    back = round_trip({"a.b": genesis.ones(1), "a": {"b": genesis.zeros(1)}}, tmp_path / "file")
    assert back["a.b"].item() == 1.0 and back["a"]["b"].item() == 0.0


def test_an_alias_is_written_once_and_comes_back_as_one(tmp_path: Path) -> None:
    layer = nn.Linear(3, 3)
    back = round_trip({"x": layer.weight, "y": layer.weight.detach(), "z": layer.weight[:2]}, tmp_path / "file")
    assert back["x"] is back["y"] and back["z"].shape == (2, 3)
    assert sorted(load_file(tmp_path / "file")) == ["x", "z"]


def test_views_are_saved_as_what_they_show(tmp_path: Path) -> None:
    x = genesis.tensor(numbers(3, 4))
    back = round_trip([x.transpose(0, 1), x[1:, ::2]], tmp_path / "file")
    assert np.array_equal(array_of(back[0]), array_of(x).T)
    assert np.array_equal(array_of(back[1]), array_of(x)[1:, ::2])


def test_a_checkpoint_goes_on_exactly(tmp_path: Path) -> None:
    """Model and optimizer, saved after two steps: the third is the same bits."""
    x = genesis.tensor(numbers(8, 4))

    def build() -> tuple[nn.Module, optim.Optimizer]:
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
        return model, optim.AdamW(model.parameters(), lr=0.01)

    def step(model: nn.Module, optimizer: optim.Optimizer) -> float:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()
    model, optimizer = build()
    step(model, optimizer)
    step(model, optimizer)
    genesis.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint")
    other, other_optimizer = build()
    saved = genesis.load(tmp_path / "checkpoint")
    other.load_state_dict(saved["model"])
    other_optimizer.load_state_dict(saved["optimizer"])
    assert step(model, optimizer) == step(other, other_optimizer)
    assert step(model, optimizer) == step(other, other_optimizer)


def test_other_tools_read_a_state_dict(tmp_path: Path) -> None:
    layer = nn.Linear(2, 3)
    genesis.save(layer.state_dict(), tmp_path / "file")
    arrays = load_file(tmp_path / "file")
    assert sorted(arrays) == ["bias", "weight"]
    assert np.array_equal(arrays["weight"], array_of(layer.weight))


def test_other_tools_files_load_as_a_dictionary(tmp_path: Path) -> None:
    save_file({"w": np.arange(3.0)}, tmp_path / "file", metadata={"format": "pt"})
    back = genesis.load(tmp_path / "file", map_location="cpu")
    assert back["w"].tolist() == [0.0, 1.0, 2.0]


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a object at 'a\.1' cannot be saved"):
        genesis.save({"a": [1, object()]}, tmp_path / "file")
    with pytest.raises(TypeError, match="key"):
        genesis.save({(1, 2): 3}, tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    genesis.save(1, path)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("disk full")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        genesis.save(2, path)
    assert genesis.load(path) == 1 and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("content", [b"", b"not a tensor file", b"\xff" * 64])
def test_foreign_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="damaged or no safetensors file"):
        genesis.load(tmp_path / "file")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    genesis.save({"x": genesis.ones(1000)}, tmp_path / "file")
    (tmp_path / "file").write_bytes((tmp_path / "file").read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        genesis.load(tmp_path / "file")


def test_a_damaged_structure_is_refused(tmp_path: Path) -> None:
    save_file({}, tmp_path / "file", metadata={"genesis.structure": '{"tensor": "missing"}'})
    with pytest.raises(ValueError, match="structure"):
        genesis.load(tmp_path / "file")


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        genesis.load(tmp_path / "none")


def test_a_tensor_with_the_formats_own_word_for_a_name(tmp_path) -> None:
    genesis.save({"__metadata__": genesis.ones(2)}, tmp_path / "file")
    assert genesis.load(tmp_path / "file")["__metadata__"].tolist() == [1.0, 1.0]


def test_tensors_begin_at_multiples_of_their_elements(tmp_path) -> None:
    """So that a file can be mapped into memory."""
    tensors = {name: genesis.ones(count, dtype=getattr(genesis, name)) for name, count in (
        ("int8", 1), ("float64", 3), ("bool", 3), ("float16", 3), ("float32", 3))}
    genesis.save(tensors, tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    for name, tensor in tensors.items():
        assert (8 + length + header[name]["data_offsets"][0]) % tensor.element_size() == 0, name
