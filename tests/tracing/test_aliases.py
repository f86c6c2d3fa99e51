"""Arguments that share memory with what the function knows, and what a call does to tensors but write to them."""

from __future__ import annotations

from typing import Any

from calls import ramp

import genesis


def test_a_captured_tensor_is_passed_as_an_argument_too() -> None:
    w = ramp(2)
    compiled = genesis.compile(lambda x: (x.add_(1), w * 2)[1])
    for _ in range(3):
        compiled(genesis.zeros(2))
    assert compiled.hits == 2
    assert compiled(w).tolist() == [4.0, 6.0] and compiled(w.detach()).tolist() == [6.0, 8.0]
    assert compiled.hits == 2 and "shares memory" in genesis.explain(compiled)
    assert compiled(genesis.zeros(2)).tolist() == [6.0, 8.0]
    assert compiled.hits == 3


def test_an_argument_is_compared_with_a_captured_tensor() -> None:
    w = ramp(2)
    compiled = genesis.compile(lambda x: x * 2 if x is w else x * 3)
    assert [compiled(x).tolist() for x in (ramp(2), ramp(2), w, ramp(2))] == [[3.0, 6.0]] * 2 + [[2.0, 4.0], [3.0, 6.0]]


def test_a_state_of_the_optimizer_is_passed_as_an_argument() -> None:
    results = []
    for compiles in (False, True):
        w = ramp(2).requires_grad_()
        optimizer = genesis.optim.SGD([w], lr=0.1, momentum=0.9)

        def step(x: Any, w: Any = w, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            return x * 2
        f = genesis.compile(step) if compiles else step
        found = [f(ramp(2)).tolist() for _ in range(4)]
        results.append([*found, f(optimizer.state[w]["momentum_buffer"]).tolist(), w.tolist()])
    assert results[0] == results[1]


def test_a_gradient_that_grows_between_calls() -> None:
    w = ramp(2).requires_grad_()
    compiled = genesis.compile(lambda: w.grad * 1)
    for i in range(4):
        (w * 2).sum().backward()
        assert compiled().tolist() == [2.0 * (i + 1)] * 2
    assert compiled.hits >= 2


def test_an_argument_is_made_to_show_other_memory() -> None:
    def replaced(x: Any) -> Any:
        x.data = genesis.ones(2) * 3
        return x * 2

    def turned(x: Any) -> Any:
        return x.unsqueeze_(0) * 2
    for function, shape, value in ((replaced, (2,), 3.0), (turned, (1, 2), 1.0)):
        compiled = genesis.compile(function)
        for _ in range(4):
            x = genesis.ones(2)
            compiled(x)
            assert x.shape == shape and x.sum().item() == 2 * value
        assert compiled.hits == 0 and "which memory an argument shows" in genesis.explain(compiled)


def test_a_captured_tensor_is_made_to_show_other_memory() -> None:
    w = ramp(2)

    @genesis.compile
    def f(x: Any) -> Any:
        w.data = x * 3
        return w + 1
    for i in range(4):
        assert f(ramp(2, start=i)).tolist() == [3.0 * i + 1, 3.0 * i + 4]
        assert w.tolist() == [3.0 * i, 3.0 * i + 3]


def test_attributes_are_set_on_tensors() -> None:
    w = ramp(2)

    def on_an_argument(x: Any) -> Any:
        x.tag = 3
        return x * 2

    def on_a_captured_one(x: Any) -> Any:
        w.seen = x * 2
        return x + w

    def on_a_result(x: Any) -> Any:
        y = x * 2
        y.tag = 3
        return y
    compiled = [genesis.compile(f) for f in (on_an_argument, on_a_captured_one, on_a_result)]
    for i in range(4):
        x = ramp(2, start=i)
        for function in compiled:
            y = function(x)
        assert x.tag == y.tag == 3 and w.seen.tolist() == [2.0 * i, 2.0 * i + 2]
    assert [function.hits for function in compiled] == [0, 0, 0]


def test_attributes_of_tensors_are_read() -> None:
    w = ramp(2)
    w.scale = 2.0
    of_an_argument = genesis.compile(lambda x: x * getattr(x, "scale", 1.0))
    of_a_captured_one = genesis.compile(lambda x: x * w.scale)
    for scale in (None, 3.0, 3.0, 4.0, None):
        x = genesis.ones(1)
        if scale is not None:
            x.scale = w.scale = scale
        assert of_an_argument(x).item() == (scale or 1.0)
        assert of_a_captured_one(genesis.ones(1)).item() == w.scale
