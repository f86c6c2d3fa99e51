"""Files of `torch.save`: what comes back is what torch reads back, and nothing in a file is run."""

from __future__ import annotations

import io
import pickle
import re
import struct
import zipfile
from collections import Counter, OrderedDict, defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_peer import array_of

import genesis
from genesis import nn, optim

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def written(obj: Any, **options: Any) -> io.BytesIO:
    """The file that torch writes, at its start."""
    file = io.BytesIO()
    torch.save(obj, file, **options)
    file.seek(0)
    return file


def same(ours: Any, theirs: Any) -> None:
    """The same structure, and the same elements with the same strides."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, genesis.Tensor) and ours.dtype is getattr(genesis, str(theirs.dtype)[6:])
        assert (ours.shape, ours.stride(), ours.requires_grad) == (theirs.shape, theirs.stride(), theirs.requires_grad)
        assert np.array_equal(array_of(ours.detach()).astype(np.float64), theirs.detach().double().numpy())
        assert isinstance(ours, nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
    elif isinstance(theirs, dict):
        assert type(ours) is type(theirs) and list(ours) == list(theirs)
        for key, value in theirs.items():
            same(ours[key], value)
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(ours, tuple if isinstance(theirs, tuple) else list) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    else:
        assert type(ours) is type(theirs) and ours == theirs


def samples() -> dict[str, Any]:
    """Objects of every kind that is read."""
    draw = torch.Generator().manual_seed(0)
    base = torch.randn(4, 6, generator=draw)
    layer = torch.nn.Linear(3, 2)
    model = torch.nn.Sequential(layer, torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(4, 3, generator=draw)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 3])
    return {
        **{name: (base * 3).to(getattr(torch, name)) for name in DTYPES},
        "shapes": [torch.ones(()), torch.zeros(0, 3), torch.ones(1, 1, 1)],
        "views": [base.t(), base[1:, ::2], base[2], base.expand(2, 4, 6), base.diagonal(), base],
        "gradients": [base.clone().requires_grad_(), layer.weight, torch.nn.Parameter(base, requires_grad=False)],
        "module": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
        "plain": {"a": [1, -2, 1 << 40, 1 << 100, 2.5, float("inf"), True, None, "ü", b"by\xfftes", bytearray(b"x")],
                  3: (1, (2,)), (1, "a"): {}, None: 1j, "set": {1, 2}, "frozen": frozenset("ab"), "": ()},
        "kinds": [OrderedDict(a=1), Counter("aab"), defaultdict(list, {1: [2]}), defaultdict(None)],
    }


LEGACY: dict[str, Any] = {"_use_new_zipfile_serialization": False}
"""The format of before version 1.6."""


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["archive", "legacy"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", list(samples()))
def test_it_is_what_torch_wrote(name: str, protocol: int, options: dict[str, Any], tmp_path: Path) -> None:
    obj = samples()[name]
    same(genesis.load(written(obj, pickle_protocol=protocol, **options)), obj)
    torch.save(obj, tmp_path / "file.pt", pickle_protocol=protocol, **options)
    same(genesis.load(tmp_path / "file.pt"), obj)
    same(genesis.load(tmp_path / "file.pt", mmap=True), obj)


def test_a_legacy_file_within_another() -> None:
    """Files of several objects were written so: each begins where the one before ends."""
    first, second = written([torch.ones(3), 1], **LEGACY).getvalue(), written(torch.arange(4), **LEGACY).getvalue()
    file = io.BytesIO(b"before" + first + second)
    file.seek(6)
    same(genesis.load(file), [torch.ones(3), 1])
    file.seek(6 + len(first))
    same(genesis.load(file), torch.arange(4))


def test_names_of_torch() -> None:
    found = genesis.load(written([torch.Size([2, 3]), torch.device("cuda", 1), torch.device("cpu"), torch.float16]))
    assert found == [genesis.Size([2, 3]), genesis.device("cuda", 1), genesis.device("cpu"), genesis.float16]


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["archive", "legacy"])
def test_what_shares_a_storage_shares_it_afterwards(options: dict[str, Any]) -> None:
    base = torch.arange(6.0).view(2, 3)
    tied = torch.nn.Parameter(base.clone())
    found = genesis.load(written({"base": base, "row": base[1], "turned": base.t(), "a": tied, "b": tied}, **options))
    found["row"].zero_()
    assert found["base"].tolist() == [[0, 1, 2], [0, 0, 0]] and found["turned"].tolist() == [[0, 0], [1, 0], [2, 0]]
    with genesis.no_grad():
        found["a"].fill_(7)
    assert found["b"].tolist() == [[7, 7, 7]] * 2


def test_a_training_run_of_torch_goes_on(tmp_path: Path) -> None:
    """Weights, moments and rates of torch's run: the next steps are torch's."""
    def build(library: Any, rooms: Any) -> tuple[Any, Any, Any]:
        model = library.nn.Sequential(library.nn.Linear(3, 4), library.nn.Tanh(), library.nn.Linear(4, 1))
        optimizer = rooms.AdamW(model.parameters(), lr=0.05)
        return model, optimizer, rooms.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def steps(library: Any, parts: Any, count: int) -> list[float]:
        model, optimizer, schedule = parts
        losses = []
        for i in range(count):
            optimizer.zero_grad()
            loss = (model(library.ones(2, 3) * (i + 1)) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        return losses
    torch.manual_seed(0)
    theirs = build(torch, torch.optim)
    steps(torch, theirs, 3)
    torch.save([part.state_dict() for part in theirs], tmp_path / "run.pt")
    ours = build(genesis, optim)
    for part, state in zip(ours, genesis.load(tmp_path / "run.pt"), strict=True):
        part.load_state_dict(state)
    assert steps(genesis, ours, 4) == pytest.approx(steps(torch, theirs, 4), rel=1e-5)  # float32, other sums


def test_locations() -> None:
    def told(storage: genesis.Tensor, name: str) -> None:
        seen.append((storage.shape, name))
    seen: list[Any] = []
    x = torch.arange(6.0).view(2, 3)
    for options in ({}, LEGACY):
        same(genesis.load(written([x, x[0]], **options), map_location=told), [x, x[0]])
    assert seen == [((2, 3), "cpu")] * 2
    same(genesis.load(written(x), map_location=lambda storage, name: storage), x)
    same(genesis.load(written(x), map_location={"cuda:0": "cpu"}), x)
    same(genesis.load(written(x), map_location=genesis.device("cpu")), x)
    with pytest.raises(TypeError, match="map_location is a float"):
        genesis.load(written(x), map_location=0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gave a str"):
        genesis.load(written(x), map_location=lambda storage, name: "cpu")


def test_a_mapped_file_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    torch.save(torch.zeros(1000), path)
    x = genesis.load(path, mmap=True)
    x.add_(1)
    assert x.sum().item() == 1000 and torch.load(path).sum() == 0
    with pytest.raises(ValueError, match="needs a file's path"):
        genesis.load(io.BytesIO(path.read_bytes()), mmap=True)


def test_other_endianness() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(written(torch.tensor([1, 2])), "r") as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, b"big" if name.endswith("byteorder") else struct.pack(">qq", 1, 2)
                         if "/data/" in name else data)
    assert genesis.load(io.BytesIO(file.getvalue())).tolist() == [1, 2]


class Runs:
    """A thing whose pickle calls something."""

    def __init__(self, *call: Any):
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


def test_nothing_is_run(tmp_path: Path) -> None:
    """Not with weights_only=False either, which says so."""
    import os
    made = str(tmp_path / "made")
    calls = [(os.system, (f"touch {made}",)), (eval, (f"open({made!r}, 'w')",)), (exec, (f"open({made!r}, 'w')",)),
             (getattr, ("", "join")), (open, (made, "w")), (__import__, ("antigravity",)), (bytes, (1 << 40,)),
             (torch.load, ("x",)), (torch.zeros, (1 << 40,)), (np.zeros, (1 << 40,)), (str, (b"x",))]
    for call, options in product(calls, ({}, LEGACY)):
        with pytest.raises(ValueError, match=r"it names .*nothing in a file is executed|calls what cannot be called"):
            genesis.load(written({"x": Runs(*call)}, **options))
    with (pytest.warns(UserWarning, match="reads what weights_only=True reads"),
          pytest.raises(ValueError, match="names")):
        genesis.load(written({"x": Runs(*calls[1])}), weights_only=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("obj", "message"), [
    (torch.nn.Linear(2, 2), r"names torch\.nn\.modules\.linear\.Linear.*state_dict"),
    (torch.ones(2, dtype=torch.complex64), "ComplexFloatStorage, which Genesis has no dtype for"),
    (torch.ones(2, dtype=torch.uint16), "uint16, which Genesis has no dtype for"),
    (torch.ones(2, dtype=torch.float8_e4m3fn), "float8_e4m3fn, which Genesis has no dtype for"),
    (torch.eye(2).to_sparse(), "_rebuild_sparse_tensor.*sparse, quantized"),
    (torch.ones(2).untyped_storage(), "no value|no class"),
    (torch.device("meta"), "device 'meta'"),
    (np.ones(2), "names numpy"),
], ids=lambda x: type(x).__name__ if not isinstance(x, str) else "")
def test_what_is_not_read_is_named(obj: Any, message: str) -> None:
    for options in ({}, LEGACY):
        with pytest.raises(ValueError, match=message):
            genesis.load(written(obj, **options))


def test_other_pickles_and_archives() -> None:
    for file, message in [
            (io.BytesIO(pickle.dumps({"a": 1})), "a pickle is a program"),
            (io.BytesIO(b"PK\3\4" + bytes(100)), "archive is malformed")]:
        with pytest.raises(ValueError, match=message):
            genesis.load(file)
    script = io.BytesIO()
    with zipfile.ZipFile(script, "w") as archive:
        archive.writestr("m/data.pkl", b"N.")
        archive.writestr("m/code/__torch__.py", b"", zipfile.ZIP_DEFLATED)
        archive.writestr("m/constants.pkl", b").")
    with pytest.raises(ValueError, match="TorchScript program"):
        genesis.load(io.BytesIO(script.getvalue()))


def test_every_error_has_its_parts() -> None:
    with pytest.raises(ValueError) as caught:
        genesis.load(written(torch.nn.Linear(2, 2)))
    what, *rest = str(caught.value).split("\n")
    assert what.startswith("load: a BytesIO is damaged") and re.search(r"at .*test_torch_files\.py:\d+", rest[0])
    assert rest[-1].startswith("  try: ")
