"""What a call is looked up by: its arguments, and the modes that it runs in."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from calls import Pair, ramp, values

import genesis


def test_equal_calls_are_replayed() -> None:
    pair = Pair(lambda x: x * 2 + 1)
    assert [pair.replays(ramp(3, start=i)) for i in range(4)] == [False, True, True, True]
    assert pair.refused == ""


@pytest.mark.parametrize("first, second", [
    (ramp(3), ramp(4)),
    (ramp(1), ramp(2)),
    (ramp(2, 3), ramp(3, 2)),
    (ramp(3), ramp(3, 1)),
    (ramp(3), ramp(3).double()),
    (ramp(3), ramp(3).long()),
    (ramp(3), ramp(3).bool()),
    (ramp(3), genesis.tensor(5.0)),
    (ramp(3), genesis.zeros(0)),
], ids=lambda x: f"{list(x.shape)} {x.dtype}")
def test_a_tensor_of_another_type(first: Any, second: Any) -> None:
    pair = Pair(lambda x: (x * 2).sum() + x.numel() + x.shape[0] if x.ndim else x * 3)
    for _ in range(3):
        pair.same(first)
        pair.same(second)
    assert pair.compiled.hits == 4


@pytest.mark.parametrize("first, second", [
    (2, 3), (2, 2.0), (1, True), (0, False), (0.0, -0.0), (1.5, float("nan")), (None, 0),
    ("cpu", "cuda"), ("a", b"a"), ([1, 2], [2, 1]),
    ([1, 2], (1, 2)), ([1], [1, 1]), ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 2}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (("a", (1, 2)), ("a", (1, 3))), (genesis.float32, genesis.float64), ([], ()),
], ids=repr)
def test_a_plain_value_is_a_guard(first: Any, second: Any) -> None:
    def tell(x: Any, value: Any) -> Any:
        return x + 1, repr(value)
    pair = Pair(tell)
    for _ in range(2):
        for value in (first, second):
            pair.same(ramp(2), value)
            assert pair.replays(ramp(2), value)


def test_keywords_and_positions() -> None:
    def mix(*tensors: Any, scale: float = 1.0, **named: Any) -> Any:
        total = sum(tensors) * scale
        return {name: total + x for name, x in named.items()} or total
    pair = Pair(mix)
    x, y = ramp(2), ramp(2, start=5)
    for _ in range(2):
        pair.same(x)
        pair.same(x, y)
        pair.same(x, y, scale=2.0)
        pair.same(x, scale=2.0, a=y)
        pair.same(x, scale=2.0, b=y)
        pair.same(x, a=x, b=y)
        pair.same(x, b=y, a=x)
    assert pair.compiled.hits == 7


def test_a_device_argument() -> None:
    pair = Pair(lambda x, device: x.to(device) + genesis.ones(2, device=device))
    pair.settle(ramp(2), "cpu")
    pair.settle(ramp(2), genesis.device("cpu"))


def test_one_tensor_twice_is_another_call_than_two_tensors() -> None:
    def add_to_first(x: Any, y: Any) -> Any:
        x.add_(1)
        return x + y
    compiled = genesis.compile(add_to_first)
    for start in range(4):
        x, y = ramp(2, start=start), ramp(2, start=start)
        assert compiled(x, y).tolist() == [start * 2 + 1, start * 2 + 3]
        assert compiled(x, x).tolist() == [start * 2 + 4, start * 2 + 6]
    assert compiled.hits == 6


def test_views_of_one_memory() -> None:
    def write_first(x: Any, y: Any) -> Any:
        x.mul_(10)
        return y + 0
    compiled = genesis.compile(write_first)
    for _ in range(3):
        whole = ramp(4)
        assert compiled(whole[:2], whole[1:3]).tolist() == [20.0, 3.0]
        assert whole.tolist() == [10.0, 20.0, 3.0, 4.0]
        assert compiled(whole.view(2, 2), whole).tolist() == [100.0, 200.0, 30.0, 40.0]


def test_a_view_is_an_argument() -> None:
    pair = Pair(lambda x: x * 2)
    whole = ramp(6)
    for i in range(4):
        pair.same(whole[i:i + 2])
        pair.same(whole.view(2, 3).t())
        pair.same(whole.view(3, 2))
        pair.same(whole.expand(2, 6))


def test_writing_through_a_view() -> None:
    compiled = genesis.compile(lambda x: x.add_(1).sum())
    whole = ramp(4)
    for i in range(3):
        compiled(whole[i:i + 2])
    assert whole.tolist() == [2.0, 4.0, 5.0, 5.0]


def test_the_model_s_own_parameter_is_an_argument() -> None:
    layer = genesis.nn.Linear(2, 2, bias=False)

    def scaled(w: Any, x: Any) -> Any:
        w.mul_(2)
        return layer(x)
    with genesis.no_grad():
        compiled = genesis.compile(scaled)
        x = ramp(1, 2)
        for _ in range(3):
            other = layer.weight.detach().clone()
            before = layer(x).tolist()
            assert compiled(other, x).tolist() == before
            assert compiled(layer.weight, x).tolist() == [[v * 2 for v in before[0]]]


def test_in_place_on_an_argument() -> None:
    compiled = genesis.compile(lambda x: x.mul_(3))
    for i in range(3):
        x = ramp(2, start=i)
        result = compiled(x)
        assert result is x
        assert x.tolist() == [i * 3, i * 3 + 3]
    assert compiled.hits == 2


def test_what_wants_gradients() -> None:
    pair = Pair(lambda x: x * 2)
    leaf, plain = ramp(2).requires_grad_(), ramp(2)
    computed = leaf * 1
    for _ in range(2):
        for x in (leaf, plain, computed, computed.detach(), leaf.detach()):
            pair.same(x)
    assert pair.compiled(leaf).requires_grad and not pair.compiled(plain).requires_grad


def test_grad_mode() -> None:
    pair = Pair(lambda x: (x * 2, genesis.is_grad_enabled()))
    x = ramp(2).requires_grad_()
    for _ in range(2):
        for mode in (genesis.enable_grad, genesis.no_grad, genesis.inference_mode):
            with mode():
                pair.same(x)
    assert pair.compiled.hits >= 3


def test_autocast() -> None:
    layer = genesis.nn.Linear(4, 4)
    pair = Pair(lambda x: layer(x))
    x = ramp(2, 4)
    for _ in range(2):
        pair.same(x)
        for dtype in (genesis.bfloat16, genesis.float16):
            with genesis.autocast("cpu", dtype=dtype):
                assert str(dtype) in str(pair.same(x))
                with genesis.autocast("cpu", enabled=False):
                    pair.same(x)
    assert pair.compiled.hits == 7  # without autocast is the same four times


def test_a_function_argument() -> None:
    scale = [2.0]

    def double(x: Any) -> Any:
        return x * scale[0]
    pair = Pair(lambda f, x: f(x))
    for _ in range(2):
        pair.settle(double, ramp(2))
        pair.same(functools.partial(double), ramp(2))
        pair.same(lambda x: x + 1, ramp(2))
    scale[0] = 5.0
    assert not pair.replays(double, ramp(2))


def test_an_object_argument_is_compared_by_what_it_holds() -> None:
    class Box:
        def __init__(self, x: Any, factor: float = 2.0):
            self.x, self.factor = x, factor
    pair = Pair(lambda box: box.x * box.factor)
    assert [pair.replays(Box(ramp(2, start=start))) for start in range(3)] == [False, True, True]
    assert [pair.replays(Box(ramp(2 + i), 3.5 + i)) for i in range(4)][2:] == [True, True]
    assert not pair.replays(Box(ramp(2), ramp(2)))  # a tensor instead of a number


def test_an_object_that_calls_write_to_is_the_same_in_the_next_one() -> None:
    class Counter:
        def __init__(self) -> None:
            self.total, self.calls = ramp(2), 0

    def step(counter: Any, x: Any) -> Any:
        counter.total = counter.total + x
        counter.calls += 1
        return counter.total * 2
    plain, ours = Counter(), Counter()
    compiled = genesis.compile(step)
    for i in range(6):
        assert values(compiled(ours, ramp(2, start=i))) == values(step(plain, ramp(2, start=i)))
        assert (values(ours.total), ours.calls) == (values(plain.total), plain.calls)
    assert compiled.hits >= 3, genesis.explain(compiled)
    other = Counter()  # another object of the class is not this one
    assert values(compiled(other, ramp(2))) == values(ramp(2) * 4)
    assert (ours.calls, other.calls) == (6, 1)


def test_a_list_argument_that_is_changed() -> None:
    def push(items: list, x: Any) -> Any:
        items.append(x + 1)
        return len(items)

    def swap(items: list) -> Any:
        items[0] = items[0] * 2
        return items[0] + 1
    for function in (push, swap):
        compiled = genesis.compile(function)
        ours, theirs = [ramp(2)], [ramp(2)]
        for i in range(5):
            extra = (ramp(2, start=i),) if function is push else ()
            assert values(compiled(ours, *extra)) == values(function(theirs, *extra))
            assert values(ours) == values(theirs)
        assert compiled.hits == 0


def test_arguments_that_always_differ_do_not_fill_the_memory() -> None:
    pair = Pair(lambda x, n: (x, str(n)))
    for n in range(100):
        pair.same(ramp(2), n)
    assert len(pair.compiled._entries) <= 64
    assert "differ from call to call" in pair.refused
    assert pair.replays(ramp(2), 0)  # what was captured before is still replayed


def test_a_batch_over_a_numpy_buffer() -> None:
    buffer = np.zeros(2, np.float32)
    weight = ramp(2).requires_grad_()
    optimizer = genesis.optim.SGD([weight], lr=0.0)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss
    for compiled in (genesis.compile(lambda x: x * 2 + 1), genesis.compile(step)):
        kept = []
        for i in range(4):
            buffer[:] = i
            kept.append(compiled(genesis.from_numpy(buffer)))
        assert [x.tolist() for x in kept] == ([[2.0 * i + 1] * 2 for i in range(4)] if kept[0].ndim else
                                              [3.0 * i for i in range(4)])
        assert compiled.hits == 3, genesis.explain(compiled)


class _Numbers(list[float]):
    kind = 1.0


class _Names(dict[str, float]):
    kind = 1.0


class _Count(int):
    kind = 1.0


class _Text(str):
    kind = 1.0


class _Row(tuple[float, ...]):
    kind = 1.0


@pytest.mark.parametrize("given", [_Numbers([1.0]), _Names(a=1.0), _Count(3), _Text("abc"), _Row((1.0,))],
                         ids=lambda given: type(given).__name__)
def test_attributes_of_an_argument_that_derives_from_a_plain_class(given: Any) -> None:
    """Those of the object, and those of its class."""
    compiled = genesis.compile(lambda x, given: x * given.scale * given.kind)
    given.scale = 2.0
    steps = [(lambda: None, 2), (lambda: setattr(given, "scale", 5.0), 5),
             (lambda: setattr(type(given), "kind", 3.0), 15), (lambda: setattr(given, "kind", 2.0), 10)]
    for change, expected in steps:
        change()
        for _ in range(3):
            assert compiled(genesis.ones(1), given).item() == expected
    assert compiled.hits >= 4


def test_an_argument_whose_class_answers_for_all_names_is_asked_for_none() -> None:
    class Sizes(tuple):
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            return {}[name]

    double = genesis.compile(lambda sizes, x: x * sizes[0])
    for factor in (2, 2, 2, 3):
        assert double(Sizes((factor, 3)), genesis.ones(2)).tolist() == [factor, factor]
    assert double.hits
