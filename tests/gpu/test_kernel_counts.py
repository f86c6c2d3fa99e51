"""What must be one kernel is one kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.engine.backends import backend_named
from genesis.nn import functional as F
from genesis.passes.graph import split_reductions

from .compare import check, launches, numbers

X, W = numbers(6, 40), numbers(40, seed=1)


@pytest.mark.parametrize("name, program", {
    "softmax": lambda x, w: x.softmax(-1),
    "log_softmax": lambda x, w: x.log_softmax(-1),
    "softmax of scaled scores": lambda x, w: (x * 0.125).softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, (40,), w, w),
    "rms_norm": lambda x, w: F.rms_norm(x, (40,), w),
    "softmax over the rows": lambda x, w: x.softmax(0),
    "gelu": lambda x, w: F.gelu(x + w),
    "dropout and residual": lambda x, w: x + F.dropout(x * w, 0.5),
    "several reductions of one input": lambda x, w: (x.sum(1), x.amax(1), (x * x).mean(1)),
    "views between": lambda x, w: ((x.t() + 1).reshape(8, 30) * 2).permute(1, 0),
    "embedding, with the check of its indices": lambda x, w: F.embedding(genesis.tensor([5, 0, 3], device="cuda"), x),
    "a long row of weights": lambda x, w: x + (w * 2).exp().tanh().sigmoid()[:6, None],
    "concat and pad": lambda x, w: F.pad(genesis.cat([x, x * 2], 0), (1, 1)) + 1,
}.items())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_kernel_forward(cuda, name, program, dtype):
    genesis.manual_seed(0)
    x, w = (genesis.tensor(a, device="cuda").to(getattr(genesis, dtype)) for a in (X, W))
    genesis.eval(x, w)
    genesis.eval(program(x, w))
    assert launches() == 1


@pytest.fixture
def left_by_another_test():
    """What the traceback of a test that failed may hold: pending work, on whatever device."""
    x = genesis.zeros(3)
    x.add_(1)
    return x


def test_what_another_test_left_pending_is_not_counted(left_by_another_test, cuda):
    genesis.eval(genesis.tensor(X, device="cuda") * 2)
    assert engine.last_plan().plan.device.type == "cuda" and launches() == 1


def test_unfused_programs_have_more_kernels(cuda, fuse):
    check(lambda x, w: F.layer_norm(x, (40,), w, w), X, W, tolerance=1e-5)
    assert launches() == 1 if fuse else launches() > 5


def parameters(*dtypes):
    """Parameters with gradients, a single element among them."""
    found = []
    for dtype in dtypes:
        for seed, shape in enumerate([(4, 3), (3,), (7, 2), (1,), (5,), (2, 2, 2)]):
            p, g = (genesis.tensor(numbers(*shape, seed=s), device="cuda").to(getattr(genesis, dtype))
                    for s in (seed, seed + 10))
            p = p.detach().requires_grad_()
            p.grad = g
            found.append(p)
    genesis.eval(*found, *[p.grad for p in found])
    return found


@pytest.mark.parametrize("name, options", [
    ("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("Adagrad", {}), ("Adadelta", {}), ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True}), ("Rprop", {}), ("ASGD", {}), ("Adamax", {}), ("NAdam", {}),
    ("RAdam", {})])
def test_every_optimizer_is_one_launch_a_dtype(cuda, name, options):
    held = parameters("float32", "bfloat16")
    optimizer = getattr(genesis.optim, name)(held, lr=0.1, **options)
    for _ in range(2):
        optimizer.step()
        assert launches() == 2


@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
def test_clipping_by_the_norm_is_two_launches_more_than_the_step(cuda, norm_type):
    held = parameters("float32")
    optimizer = genesis.optim.AdamW(held, lr=0.1)
    gradients = np.concatenate([p.grad.cpu().numpy().ravel() for p in held])
    norm = np.linalg.norm(gradients, norm_type)
    genesis.nn.utils.clip_grad_norm_(held, 0.5, norm_type)
    optimizer.step()
    assert launches() == 3
    clipped = np.concatenate([p.grad.cpu().numpy().ravel() for p in held])
    np.testing.assert_allclose(clipped, gradients * 0.5 / norm, rtol=1e-5)


def test_clipping_by_value_is_a_launch_at_most(cuda):
    held = parameters("float32")
    optimizer = genesis.optim.AdamW(held, lr=0.1)
    genesis.nn.utils.clip_grad_value_(held, 0.5)
    optimizer.step()
    assert launches() <= 2
    assert max(abs(p.grad).max().item() for p in held) <= 0.5


@pytest.mark.parametrize("dtypes", [("float32",), ("float32", "bfloat16")])
def test_adamw_over_given_gradients_is_at_most_two_launches_a_dtype(cuda, dtypes):
    shapes = [(4, 3), (3,), (7, 2), (1,), (5,), (2, 2, 2)]
    parameters = [genesis.tensor(numbers(*shape), device="cuda").to(getattr(genesis, dtype)).detach().requires_grad_()
                  for dtype in dtypes for shape in shapes]
    optimizer = genesis.optim.AdamW(parameters, lr=0.1)
    for _ in range(2):
        for p in parameters:
            p.grad = genesis.tensor(numbers(*p.shape, seed=3), device="cuda").to(p.dtype)
            genesis.eval(p.grad)
        optimizer.step()
        assert launches() <= 2 * len(dtypes)


def test_sgd_over_given_gradients_is_at_most_two_launches(cuda):
    parameters = [genesis.tensor(numbers(*shape), device="cuda", requires_grad=True) for shape in [(4, 3), (3,), (7,)]]
    optimizer = genesis.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for p in parameters:
        p.grad = genesis.tensor(numbers(*p.shape, seed=3), device="cuda")
    optimizer.step()
    assert launches() <= 2


def test_a_repeated_step_builds_no_plan(cuda):
    model = genesis.nn.Sequential(genesis.nn.Linear(4, 8), genesis.nn.GELU(), genesis.nn.Linear(8, 3)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=0.01)
    x, y = genesis.tensor(numbers(5, 4), device="cuda"), genesis.tensor([0, 1, 2, 1, 0], device="cuda")
    plans: list = []
    with engine.observe(plans.append):
        for _ in range(4):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert len(plans) <= 2


@pytest.mark.parametrize("name, program, backward", [
    ("softmax", lambda x, w: x.softmax(-1), 1),
    ("layer_norm", lambda x, w: F.layer_norm(x, (40,), w, w), 2),
    ("rms_norm", lambda x, w: F.rms_norm(x, (40,), w), 2),
    ("a bias", lambda x, w: F.gelu(x + w), 2),
    ("a scaled row", lambda x, w: (x * w).tanh(), 2),
])
def test_kernels_backward(cuda, monkeypatch, name, program, backward):
    """Sums over the rows are taken on the way, in runs; one more kernel puts them together."""
    monkeypatch.setattr(split_reductions, "SMALLEST", 1)
    monkeypatch.setattr(split_reductions, "ROW_SPLITS", ((1, 1000),))
    backend = backend_named("cuda")
    monkeypatch.setattr(backend, "gpu", replace(backend.gpu, multiprocessors=4))
    monkeypatch.setattr(split_reductions, "FEWEST_ROWS", 1)
    x, w = (genesis.tensor(a, device="cuda").requires_grad_() for a in (X, W))
    g = genesis.tensor(numbers(6, 40, seed=2), device="cuda")
    genesis.eval(x, w, g)
    leaves = [x] if name == "softmax" else [x, w]
    found = genesis.autograd.grad(program(x, w), leaves, g)
    genesis.eval(*found)
    assert launches() == backward
    check(lambda x, w, g: genesis.autograd.grad(program(x.requires_grad_(), w.requires_grad_()), [x], g),
          X, W, numbers(6, 40, seed=2), tolerance=1e-4)


def test_the_loss_and_the_gradient_of_cross_entropy_share_a_kernel(cuda):
    """Before it the targets that count are counted, after it the rows' losses are added up."""
    x = genesis.tensor(numbers(6, 40), device="cuda", requires_grad=True)
    target = genesis.tensor([1, 2, 3, 4, 5, 6], device="cuda")
    genesis.eval(x, target)
    loss = F.cross_entropy(x, target)
    found = genesis.autograd.grad(loss, [x])
    genesis.eval(loss, *found)
    assert launches() == 3
