"""The programs whose stages are kept as text: what a user writes, a few lines each.

A program reads one value at its end; the plan that this builds is the one that is kept. What it
prepares (parameters, data) is computed before, by `genesis.eval`.
"""

from __future__ import annotations

from collections.abc import Callable

import genesis
import genesis.nn.functional as F
from genesis import Tensor, nn, optim
from genesis.models import GPT, GPTConfig

Program = Callable[[], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """A row of the table."""
    PROGRAMS[function.__name__] = function
    return function


def given(*shape: int, requires_grad: bool = False) -> Tensor:
    """Data in memory."""
    x = genesis.zeros(*shape)
    genesis.eval(x)
    return x.requires_grad_(requires_grad)


def ready(module: nn.Module) -> nn.Module:
    """A module whose parameters are in memory."""
    genesis.eval(*module.parameters(), *module.buffers())
    return module


def targets(count: int) -> Tensor:
    """Class indices in memory."""
    y = genesis.zeros(count, dtype=genesis.int64)
    genesis.eval(y)
    return y


# Arithmetic

@program
def numbers_and_broadcasting() -> None:
    x, b = given(4, 6), given(6)
    genesis.eval((2.0 * x + b) / 3 - 1)


@program
def powers() -> None:
    x = given(4, requires_grad=True)
    (x**2 + x**3 + x**0.5 + 2**x).sum().backward()
    genesis.eval(x.grad)


@program
def promotion() -> None:
    x, n = given(4).half(), targets(4)
    genesis.eval(x + n * 2 + True)


@program
def comparisons() -> None:
    x, y = given(4, 6), given(4, 6)
    genesis.eval(genesis.where((x > y) & (y >= 0), x.clamp(-1, 1), y.abs()))


@program
def second_derivative() -> None:
    x = given(4, requires_grad=True)
    slope, = genesis.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    slope.sum().backward()
    genesis.eval(x.grad)


@program
def detached() -> None:
    x = given(4, requires_grad=True)
    y = x.exp()
    (y * y.detach()).sum().backward()
    genesis.eval(x.grad)


# Shapes

@program
def views_of_views() -> None:
    x = given(4, 6)
    genesis.eval(x.t().reshape(2, 12).t()[2:10:3, 1].unsqueeze(0).expand(5, 3) + 1)


@program
def views_that_cancel() -> None:
    x = given(4, 6)
    genesis.eval(x.view(24).view(2, 12).view(4, 6).t().t().flip(0).flip(0) * 2)


@program
def chunks_of_one_product() -> None:
    x = given(2, 5, 12)
    q, k, v = x.chunk(3, dim=-1)
    genesis.eval(genesis.cat([q, k], -1) * 2 + genesis.cat([k, v], -1))


@program
def slices_assigned() -> None:
    x = given(6, 4)
    x[1:3] = x[3:5] * 2
    x[:, 0] += 1
    genesis.eval(x)


@program
def aliases() -> None:
    x = given(6, 4)
    row, old = x[2], x * 1.5
    row.mul_(3)
    x.add_(old)
    genesis.eval(row.sum())


@program
def padding() -> None:
    x = given(3, 4, requires_grad=True)
    F.pad(x, (1, 2)).exp().sum().backward()
    genesis.eval(x.grad)


# Reductions and scans

@program
def statistics() -> None:
    x = given(4, 6)
    genesis.eval(x.mean(0) + x.var(0) + x.std(0, unbiased=False), x.amax(1), x.argmax(1))


@program
def maximum_and_its_gradient() -> None:
    x = given(4, 6, requires_grad=True)
    x.amax(1).sum().backward()
    genesis.eval(x.grad)


@program
def running_sums() -> None:
    x = given(4, 6, requires_grad=True)
    (x.cumsum(1) ** 2).sum().backward()
    genesis.eval(x.grad)


# Indexing

@program
def rows_of_a_table() -> None:
    table = given(10, 4, requires_grad=True)
    F.embedding(targets(6), table).tanh().sum().backward()
    genesis.eval(table.grad)


@program
def gathered_and_scattered() -> None:
    x, index = given(4, 6), targets(8).view(4, 2)
    genesis.eval(genesis.zeros(4, 6).scatter_add(1, index, x.gather(1, index)))


# Random numbers

@program
def random_numbers() -> None:
    genesis.manual_seed(0)
    genesis.eval(genesis.rand(4) + genesis.randn(4) + genesis.randint(0, 9, (4,)))


@program
def dropout_and_its_gradient() -> None:
    genesis.manual_seed(0)
    x = given(4, 6, requires_grad=True)
    F.dropout(x.relu(), 0.25).sum().backward()
    genesis.eval(x.grad)


# Composites

@program
def softmax() -> None:
    x = given(4, 6, requires_grad=True)
    (x.softmax(-1) * given(4, 6)).sum().backward()
    genesis.eval(x.grad)


@program
def log_softmax_in_half_precision() -> None:
    x = given(4, 6).bfloat16()
    genesis.eval(x.log_softmax(-1))


@program
def layer_norm() -> None:
    x, w, b = given(4, 6, requires_grad=True), given(6, requires_grad=True), given(6, requires_grad=True)
    F.layer_norm(x, (6,), w, b).sum().backward()
    genesis.eval(x.grad, w.grad, b.grad)


@program
def rms_norm() -> None:
    x, w = given(4, 6, requires_grad=True), given(6, requires_grad=True)
    F.rms_norm(x, (6,), w).sum().backward()
    genesis.eval(x.grad, w.grad)


@program
def activations() -> None:
    x = given(4, 6, requires_grad=True)
    (F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) + F.relu(x)).sum().backward()
    genesis.eval(x.grad)


