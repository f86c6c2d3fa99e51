"""Ways to reach state that no argument, global or attribute name shows directly."""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calls import Pair, ramp
from test_guards import check

import genesis
from genesis import nn
from genesis.tracing import tracer

RECENT: collections.deque = collections.deque([2.0], maxlen=3)
COUNTS = collections.defaultdict(int, {"a": 1})
ORDERED = collections.OrderedDict(a=1.0, b=2.0)
NAMES = {"scale"}


class Base:
    unit = 2.0

    def factor(self) -> float:
        return self.unit

    def __len__(self) -> int:
        return int(self.unit)


class Derived(Base):
    def factor(self) -> float:
        return super().factor() + 1


class Meta(type):
    @property
    def rate(cls) -> float:
        return cls.registry["rate"]  # type: ignore[attr-defined,no-any-return]


class WithMeta(metaclass=Meta):
    registry = {"rate": 2.0}


class Descriptor:
    def __init__(self, value: float):
        self.value = value

    def __get__(self, instance: Any, owner: type) -> float:
        return self.value


class Owner:
    described = Descriptor(2.0)


def test_inheritance(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Derived()
    check(lambda x: x * value.factor(), lambda: monkeypatch.setattr(Base, "unit", 5.0), monkeypatch.undo)
    check(lambda x: x * value.factor(), lambda: setattr(Derived, "unit", 5.0), lambda: delattr(Derived, "unit"))
    check(lambda x: x * value.factor(), lambda: monkeypatch.setattr(Base, "factor", lambda self: 9.0), monkeypatch.undo)
    check(lambda x: x * len(value), lambda: monkeypatch.setattr(Base, "unit", 5.0), monkeypatch.undo)
    check(lambda x: x * len(value), lambda: monkeypatch.setattr(Derived, "__len__", lambda self: 7, raising=False),
          monkeypatch.undo)


def test_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    check(lambda x: x * WithMeta.rate, lambda: WithMeta.registry.update(rate=4.0))
    owner = Owner()
    check(lambda x: x * owner.described, lambda: setattr(vars(Owner)["described"], "value", 4.0))
    check(lambda x: nn.functional.linear(x.view(1, 2), genesis.ones(2, 2)),
          lambda: monkeypatch.setattr(nn.functional, "linear", lambda x, w: x * 5), monkeypatch.undo)
    layer = nn.Linear(2, 2)
    check(lambda x: layer(x.view(1, 2)), lambda: monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x * 5),
          monkeypatch.undo)


def test_containers_of_the_library() -> None:
    check(lambda x: x * RECENT[-1], lambda: RECENT.append(4.0))
    check(lambda x: x * COUNTS["a"], lambda: COUNTS.update(a=5))
    check(lambda x: (x, list(ORDERED)), lambda: ORDERED.move_to_end("a"))
    check(lambda x: x * len(NAMES), lambda: NAMES.add("other"))
    pair = Pair(lambda x: x * (COUNTS["missing"] + 1))  # a read that writes, once
    for _ in range(3):
        pair.same(ramp(2))
    assert COUNTS["missing"] == 0


def test_callables_of_the_library() -> None:
    class Box:
        value = 2.0
    box = Box()
    get = operator.attrgetter("value")
    check(lambda x: x * get(box), lambda: setattr(box, "value", 5.0), replayed=False)
    check(lambda x: x * operator.attrgetter("val" + "ue")(box), lambda: setattr(box, "value", 6.0))
    scale = [2.0]
    check(lambda x: functools.reduce(lambda a, b: a * b, scale, x), lambda: scale.append(3.0))
    check(lambda x: x * next(iter(scale)), lambda: scale.__setitem__(0, 9.0))
    check(lambda x: x * sum(map(abs, scale)), lambda: scale.__setitem__(0, 7.0))


@pytest.mark.parametrize("call", [genesis.cuda.memory_allocated, genesis.cuda.max_memory_allocated],
                         ids=lambda call: call.__name__)
def test_what_a_gpu_says_of_itself(call: Callable[[], int]) -> None:
    call()
    pair = Pair(lambda x: x + 0 * call())
    for _ in range(3):
        pair.same(ramp(2))
    assert pair.compiled.hits == 0 and f"it calls {call.__name__}" in pair.refused


def test_the_rooms_that_are_not_followed_are_there() -> None:
    """A room that moved would be followed as if its functions gave the same for the same."""
    home = Path(genesis.__file__).parent
    assert all((home / room.strip("/") / "__init__.py").exists() for room in tracer._READS_STATE)


