"""What `genesis.explain` says of a call that was captured again: which guard failed, its old and its new value."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
from calls import ramp

import genesis
from genesis import nn
from genesis.frontend import patches


def again(compiled: Any) -> tuple[str, str, str]:
    """The last recapture: (guard, before, now)."""
    found = genesis.explain(compiled).recaptures[-1]
    return found.guard, found.before, found.now


# What is around a call

@pytest.mark.parametrize(("around", "guard", "before", "now"), [
    (lambda: genesis.no_grad(), "grad mode", "True", "False"),
    (lambda: genesis.inference_mode(), "inference mode", "False", "True"),
    (lambda: genesis.autocast("cpu", dtype=genesis.bfloat16), "autocast", "off", "bfloat16 on cpu"),
    (lambda: genesis.autograd.detect_anomaly(), "anomaly mode", "False", "True"),
])
def test_a_mode(around: Callable[[], Any], guard: str, before: str, now: str) -> None:
    compiled, x = genesis.compile(lambda x: x * 2), ramp(2)
    compiled(x)
    with around():
        compiled(x)
    assert again(compiled) == (guard, before, now)


def test_autocast_to_another_dtype() -> None:
    compiled = genesis.compile(lambda x: x @ x)
    for dtype in genesis.bfloat16, genesis.float16:
        with genesis.autocast("cpu", dtype=dtype):
            compiled(ramp(2, 2))
    assert again(compiled) == ("autocast", "bfloat16 on cpu", "float16 on cpu")
    compiled(ramp(2, 2))
    assert again(compiled) == ("autocast", "float16 on cpu", "off")


@pytest.mark.parametrize(("name", "value", "guard", "before", "now"), [
    ("fuse", False, "config.fuse", "True", "False"),
    ("float32_products", "tf32", "config.float32_products", "'ieee'", "'tf32'"),
])
def test_a_setting(name: str, value: Any, guard: str, before: str, now: str) -> None:
    compiled = genesis.compile(lambda x: x * 2)
    compiled(ramp(2))
    was = getattr(genesis.config, name)
    setattr(genesis.config, name, value)
    try:
        compiled(ramp(2))
    finally:
        setattr(genesis.config, name, was)
    assert again(compiled) == (guard, before, now)


def test_a_replaced_function_of_genesis() -> None:
    compiled = genesis.compile(lambda x: nn.functional.relu(x))
    compiled(ramp(2))
    was = nn.functional.relu

    def negated(x: Any) -> Any:
        return -x
    nn.functional.relu = negated
    try:
        compiled(ramp(2))
    finally:
        nn.functional.relu = was
    assert patches.replaced == ()
    guard, before, now = again(compiled)
    assert (guard, before) == ("genesis.nn.functional.relu", "Genesis' own") and "negated at test_expl" in now


# Arguments

class Batch:
    def __init__(self, x: Any, kind: str):
        self.x, self.kind = x, kind


@dataclasses.dataclass
class Settings:
    act: str = "relu"
    width: int = 2


Point = collections.namedtuple("Point", "x kind")


@pytest.mark.parametrize(("first", "second", "before", "now"), [
    (lambda: ramp(1, 2, 2, 2), lambda: ramp(1, 2, 2, 2).to(memory_format=genesis.channels_last),
     "tensor f32[1,2,2,2]", "tensor f32[1,2,2,2] of strides (8, 1, 4, 2)"),
    (lambda: ramp(2).requires_grad_(), lambda: nn.Parameter(ramp(2)),
     "tensor f32[2] (a leaf that requires grad)", "Parameter f32[2] (a leaf that requires grad)"),
    (lambda: Batch(ramp(2), "a"), lambda: Batch(ramp(2), "b"),
     "Batch(x=tensor f32[2], kind='a')", "Batch(x=tensor f32[2], kind='b')"),
    (lambda: Point(ramp(2), 1), lambda: Point(ramp(2), 2.0),
     "Point(x=tensor f32[2], kind=1)", "Point(x=tensor f32[2], kind=2.0)"),
    (lambda: (ramp(2),), lambda: [ramp(2)], "(tensor f32[2],)", "[tensor f32[2]]"),
    (lambda: nn.ReLU(), lambda: nn.ReLU(), "a ReLU", "another ReLU"),
    (lambda: Batch, lambda: Settings, "class Batch", "class Settings"),
    (lambda: len, lambda: max, "function len", "function max"),
])
def test_an_argument(first: Callable[[], Any], second: Callable[[], Any], before: str, now: str) -> None:
    def takes(value: Any) -> Any:
        return genesis.ones(1) * 2
    compiled = genesis.compile(takes)
    compiled(first())
    compiled(second())
    assert again(compiled) == ("argument value", before, now)


def test_an_attribute_that_the_user_has_set_on_an_argument() -> None:
    compiled, tagged = genesis.compile(lambda x: x * 2), ramp(2)
    compiled(ramp(2))
    tagged.tag = "a"
    compiled(tagged)
    assert again(compiled) == ("argument x", "tensor f32[2]", "tensor f32[2] with tag='a'")


def test_a_view_as_an_argument() -> None:
    compiled, data = genesis.compile(lambda x: x * 2), ramp(4, 2)
    compiled(ramp(2))
    for row in data:
        compiled(row)
    assert again(compiled) == ("arguments that are views", "none", "tensor f32[2] of strides (1,)")


def test_the_same_tensor_twice() -> None:
    compiled, x = genesis.compile(lambda x, y: x + y), ramp(2)
    compiled(x, ramp(2))
    compiled(x, x)
    assert again(compiled) == ("arguments", "others", "the same tensor twice, or another order")


# What a call reads

def test_an_element_of_a_collection() -> None:
    flags, order, nested = {"flip": False}, [1, "a"], {"model": {"act": "relu"}}

    @genesis.compile
    def f(x: Any) -> Any:
        flipped = -x if flags["flip"] else x
        return flipped * (order[0] if order[1] == "a" else 3) * (2 if nested["model"]["act"] == "relu" else 3)
    f(ramp(2))
    flags["flip"] = True
    f(ramp(2))
    assert again(f) == ("flags['flip']", "False", "True")
    order[1] = "b"
    f(ramp(2))
    assert again(f) == ("order[1]", "'a'", "'b'")
    nested["model"]["act"] = "gelu"
    f(ramp(2))
    assert again(f) == ("nested['act']", "'relu'", "'gelu'")
    flags["more"] = True
    f(ramp(2))
    assert again(f) == ("flags['more']", "missing", "True")


def test_a_list_that_became_longer_or_shorter() -> None:
    scales, window = [1, 2], collections.deque([1, 2])
    f = genesis.compile(lambda x: x * sum(scales) * sum(window))
    f(ramp(2))
    scales.append(7)
    f(ramp(2))
    assert again(f) == ("scales", "[1, 2]", "[1, 2, 7]")
    del scales[1:]
    f(ramp(2))
    assert again(f) == ("scales", "[1, 2, 7]", "[1]")
    window.append(3)
    f(ramp(2))
    assert again(f) == ("window", "deque([1, 2])", "deque([1, 2, 3])")


def test_functions_are_told_apart() -> None:
    def one(x: Any) -> Any:
        return x + 1

    def two(x: Any) -> Any:
        return x + 2
    function = one
    f = genesis.compile(lambda x: function(x))
    f(ramp(2))
    function = two
    f(ramp(2))
    guard, before, now = again(f)
    assert guard == "function" and "one at test_explanations.py:" in before and "two at test_explanations.py:" in now
    two.__code__ = one.__code__
    f(ramp(2))
    assert again(f) == ("__code__", f"code {now.removeprefix('function ')}", f"code {before.removeprefix('function ')}")
    function = functools.partial(one)
    f(ramp(2))
    assert again(f)[2] == "a partial"


def test_what_reads_alike_is_another_one() -> None:
    held, layer = ramp(2), nn.Linear(2, 2)

    def f(x: Any) -> Any:
        return layer(x) + held
    compiled = genesis.compile(f)
    compiled(ramp(2))
    held = ramp(2)
    compiled(ramp(2))
    assert again(compiled) == ("held", "tensor f32[2]", "another tensor f32[2]")
    layer = nn.Linear(2, 2)
    compiled(ramp(2))
    assert again(compiled) == ("layer", "a Linear", "another Linear")
    layer.weight = nn.Parameter(ramp(2, 2))
    compiled(ramp(2))
    assert again(compiled) == ("weight", "Parameter f32[2,2] (a leaf that requires grad)",
                               "another Parameter f32[2,2] (a leaf that requires grad)")


def test_the_class_of_an_object() -> None:
    class Plus:
        def apply(self, x: Any) -> Any:
            return x + 1

    class Minus:
        def apply(self, x: Any) -> Any:
            return x - 1
    op: Any = Plus()
    f = genesis.compile(lambda x: op.apply(x))
    f(ramp(2))
    op.__class__ = Minus
    f(ramp(2))
    assert again(f) == ("the class of an object",
                        "class test_the_class_of_an_object.Plus", "class test_the_class_of_an_object.Minus")


def test_records_that_a_call_reads() -> None:
    settings = Settings()

    def f(x: Any) -> Any:
        return x if settings.act == "relu" else -x
    compiled = genesis.compile(f)
    compiled(ramp(2))
    settings = Settings("neg", 3)
    compiled(ramp(2))
    assert again(compiled) == ("settings", "Settings(act='relu', width=2)", "Settings(act='neg', width=3)")


# What is explained

def test_a_compiled_method_and_what_calls_a_compiled_function_are_explained() -> None:
    class Model:
        @genesis.compile
        def step(self, x: Any, scale: float = 1.0) -> Any:
            return x * scale
    model = Model()
    for _ in range(3):
        model.step(ramp(1))
    for asked in (model.step, Model.step, functools.partial(model.step, scale=2.0)):
        assert (genesis.explain(asked).captures, genesis.explain(asked).hits) == (1, 2)
    assert genesis.explain(model.step)(ramp(1)).hits == 3
    assert genesis.explain(functools.partial(model.step, scale=2.0))(ramp(1)).recaptures[-1].guard == "argument scale"


def test_a_module_whose_forward_was_compiled_is_explained() -> None:
    layer = nn.Linear(2, 2)
    layer.compile()
    for _ in range(3):
        layer(ramp(2))
    assert (genesis.explain(layer).captures, genesis.explain(layer).hits) == (1, 2)
    assert genesis.explain(layer)(ramp(2)).hits == 3
