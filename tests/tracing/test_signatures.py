"""What tells two calls of a compiled function apart before any guard is asked: modes, settings, and which tensors are
one."""

from __future__ import annotations

from typing import Any

import pytest
from calls import Pair, ramp, values

import genesis
from genesis import config


def test_a_mode_that_the_function_asks_for() -> None:
    """Grad mode and inference mode are neither globals nor arguments, and a function may branch on them."""
    def f(x: Any) -> Any:
        if genesis.is_inference_mode_enabled():
            return x * 2
        return x * 3 if genesis.is_grad_enabled() else x * 5
    pair, x = Pair(f), ramp(3)
    for _ in range(2):
        pair.settle(x)
        with genesis.no_grad():
            pair.settle(x)
        with genesis.inference_mode():
            pair.settle(x)


def test_a_compiled_step_after_a_setting_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step replays its plan itself, which was made with the settings of then."""
    w = ramp(3).requires_grad_()
    optimizer = genesis.optim.SGD([w], lr=0.1)

    @genesis.compile
    def step(x: Any) -> None:
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    def replayed() -> bool:
        before = step.hits
        step(ramp(3))
        return bool(step.hits > before)
    assert any(replayed() for _ in range(4))
    monkeypatch.setattr(config, "deterministic", not config.deterministic)
    assert not replayed() and any(replayed() for _ in range(4))


def test_which_of_three_arguments_are_one_tensor() -> None:
    pair = Pair(lambda a, b, c: a - b * 2 + c * 4)
    x, y = ramp(3), ramp(3, start=10)
    for _ in range(2):
        assert pair.replays(x, x, y) is pair.replays(x, y, x) is pair.replays(x, y, y) is bool(_)


def test_two_arguments_over_one_memory() -> None:
    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 10
    compiled = genesis.compile(f)
    for one in (True, True, True, False, False, True):
        x, y = ramp(3), ramp(3)
        others = [t.detach() if one else t.clone().detach() for t in (x, y)]
        assert values(compiled(x, others[0])) == values(f(y, others[1]))
        assert x.tolist() == y.tolist()


def test_a_view_as_an_argument_that_is_written_to() -> None:
    def f(a: Any) -> Any:
        a.add_(1)
        return a * 2
    compiled = genesis.compile(f)
    for rows in (slice(0, 2), slice(2, 4), slice(1, 3), slice(0, 2)):
        x, y = ramp(4), ramp(4)
        assert values(compiled(x[rows])) == values(f(y[rows]))
        assert x.tolist() == y.tolist()


def test_a_step_that_overwrites_what_a_backward_will_read() -> None:
    """The gradient is that of the content that was read, or an error; never that of the new content."""
    w, total = ramp(2).requires_grad_(), genesis.zeros(2)
    optimizer = genesis.optim.SGD([w], lr=0.1)

    @genesis.compile
    def step(x: Any) -> None:
        optimizer.zero_grad()
        total.add_(x)
        (w * x).sum().backward()
        optimizer.step()
    for _ in range(4):
        step(ramp(2))
    assert step.hits
    other = ramp(2).requires_grad_()
    loss, before = (other * total).sum(), total.tolist()
    loss.item()
    step(ramp(2))
    assert total.tolist() != before
    try:
        loss.backward()
        found = other.grad.tolist()
    except RuntimeError:
        return
    assert found == before


def test_captures_of_arguments_that_never_come_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genesis.tracing.compiled_function._SIGNATURES", 16)
    pair = Pair(lambda x, n: (x * 2, str(n)))
    for n in range(20):
        pair.same(ramp(3), n)
        pair.same(ramp(3), n)
    assert pair.replays(ramp(3), 19) and pair.replays(ramp(3), 10)
    assert not pair.replays(ramp(3), 0), "the oldest is gone"
