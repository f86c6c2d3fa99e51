"""What a replay returns: new memory each time, in the structure that the function returned."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
from calls import Pair, ramp, values

import genesis

Two = collections.namedtuple("Two", "first second")


@dataclasses.dataclass
class Output:
    logits: Any
    rest: Any = None
    size: int = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    first: Any
    second: Any


def test_results_keep_their_values_over_five_calls() -> None:
    def three(x: Any) -> Any:
        return x + 1, x * 2, (x - 1).sum()
    compiled = genesis.compile(three)
    kept = [compiled(ramp(3, start=i)) for i in range(5)]
    assert [values(x) for x in kept] == [values(three(ramp(3, start=i))) for i in range(5)]
    assert compiled.hits == 4
    kept[0][0].add_(100)
    assert values(kept[1:]) == values([three(ramp(3, start=i)) for i in range(1, 5)])


def test_results_of_a_step_keep_their_values() -> None:
    w = ramp(3).requires_grad_()
    optimizer = genesis.optim.SGD([w], lr=0.1)

    @genesis.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        y = w * x
        loss = (y * y).sum()
        loss.backward()
        optimizer.step()
        return loss, y, w.detach() * 1

    expected, other = [], ramp(3)
    kept = []
    for i in range(5):
        x = ramp(3, start=i) * 0.1
        y = other * x
        expected.append([(y * y).sum().item(), y.tolist()])
        other = other - 0.1 * 2 * y * x
        expected[-1].append(other.tolist())
        kept.append(step(x))
    assert step.hits == 4
    for ours, theirs in zip(kept, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.tolist() == pytest.approx(b, rel=1e-5)


@pytest.mark.parametrize("function", [
    lambda x: None,
    lambda x: (x, None, 3, 2.5, "name", True),
    lambda x: [x + 1, [x + 2, (x + 3,)]],
    lambda x: {"a": x + 1, "b": {"c": [x * 2]}},
    lambda x: Two(x + 1, Two(x + 2, 3)),
    lambda x: (x + 1).view(3, 1),
    lambda x: (lambda y: (y, y[1:], y.view(3, 1)))(x * 2),
    lambda x: x,
    lambda x: (x, x.add_(0)),
    lambda x: (),
    lambda x: genesis.zeros(2),
    lambda x: genesis.arange(4) * 2,
    lambda x: x.shape,
    lambda x: [x + 1, True, [3, "a", {"b": False}]],
    lambda x: (x.dtype, x.device, ..., slice(1, 2)),
], ids=range(15))
def test_structures(function: Any) -> None:
    pair = Pair(function)
    pair.settle(ramp(3))
    pair.same(ramp(3, start=4))


def test_the_same_tensor_twice_is_one_tensor() -> None:
    @genesis.compile
    def twice(x: Any) -> Any:
        y = x + 1
        return y, [y], y[:1]
    for _ in range(3):
        a, (b,), part = twice(ramp(2))
        assert a is b
        a.mul_(10)
        assert part.tolist() == [20.0]
    assert twice.hits == 2


@pytest.mark.parametrize("function, reason", [
    (lambda x: x[1:], "a view of an argument"),
    (lambda x: x.detach(), "a view of an argument"),
    (lambda x: {1, 2}, "a set"),
    (lambda x: (y for y in [x]), "a generator"),
    (lambda x: lambda: x, "a function"),
])
def test_what_cannot_be_made_again_is_recorded(function: Any, reason: str) -> None:
    compiled = genesis.compile(function)
    for _ in range(4):
        compiled(ramp(3))
    assert compiled.hits == 0 and reason in genesis.explain(compiled)


def test_a_returned_view_of_an_argument_shares_its_memory() -> None:
    compiled = genesis.compile(lambda x: x[1:])
    for _ in range(3):
        x = ramp(3)
        compiled(x).zero_()
        assert x.tolist() == [1.0, 0.0, 0.0]


def test_a_returned_parameter_is_the_parameter() -> None:
    layer = genesis.nn.Linear(2, 2)
    compiled = genesis.compile(lambda: layer.weight)
    assert all(compiled() is layer.weight for _ in range(3))


def test_a_returned_container_of_the_caller_s_is_that_container() -> None:
    store: dict[str, Any] = {"scale": 2.0}
    compiled = genesis.compile(lambda items, x: (items, store, x * store["scale"]))
    items = [1, 2]
    for _ in range(4):
        first, second, _ = compiled(items, ramp(2))
        assert first is items and second is store


def test_an_object_is_returned() -> None:
    class Output:
        def __init__(self, x: Any):
            self.x = x
    compiled = genesis.compile(lambda x: Output(x + 1))
    found = [compiled(ramp(1, start=i)) for i in range(3)]
    assert [(type(each), each.x.tolist()) for each in found] == [(Output, [i + 1.0]) for i in range(3)]
    assert compiled.hits == 2
    kept = Output(ramp(1))
    assert genesis.compile(lambda x: kept)(ramp(1)) is kept
    compiled = genesis.compile(lambda x: (kept, x + 1))
    assert all(compiled(ramp(1))[0] is kept for _ in range(3)), genesis.explain(compiled)


@pytest.mark.parametrize("kind", [Output, Frozen])
def test_a_dataclass_is_returned(kind: Any) -> None:
    compiled = genesis.compile(lambda x: kind(x + 1, [kind(x * 2, "name")]))
    for i in range(4):
        found = compiled(ramp(1, start=i))
        assert type(found) is kind
        first, rest = (getattr(found, field.name) for field in dataclasses.fields(kind)[:2])
        inner, name = (getattr(rest[0], field.name) for field in dataclasses.fields(kind)[:2])
        assert (first.item(), inner.item(), name) == (i + 1.0, i * 2.0, "name")
    assert compiled.hits == 3


def test_a_dataclass_that_others_hold_is_that_one() -> None:
    kept = Output(ramp(1))
    compiled = genesis.compile(lambda x: (kept, x * kept.size))
    assert all(compiled(ramp(1))[0] is kept for _ in range(3))


def test_a_generator_runs_when_it_is_asked() -> None:
    def steps(x: Any) -> Any:
        for i in range(3):
            yield x * i
    compiled = genesis.compile(steps)
    for start in range(3):
        assert [y.item() for y in compiled(ramp(1, start=start))] == [0.0, start * 1.0, start * 2.0]
    assert "a generator" in genesis.explain(compiled)


def test_a_step_returns_what_its_backward_went_through() -> None:
    for compiles in (False, True):
        w, v = ramp(2).requires_grad_(), ramp(2).requires_grad_()
        optimizer = genesis.optim.SGD([w], lr=0.1)

        def step(x: Any, w: Any = w, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            y = w * x
            loss = (y * y).sum()
            loss.backward()
            optimizer.step()
            return loss, y, y.detach(), y[1:]
        f = genesis.compile(step) if compiles else step
        for _ in range(4):
            assert [x.requires_grad for x in f(ramp(2))] == [True, True, False, True]
        assert not compiles or f.hits == 3

        def beside(x: Any, w: Any = w, v: Any = v, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()
            return x * v, w * 3
        f = genesis.compile(beside) if compiles else beside
        for _ in range(4):
            v.grad = None
            first, second = f(ramp(2))
            assert first.requires_grad and second.requires_grad
            first.sum().backward()
            assert v.grad.tolist() == [1.0, 2.0]


def test_what_is_made_in_inference_mode_stays_so() -> None:
    def f(x: Any) -> Any:
        with genesis.inference_mode():
            y = x * 2
        return y, x * 3
    compiled = genesis.compile(f)
    for _ in range(3):
        assert [x.is_inference() for x in compiled(ramp(2))] == [True, False]
    assert compiled.hits == 2


def test_a_second_result_is_read_after_a_write_to_the_first() -> None:
    compiled = genesis.compile(lambda x: (lambda y: (y, y * 2, y.view(1, 2)))(x + 1))
    for i in range(3):
        y, doubled, shown = compiled(ramp(2, start=i))
        y.zero_()
        assert doubled.tolist() == [2.0 * i + 2, 2.0 * i + 4] and shown.tolist() == [[0.0, 0.0]]
    assert compiled.hits == 2


def test_an_attribute_that_the_function_sets_on_its_result() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.note = "doubled"
        return y
    compiled = genesis.compile(f)
    assert [compiled(ramp(2)).note for _ in range(4)] == ["doubled"] * 4


class Loss(NamedTuple):
    logits: Any
    loss: Any = None


def test_a_field_of_a_named_tuple_is_read_by_its_name() -> None:
    """As `model(ids, labels=ids).loss` does."""
    w = ramp(3).requires_grad_()
    optimizer = genesis.optim.SGD([w], lr=0.1)

    def model(x: Any) -> Loss:
        return Loss(w * x, (w * x).square().sum())

    @genesis.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        out.loss.backward()
        optimizer.step()
        return out.loss.detach()

    losses = [step(ramp(3)).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[3]
    assert (genesis.explain(step).captures, step.hits) == (1, 3)
