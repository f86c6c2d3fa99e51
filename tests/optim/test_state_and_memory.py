"""Optimizers whose state was taken away, and parameters whose memory others see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_programs import check

import genesis
from genesis.runtime.cpu.executor import CPUExecutor

KINDS = {name: {"lr": 0.05} for name in ("Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop",
                                       "ASGD")}
KINDS.update(SGD={"lr": 0.05, "momentum": 0.9}, RMSprop={"lr": 0.05, "momentum": 0.9, "centered": True})
LARGE = 600  # × LARGE elements: more than what is copied when it is read


def _step(optimizer: Any, loss: Any) -> None:
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_was_cleared_begins_anew(kind: str) -> None:
    def program(T, nn, optim, np):
        w, u = (T.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        optimizer = getattr(optim, kind)([w, u], **KINDS[kind])
        for step in range(6):
            if step == 2:
                optimizer.state.clear()
            if step == 4:
                del optimizer.state[w]
            _step(optimizer, lambda: (w ** 2).sum() + (u ** 3).sum())
        return w, u
    check(program, rtol=1e-4)  # rounding is carried through six steps


def test_momentum_that_is_turned_on_and_off_later() -> None:
    def program(T, nn, optim, np):
        w = T.tensor([1.0, 2.0], requires_grad=True)
        optimizer = optim.SGD([w], lr=0.1)
        for momentum in (0, 0.9, 0.9, 0):
            optimizer.param_groups[0]["momentum"] = momentum
            _step(optimizer, lambda: (w ** 2).sum())
        return w
    check(program)


def test_a_compiled_step_notices_that_the_state_was_cleared() -> None:
    def train(library: Any, compiled: Any) -> list[float]:
        w = library.ones(3, requires_grad=True)
        optimizer = library.optim.Adam([w], lr=0.1)
        step = compiled(lambda: _step(optimizer, lambda: (w ** 2).sum()))
        for count in range(8):
            if count == 5:
                optimizer.state.clear()
            step()
        return w.tolist()
    np.testing.assert_allclose(train(genesis, genesis.compile), train(torch, lambda f: f), rtol=1e-5)


def test_a_compiled_step_notices_that_momentum_was_turned_off() -> None:
    """The buffer stays as it was while there is no momentum, and is there again when there is."""
    found = []
    for compiled in (False, True):
        w = genesis.tensor([1.0, 2.0], requires_grad=True)
        optimizer = genesis.optim.SGD([w], lr=0.1, momentum=0.9)

        def step(w: Any = w, optimizer: Any = optimizer) -> None:
            _step(optimizer, lambda: (w ** 2).sum())
        run = genesis.compile(step) if compiled else step
        for momentum in (0.9, 0.9, 0.9, 0.9, 0.0, 0.9):
            optimizer.param_groups[0]["momentum"] = momentum
            run()
        found.append([w.tolist(), optimizer.state[w]["momentum_buffer"].tolist(), optimizer.state[w]["step"]])
    assert found[0] == found[1]


def test_a_compiled_step_that_finds_no_memory_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory weights, moments and the count stay, and the step can be repeated."""
    found = []
    for failing in (False, True):
        w = genesis.tensor([1.0, 2.0], requires_grad=True)
        optimizer = genesis.optim.AdamW([w], lr=0.1)

        @genesis.compile
        def step(w: Any = w, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (w ** 2).exp().sum() * 2 + 1
            loss.backward()
            optimizer.step()
            return loss.detach()
        for number in range(6):
            if failing and number == 4:
                assert step.hits
                with monkeypatch.context() as patched:
                    patched.setattr(CPUExecutor, "start", _no_memory)
                    with pytest.raises(MemoryError):
                        step().item()
                assert optimizer.state[w]["step"] == 4
            step().item()
        found.append([w.tolist(), optimizer.state[w]["exp_avg"].tolist(), optimizer.state[w]["step"]])
    assert found[0] == found[1]


def _no_memory(*args: Any) -> Any:
    raise MemoryError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("origin", ["numpy sees it", "from_numpy"])
def test_large_parameters_that_numpy_sees(origin: str, kind: str) -> None:
    """A step reads all parameters and states before it writes the first, though numpy sees each write at once."""
    def program(T, nn, optim, np):
        arrays = [np.full(shape, value, np.float32) for shape, value in (
            ((LARGE, LARGE), 1.0), ((3,), 1.0), ((LARGE, LARGE), 2.0))]
        parameters = [nn.Parameter(T.from_numpy(x) if origin == "from_numpy" else T.tensor(x)) for x in arrays]
        seen = [p.detach().numpy() for p in parameters]
        optimizer = getattr(optim, kind)(parameters, **KINDS[kind])
        found = []
        for _ in range(3):
            _step(optimizer, lambda: ((parameters[0] * parameters[2]).mean() * parameters[1].sum() - 3) ** 2 * 0.1)
            found.append([float(x.reshape(-1)[1]) for x in seen])
            seen[1][0] += 1
        return found, [p.reshape(-1)[:4] for p in parameters]
    check(program, rtol=1e-4)  # sums over 360000 elements, in another order


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_parameters_that_share_elements_are_updated_one_after_the_other(kind: str) -> None:
    def program(T, nn, optim, np):
        memory = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
        whole = nn.Parameter(T.arange(6.0).view(2, 3))
        turned, row = nn.Parameter(whole.detach().t()), nn.Parameter(whole.detach()[0])
        one, other = nn.Parameter(T.from_numpy(memory)[0]), nn.Parameter(T.from_numpy(memory).t()[1:])
        parameters = [whole, turned, row, one, other]
        optimizer = getattr(optim, kind)(parameters, lr=0.1)
        for _ in range(2):
            _step(optimizer, lambda: sum((p ** 2).sum() for p in parameters))
        return parameters, memory
    check(program)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_of_a_model_that_is_made_float64_later(nesterov: bool) -> None:
    def program(T, nn, optim, np):
        layer = nn.Linear(2, 1)
        with T.no_grad():
            layer.weight.fill_(0.5)
            layer.bias.fill_(0.25)
        optimizer = optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov)
        for step in range(5):
            if step == 2:
                layer.double()
            _step(optimizer, lambda: layer(T.ones(3, 2, dtype=layer.weight.dtype)).pow(2).mean())
        return [*layer.parameters(), *[optimizer.state[p]["momentum_buffer"] for p in layer.parameters()]]
    check(program, rtol=1e-5)  # buffers are float32


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_moments_of_a_model_that_is_made_float64_later(kind: str) -> None:
    """torch refuses the step; here its moments stay float32, and the parameters follow those of a float64 model."""
    def train(later: bool) -> tuple[list[float], set[Any]]:
        w = genesis.nn.Parameter(genesis.tensor([1.0, 2.0], dtype=genesis.float32 if later else genesis.float64))
        optimizer = getattr(genesis.optim, kind)([w], lr=0.05, weight_decay=0.1)
        for step in range(6):
            if later and step == 2:
                w.data = w.data.double()
            _step(optimizer, lambda: (w ** 2).sum())
        return w.tolist(), {optimizer.state[w][name].dtype for name in ("exp_avg", "exp_avg_sq")}
    mixed, exact = train(True), train(False)
    np.testing.assert_allclose(mixed[0], exact[0], rtol=1e-6)  # six float32 roundings
    assert mixed[1] == {genesis.float32}