@program
def cross_entropy() -> None:
    logits = given(8, 5, requires_grad=True)
    loss = F.cross_entropy(logits, targets(8), label_smoothing=0.1)
    loss.backward()
    genesis.eval(loss, logits.grad)


@program
def causal_attention() -> None:
    q, k, v = (given(2, 3, 8, 4, requires_grad=True) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    genesis.eval(q.grad, k.grad, v.grad)


@program
def attention_in_steps() -> None:
    q, k, v = (given(2, 3, 8, 4) for _ in range(3))
    genesis.eval((q @ k.transpose(-2, -1) / 2.0).softmax(-1) @ v)


# Steps

def _mlp() -> nn.Module:
    return ready(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)))


@program
def step_with_adamw() -> None:
    model = _mlp()
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    loss = F.cross_entropy(model(given(4, 6)), targets(4))
    loss.backward()
    optimizer.step()


@program
def step_with_sgd_and_momentum() -> None:
    model = _mlp()
    optimizer = optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, nesterov=True)
    F.mse_loss(model(given(4, 6)), given(4, 3)).backward()
    optimizer.step()


@program
def step_with_clipping() -> None:
    model = _mlp()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    F.mse_loss(model(given(4, 6)), given(4, 3)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


@program
def step_over_two_micro_batches() -> None:
    model = _mlp()
    optimizer = optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        (F.mse_loss(model(given(4, 6)), given(4, 3)) / 2).backward()
    optimizer.step()


@program
def step_in_autocast() -> None:
    model = _mlp()
    optimizer = optim.SGD(model.parameters(), lr=1e-2)
    with genesis.autocast("cpu", dtype=genesis.bfloat16):
        loss = F.mse_loss(model(given(4, 6)), given(4, 3))
    loss.backward()
    optimizer.step()


@program
def step_with_logits_kept() -> None:
    model = _mlp()
    optimizer = optim.SGD(model.parameters(), lr=1e-2)
    logits = model(given(4, 6))
    loss = F.cross_entropy(logits, targets(4))
    loss.backward()
    optimizer.step()
    genesis.eval(logits, loss)


@program
def gpt_block_with_tied_weights() -> None:
    model = ready(GPT(GPTConfig(vocab_size=11, context=8, layers=1, heads=2, dim=8)))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    ids = targets(16).view(2, 8)
    _, loss = model(ids, ids)
    loss.backward()
    optimizer.step()


CUDA = ("softmax", "layer_norm", "attention_in_steps", "cross_entropy", "step_with_adamw", "slices_assigned")
"""Those whose groups on CUDA are kept as a summary."""