def test_clocks_and_files(tmp_path: Path) -> None:
    path = tmp_path / "scale"
    path.write_text("2")
    check(lambda x: x * float(path.read_text()), lambda: path.write_text("3"), replayed=False)
    array = tmp_path / "a.npy"
    np.save(array, 2.0)
    check(lambda x: x * float(np.load(array)), lambda: np.save(array, 3.0), replayed=False)
    pair = Pair(lambda x: x + 0 * datetime.datetime.now().year)
    for _ in range(3):
        pair.same(ramp(2))
    assert pair.compiled.hits == 0
    rng = np.random.default_rng(0)
    drawn = genesis.compile(lambda x: x * rng.random())
    assert len({drawn(ramp(1)).item() for _ in range(4)}) == 4
    drawn = genesis.compile(lambda x: x * np.random.rand())
    assert len({drawn(ramp(1)).item() for _ in range(4)}) == 4


def test_numpy_constants_and_functions() -> None:
    pair = Pair(lambda x: x * np.pi + float(np.sqrt(2.0)))
    pair.settle(ramp(2))


def test_contexts() -> None:
    scale = [2.0]

    @contextlib.contextmanager
    def scaled() -> Any:
        before = scale[0]
        scale[0] = before * 2
        try:
            yield scale[0]
        finally:
            scale[0] = before

    def function(x: Any) -> Any:
        with scaled() as factor, genesis.no_grad():
            return x * factor
    check(function, lambda: scale.__setitem__(0, 5.0))


def test_code_that_is_replaced() -> None:
    def helper(x: Any) -> Any:
        return x * 2

    def other(x: Any) -> Any:
        return x * 7
    check(lambda x: helper(x), lambda: setattr(helper, "__code__", other.__code__))
    check(helper, lambda: setattr(helper, "__code__", (lambda x: x - 1).__code__))


def test_a_variable_without_a_value() -> None:
    def function(x: Any) -> Any:
        try:
            return x * late
        except NameError:
            return x
    check(function, lambda: None) if False else None
    pair = Pair(function)
    pair.settle(ramp(2))
    late = 5.0
    pair.same(ramp(2))
    pair.settle(ramp(2))
    assert late


def test_a_function_with_a_global_of_its_own() -> None:
    space: dict[str, Any] = {}
    exec("scale = 2.0\ndef function(x):\n    return x * scale\n", space)
    check(space["function"], lambda: space.update(scale=5.0))
    check(lambda x: space["function"](x), lambda: space.update(scale=6.0), replayed=False)  # it holds the builtins


def test_functions_in_a_table() -> None:
    table = {"double": lambda x: x * 2}
    check(lambda x: table["double"](x), lambda: table.update(double=lambda x: x * 3))
    state = [1.0]
    table["shift"] = lambda x: x + state[0]
    check(lambda x: table["shift"](x), lambda: state.__setitem__(0, 4.0))


def test_an_object_that_refers_to_itself() -> None:
    class Link:
        def __init__(self) -> None:
            self.next, self.value = self, 1.0
    link = Link()
    check(lambda x: x * link.next.next.value, lambda: setattr(link, "value", 3.0))


def test_a_tensor_s_gradient_is_read() -> None:
    weight = ramp(2).requires_grad_()
    pair = Pair(lambda x: x + (0 if weight.grad is None else weight.grad))
    pair.same(ramp(2))
    for i in range(4):
        weight.grad = None if i == 2 else ramp(2, start=i)
        pair.same(ramp(2))
        pair.same(ramp(2))


def test_the_default_device_and_dtype() -> None:
    pair = Pair(lambda x: x + genesis.ones(2))
    pair.settle(ramp(2))
    genesis.config.fuse = False
    try:
        pair.settle(ramp(2))
    finally:
        genesis.config.fuse = True


@pytest.mark.parametrize("library", ["numpy", "torch", "triton", "cuda/bindings", "nccl/bindings"])
def test_what_genesis_calls_is_no_code_of_the_user_s(library: str) -> None:
    """A group's first collective makes a communicator in the middle of the call, by functions of cuda.bindings."""
    def inside(folder: str) -> bool:
        return tracer.is_user_code(compile("1", f"/usr/lib/python3/dist-packages/{folder}/enums.py", "exec"))
    assert not inside(library)
    assert inside("somebodys")


def test_a_room_that_is_imported_in_a_call_is_no_code_of_the_user_s() -> None:
    """Nor is a finder that looks for it, as setuptools and editable installations have them. A process of its own has
    not imported the rooms of these ops, whose modules have dataclasses, which are made by `exec`."""
    script = """if True:
        import sys
        class Finder:
            def find_spec(self, name, path, target=None):
                seen.append(open("/dev/null").read() + name)
        seen = []
        sys.meta_path.insert(0, Finder())
        import genesis
        @genesis.compile(fullgraph=True)
        def f(x):
            values, at = x.softmax(-1).topk(2)
            return (values * (at == 1)).sum(-1, keepdim=True)
        x, before = genesis.ones(3, 4), len(seen)
        f(x), f(x)
        assert len(seen) > before, "nothing is imported in the call any more"
        assert (genesis.explain(f).captures, genesis.explain(f).hits) == (1, 1), genesis.explain(f)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr
