"""genesis.checkpoint: the same values and gradients as without, from less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint

import genesis
from genesis import engine, nn
from genesis.cli.inspect import program_for
from genesis.nn import functional as F
from genesis.utils.checkpoint import checkpoint, checkpoint_sequential

DEPTH, DIM = 4, 64


def block(dropout: float = 0.0) -> Any:
    return nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * DIM, DIM))


def model(dropout: float = 0.0) -> list[Any]:
    genesis.manual_seed(0)
    layers = [block(dropout) for _ in range(DEPTH)]
    genesis.eval(*(p for layer in layers for p in layer.parameters()))
    return layers


Call = Callable[..., Any]


def plain(function: Call, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def kept(function: Call, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=False, **kwargs)


def nested(function: Call, *args: Any, **kwargs: Any) -> Any:
    return kept(lambda *a: kept(function, *a, **kwargs), *args)


def gradients(call: Call, dropout: float = 0.0, read_first: bool = False) -> tuple[list[np.ndarray], Any]:
    """(gradients of all parameters and the input, the plan that made them)."""
    layers = model(dropout)
    x = genesis.randn(128, DIM).requires_grad_()
    genesis.eval(x)
    genesis.manual_seed(7)
    h = x
    for layer in layers:
        h = h + call(layer, h)
    loss = (h * h).mean()
    if read_first:
        loss.item()
    loss.backward()
    found = [x.grad, *(p.grad for layer in layers for p in layer.parameters())]
    genesis.eval(*found)
    return [g.numpy() for g in found], engine.last_plan()


@pytest.mark.parametrize("read_first", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("call", [kept, nested])
def test_gradients_are_those_without_it_bit_for_bit(call: Call, dropout: float, read_first: bool) -> None:
    """The same kernels over the same values: on the CPU every op is one, so nothing may differ, masks included."""
    for one, other in zip(gradients(plain, dropout, read_first)[0], gradients(call, dropout, read_first)[0],
                          strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("call, most", [(kept, 0.6), (nested, 0.6)])
def test_the_peak_is_lower(target: str, call: Call, most: float) -> None:
    """Of DEPTH layers' activations one layer's are alive at a time, besides each layer's input (1 of 13 parts)."""
    without, within = (gradients(c)[1] for c in (plain, call))
    peaks = [(c.stages["memory"] if target == "cpu" else program_for(c, target).memory).max_live_bytes
             for c in (without, within)]
    assert peaks[1] <= most * peaks[0]


def test_reading_the_loss_first_keeps_only_what_regions_read() -> None:
    """What a flush keeps for a backward that may come: 4 inputs of layers, not 4 × (input + 2 × 4 parts)."""
    def saved(call: Call) -> int:
        layers = model()
        h = genesis.randn(128, DIM)
        for layer in layers:
            h = h + call(layer, h)
        loss = (h * h).mean()
        loss.item()
        return sum(x.nbytes for x in engine.last_plan().plan.outputs)  # type: ignore[union-attr]
    assert saved(kept) < 0.4 * saved(plain)


# What is called, and with what

def both(ours: Call, theirs: Call, shape: tuple[int, ...] = (3, 4)) -> None:
    """The function of x in both libraries, checkpointed: values and gradients of its sum agree."""
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, t = genesis.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    y, u = ours(genesis, kept, x), theirs(torch, _theirs, t)
    np.testing.assert_allclose(y.detach().numpy(), u.detach().numpy(), rtol=1e-6)
    y.sum().backward()
    u.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-6)


def _theirs(function: Call, *args: Any, **kwargs: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)


