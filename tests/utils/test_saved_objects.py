"""What `save` and `load` take beside state dicts and paths, and the states of every optimizer and schedule."""

from __future__ import annotations

import argparse
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_peer import array_of

import genesis
from genesis import nn, optim
from genesis.optim import lr_scheduler
from genesis.utils import safetensors_file
from genesis.utils.serialization import STRUCTURE
from tests.optim.test_optimizers import CASES


def back(obj: Any) -> Any:
    """What comes back from a file in memory."""
    file = io.BytesIO()
    genesis.save(obj, file)
    return genesis.load(io.BytesIO(file.getvalue()))


def as_plain(obj: Any) -> Any:
    """The structure with lists of numbers in place of tensors."""
    if isinstance(obj, genesis.Tensor):
        return str(obj.dtype), array_of(obj).tolist()
    if isinstance(obj, dict):
        return {key: as_plain(value) for key, value in obj.items()}
    return type(obj)(map(as_plain, obj)) if type(obj) in (list, tuple) else obj


def test_bytes() -> None:
    assert back([b"", b"\0\xff" * 100, {"b": b"x"}]) == [b"", b"\0\xff" * 100, {"b": b"x"}]
    for damaged in ("!", "YQ", 3, ["YQ=="]):
        file = io.BytesIO()
        genesis.save({"bytes": damaged}, file)
        text = file.getvalue().replace(b'{\\"dict\\": [[\\"bytes\\", ', b'{\\"bytes\\": ')
        text = text.replace(b"]]}\"", b"}\"")
        length = text.index(b"}}") + 2 - 8
        with pytest.raises(ValueError, match="damaged"):
            genesis.load(io.BytesIO(length.to_bytes(8, "little") + text[8:8 + length]))


def test_open_files(tmp_path: Path) -> None:
    obj = {"w": genesis.arange(5), "n": 1}
    with open(tmp_path / "file", "wb") as file:
        file.write(b"mine")
        genesis.save(obj, file)
    with open(tmp_path / "file", "rb", buffering=0) as raw:
        raw.seek(4)
        assert as_plain(genesis.load(raw)) == as_plain(obj)
        assert not raw.closed
    file = open(tmp_path / "raw", "wb", buffering=0)  # noqa: SIM115
    genesis.save(obj, file)
    file.close()
    assert as_plain(genesis.load(tmp_path / "raw")) == as_plain(obj)


class Slow(io.BytesIO):
    """Takes and gives a few bytes at once, and has no readinto."""

    readinto = property()  # type: ignore[assignment]

    def write(self, data: Any) -> int:
        return super().write(bytes(data)[:7])

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 5, 5))


def test_files_that_take_and_give_little_at_once() -> None:
    file = Slow()
    genesis.save(genesis.arange(100), file)
    file.seek(0)
    assert genesis.load(file).tolist() == list(range(100))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: genesis.save(1, io.StringIO()), TypeError, "open for text"),
    (lambda: genesis.load(io.StringIO()), TypeError, "open for text"),
    (lambda: genesis.save(1, 3), TypeError, "a int is neither a path nor an open file"),
    (lambda: genesis.load(3), TypeError, "a int is neither a path nor an open file"),
    (lambda: genesis.load(io.BytesIO()), ValueError, "it has 0 bytes"),
    (lambda: genesis.load(io.BytesIO(bytes(20)), mmap=True), ValueError, "needs a file's path"),
])
def test_what_is_no_file(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n  try: " in str(caught.value) and "test_saved_objects.py" in str(caught.value)


def test_a_pipe_cannot_seek() -> None:
    import os
    read, write = os.pipe()
    os.close(write)
    with open(read, "rb") as file, pytest.raises(ValueError, match=r"cannot seek(.|\n)*io\.BytesIO"):
        genesis.load(file)


def test_mapped_files(tmp_path: Path) -> None:
    obj = {name: genesis.tensor(np.arange(7)).to(getattr(genesis, name)) for name in (
        "bool", "int8", "bfloat16", "float32", "float64")} | {"empty": genesis.zeros(0, 2), "n": [1]}
    genesis.save(obj, tmp_path / "file")
    found = genesis.load(tmp_path / "file", mmap=True)
    assert as_plain(found) == as_plain(obj)
    found["float32"].mul_(2)
    assert found["float32"].tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert as_plain(genesis.load(tmp_path / "file")) == as_plain(obj), "the file is as it was"
    model = nn.Linear(7, 1, bias=False)
    model.load_state_dict({"weight": found["float32"][None]})
    assert model.weight.tolist() == [[0, 2, 4, 6, 8, 10, 12]]


def test_weights_only_changes_nothing() -> None:
    file = io.BytesIO()
    genesis.save([1], file)
    assert genesis.load(io.BytesIO(file.getvalue()), weights_only=True) == [1]
    with pytest.warns(UserWarning, match="nothing in a file is executed"):
        assert genesis.load(io.BytesIO(file.getvalue()), weights_only=False) == [1]


@pytest.mark.parametrize("name", CASES)
def test_an_optimizers_state_comes_back_whole(name: str) -> None:
    kind, options = CASES[name]
    parameters = [genesis.ones(3, requires_grad=True), genesis.ones(2, 2, requires_grad=True)]
    optimizer = getattr(optim, kind)(parameters, **options)
    for _ in range(2):
        optimizer.zero_grad()
        sum((p * p).sum() for p in parameters).backward()
        optimizer.step()
    state = optimizer.state_dict()
    assert as_plain(back(state)) == as_plain(state)
    getattr(optim, kind)(parameters, **options).load_state_dict(back(state))


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "ConstantLR": lr_scheduler.ConstantLR, "LinearLR": lr_scheduler.LinearLR, "PolynomialLR": lr_scheduler.PolynomialLR,
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9), "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 2, 5]),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 20),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9 ** epoch),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.StepLR(o, 2)], [3]),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.LinearLR(o), lr_scheduler.StepLR(o, 2)]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedules_state_comes_back_whole(name: str) -> None:
    assert set(SCHEDULES) == {kind for kind in lr_scheduler.__all__ if kind != "LRScheduler"}

    def steps(schedule: Any, count: int) -> list[float]:
        rates = []
        for _ in range(count):
            optimizer.step()
            schedule.step(1.0) if name == "ReduceLROnPlateau" else schedule.step()
            rates.append(optimizer.param_groups[0]["lr"])
        return rates
    optimizer = optim.SGD([genesis.ones(1, requires_grad=True)], lr=0.1, momentum=0.9)
    schedule = SCHEDULES[name](optimizer)
    steps(schedule, 4)
    state, groups = schedule.state_dict(), optimizer.state_dict()
    assert as_plain(back(state)) == as_plain(state)
    state, groups = back(state), back(groups)
    rest = steps(schedule, 5)
    optimizer = optim.SGD([genesis.ones(1, requires_grad=True)], lr=0.1, momentum=0.9)
    schedule = SCHEDULES[name](optimizer)
    optimizer.load_state_dict(groups)
    schedule.load_state_dict(state)
    assert as_plain(schedule.state_dict()) == as_plain(state)
    assert steps(schedule, 5) == rest


def test_a_scaler_and_what_is_in_no_container() -> None:
    state = genesis.amp.GradScaler(device="cpu").state_dict()
    assert back(state) == state
    for value in (None, True, 3, 2.5, "x", b"x", (), [], {}):
        assert back(value) == value and type(back(value)) is type(value)


@pytest.mark.parametrize("array", [
    np.arange(6, dtype=np.uint32).reshape(2, 3), np.arange(6.).reshape(2, 3).T, np.zeros((0, 3), ">i2"),
    np.ones((2, 1), bool), np.array(3.0), np.array(7, np.int8),
    np.array([1 + 2j]), np.arange(10)[::3], np.array([np.nan, -0.0, 1e-40], np.float32)], ids=lambda x: str(x.dtype))
def test_arrays_of_numpy(array: Any, tmp_path: Path) -> None:
    for device in (None, "cpu"):
        genesis.save({"a": [array], "w": genesis.ones(2), "a.0": genesis.zeros(1)}, tmp_path / "file")
        found = genesis.load(tmp_path / "file", device)
        again = found["a"][0]
        assert again.dtype == array.dtype and again.shape == array.shape and again.flags.writeable
        assert again.tobytes() == array.tobytes() and found["a.0"].tolist() == [0]


def test_states_of_random_generators() -> None:
    for state in (np.random.get_state(), random.getstate(), np.random.default_rng(3).bit_generator.state):
        assert plain_lists(back(state)) == plain_lists(state)


def plain_lists(value: Any) -> Any:
    """Arrays as their dtypes and lists, of which one can ask whether they are equal."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: plain_lists(x) for key, x in value.items()}
    return type(value)(map(plain_lists, value)) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("content", [
    ["x", "O", [2]], ["x", "<U4", [2]], ["x", "i4,i4", [1]], ["x", "<f4", [-1]], ["x", "<f4", [3]], ["x", "<f4", 2],
    ["x", "<f4"], ["y", "<f4", [2]], ["w", "<f4", [2]], ["x", 4, [2]], ["x", "nonsense", [2]], ["x", "<f4", [True, 2]],
    ["x", "<f4", [2 ** 62, 4]]], ids=str)
def test_arrays_that_no_save_wrote(content: Any, tmp_path: Path) -> None:
    from genesis.utils.serialization import STRUCTURE
    entries = {"x": (genesis.uint8, np.zeros(8, np.uint8)), "w": (genesis.float32, np.zeros(2, np.float32))}
    with open(tmp_path / "file", "wb") as file:
        safetensors_file.write(file, entries, {STRUCTURE: json.dumps({"array": content})})
    with pytest.raises(ValueError, match=r"the structure in .* is damaged"):
        genesis.load(tmp_path / "file")


def test_unknown_objects_are_refused_with_their_place() -> None:
    class Mine:
        pass
    for obj, where in (({"a": [Mine()]}, "'a.0'"), (Mine(), "'the top'"), ({"s": frozenset()}, "'s'"), ([id], "'0'"),
                       (np.array([{}, 2]), "'the top'"), ({"n": np.array(["a", "b"])}, "'n'"), ({"c": 1j}, "'c'"),
                       ({"c": [np.complex64(1j)]}, "'c.0'"), (np.longdouble(1), "'the top'"),
                       ({"t": np.datetime64("2026-01-01")}, "'t'"), ({"b": np.bytes_(b"x")}, "'b'")):
        with pytest.raises(TypeError, match=f"at {where} cannot be saved") as caught:
            genesis.save(obj, io.BytesIO())
        for part in ("test_saved_objects.py", "try: tensors, arrays, numbers, strings, bytes"):
            assert part in str(caught.value)


class Renamed(genesis.nn.Module):
    """A module whose second version calls `old` `new`."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.new = genesis.nn.Parameter(genesis.ones(2))
        self.told: Any = None

    def _load_from_state_dict(self, state: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        self.told = local_metadata.get("version")
        super()._load_from_state_dict(state, prefix, local_metadata, *rest)


def test_versions_of_state_dicts_are_kept_as_torch_keeps_them(tmp_path: Path) -> None:
    net = genesis.nn.Sequential(Renamed(), genesis.nn.BatchNorm1d(2))
    genesis.save({"epoch": 3, "nets": [{"plain": 1}, net.state_dict()]}, tmp_path / "checkpoint")
    found = genesis.load(tmp_path / "checkpoint")
    assert type(found) is dict and type(found["nets"][0]) is dict and found["epoch"] == 3
    state = found["nets"][1]
    assert state._metadata == {"": {"version": 1}, "0": {"version": 2}, "1": {"version": 2}}
    assert state._metadata == net.state_dict()._metadata
    net.load_state_dict(state)
    assert net[0].told == 2


def test_a_damaged_version_is_a_damaged_file(tmp_path: Path) -> None:
    genesis.save(genesis.nn.Linear(1, 1).state_dict(), tmp_path / "state")
    content = (tmp_path / "state").read_bytes()
    wanted = b'[[[], {\\"dict\\"'
    assert content.count(wanted) == 1
    (tmp_path / "state").write_bytes(content.replace(wanted, b'[[{}, {\\"dict\\"'))
    with pytest.raises(ValueError, match="damaged"):
        genesis.load(tmp_path / "state")


def test_what_programs_save_beside_a_model(tmp_path: Path) -> None:
    """Arguments as `argparse` gives them, the dtype and device of a run, where it wrote, names that it has seen."""
    args = argparse.Namespace(lr=0.1, layers=[1, 2], out=tmp_path, nested=argparse.Namespace(weights=genesis.ones(2)))
    found = back({"args": args, "dtype": genesis.bfloat16, "device": genesis.device("cpu"), "seen": {"a", 3}})
    assert found["dtype"] is genesis.bfloat16 and found["device"] == genesis.device("cpu")
    assert found["seen"] == {"a", 3} and found["args"].out == tmp_path and found["args"].lr == 0.1
    assert type(found["args"]) is argparse.Namespace and found["args"].nested.weights.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind, content", [
    ("dtype", "int65"), ("dtype", 3), ("device", "cpq"), ("device", None), ("namespace", "x"), ("set", "x"),
    ("path", 3), ("namespace", {"dict": [[1, 2]]}), ("set", {"list": [{"list": []}]}), ("module", "os"),
])
def test_damaged_values_are_refused(kind: str, content: Any) -> None:
    file = io.BytesIO()
    safetensors_file.write(file, {}, {STRUCTURE: json.dumps({kind: content})})
    with pytest.raises(ValueError, match="damaged"):
        genesis.load(io.BytesIO(file.getvalue()))