FUNCTIONS: dict[str, Call] = {
    "no tensor argument": lambda lib, call, x: call(lambda: x.sin() * x),
    "numbers, names and None": lambda lib, call, x: call(
        lambda x, n, name, none: getattr(x, name)() * n, x, 3, "exp", None),
    "keyword arguments": lambda lib, call, x: call(lambda x, *, scale: (x * scale).tanh(), x, scale=2.0),
    "a value computed before": lambda lib, call, x: (lambda z: call(lambda x: (x * z).sin(), x))(x.exp()),
    "several results": lambda lib, call, x: (lambda a, b: a.exp() * b)(*call(lambda x: (x.sin(), x.cos()), x)),
    "nested results": lambda lib, call, x: (lambda d: d["a"][0] * d["b"])(
        call(lambda x: {"a": [x.sin()], "b": x * 2}, x)),
    "a result twice": lambda lib, call, x: (lambda a, b: a + b)(*call(lambda x: (lambda y: (y, y))(x.sin()), x)),
    "the argument itself": lambda lib, call, x: call(lambda x: x, x * 2) * 3,
    "a result without gradient": lambda lib, call, x: (lambda a, b: a * b)(
        *call(lambda x: (x.sin(), x.detach().cos()), x)),
    "a write to a value of its own": lambda lib, call, x: call(lambda x: x.exp().add_(x).mul_(2), x),
    "a view of the argument": lambda lib, call, x: call(lambda x: x.t()[1:].sin(), x).exp(),
    "one region after the other": lambda lib, call, x: call(lambda y: y.sin(), call(lambda x: x.exp(), x)),
    "the same region twice": lambda lib, call, x: call(lambda y: y.sin(), x) + call(lambda y: y.sin(), x),
    "an unused argument": lambda lib, call, x: call(lambda x, y: x.sin(), x, x * 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_as_in_torch(name: str) -> None:
    both(FUNCTIONS[name], FUNCTIONS[name])


def test_a_random_number_is_drawn_once() -> None:
    """The mask is that of the program without the region, and the next draw is, too."""
    def program(call: Call) -> list[np.ndarray]:
        genesis.manual_seed(3)
        x = genesis.ones(4, 5, requires_grad=True)
        y = call(lambda x: F.dropout(x * 2, 0.5) + genesis.rand(4, 5), x)
        after = genesis.rand(3)
        y.sum().backward()
        return [y.detach().numpy(), x.grad.numpy(), after.numpy()]
    for one, other in zip(program(plain), program(kept), strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradients_of_gradients() -> None:
    x = genesis.tensor([0.5, 1.5], requires_grad=True)
    first, = genesis.autograd.grad(kept(lambda x: x.sin() * x, x).sum(), x, create_graph=True)
    second, = genesis.autograd.grad(first.sum(), x)
    t = torch.tensor([0.5, 1.5], requires_grad=True)
    expected, = torch.autograd.grad((t.sin() * t).sum(), t, create_graph=True)
    expected, = torch.autograd.grad(expected.sum(), t)
    np.testing.assert_allclose(second.numpy(), expected.numpy(), rtol=1e-6)


def test_without_gradients_it_is_the_call() -> None:
    with genesis.no_grad():
        y = kept(lambda x: x.sin(), genesis.ones(2, requires_grad=True))
    assert not y.requires_grad and kept(lambda: 3) == 3 and kept(lambda x: x, genesis.ones(1)).item() == 1


def test_an_error_inside_leaves_no_region_open() -> None:
    with pytest.raises(ZeroDivisionError):
        kept(lambda x: 1 // 0, genesis.ones(2, requires_grad=True))
    from genesis.frontend.state import state
    assert state.regions == []


def test_other_random_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="preserve_rng_state"):
        checkpoint(lambda x: x, genesis.ones(2), preserve_rng_state=False)


@pytest.mark.parametrize("segments", [1, 2, 3, DEPTH])
def test_a_sequence_in_segments(segments: int) -> None:
    layers = model()
    x = genesis.randn(8, DIM)
    expected = nn.Sequential(*layers)(x)
    np.testing.assert_array_equal(checkpoint_sequential(layers, segments, x).detach().numpy(),
                                  expected.detach().numpy())
    with pytest.raises(ValueError, match="segments"):
        checkpoint_sequential(layers, DEPTH + 1, x)


# Compiled

@pytest.mark.parametrize("inside", [True, False])
def test_compiled_steps(inside: bool) -> None:
    """A region in a compiled step, and a compiled function called twice in a region: as without either."""
    def losses(call: Call, compile: Call) -> list[float]:
        layers = model(0.2)
        optimizer = genesis.optim.AdamW([p for layer in layers for p in layer.parameters()], lr=0.01)
        parts = [layer if inside else compile(layer) for layer in layers]

        def step(x: Any) -> Any:
            h = x
            for layer in parts:
                h = h + call(layer, h)
            loss = (h * h).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss
        run = compile(step) if inside else step
        genesis.manual_seed(1)
        return [run(genesis.ones(4, DIM) * (i + 1)).item() for i in range(4)]

    expected = losses(plain, lambda f: f)
    assert losses(kept, lambda f: f) == expected
    assert losses(kept, genesis.compile) == expected


@pytest.mark.parametrize("reentrant", [False, True])
def test_running_means_move_once(reentrant: bool) -> None:
    """As without a checkpoint; torch's second forward moves them once more."""
    def trained(T: Any, around: Any) -> Any:
        norm = T.nn.BatchNorm1d(2)
        x = T.arange(8.0).view(4, 2).requires_grad_()
        around(norm, x).sum().backward()
        return norm.running_mean.tolist(), norm.running_var.tolist(), int(norm.num_batches_tracked)
    found = trained(genesis, lambda f, x: checkpoint(f, x, use_reentrant=reentrant))
    plain = trained(torch, lambda f, x: f(x))
    assert found[2] == plain[2] and np.allclose(found[:2], plain[:2], rtol=1e-6)
