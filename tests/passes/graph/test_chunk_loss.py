"""Losses by chunks of rows: torch's values and gradients, and no logits that are whole, in every form of a loss; all at
once where somebody else reads the logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest
import torch

import genesis
from genesis import config, engine
from genesis.engine.backends import backend_named
from genesis.engine.compilation import Compiled
from genesis.ir import Graph
from genesis.ir.ops import contraction, leaves, loss
from genesis.ir.types import Device, bfloat16, float32, int64, tensor_type
from genesis.passes.graph import chunk_loss as pass_
from genesis.passes.pipeline import run_passes
from tests.torch_peer import assert_same, numbers

CUDA = Device("cuda")
BATCH, TIME, WIDTH, CLASSES = 3, 10, 8, 50
ROWS = BATCH * TIME

Form = Callable[[Any, Any, Any, Any, Any], Any]
"""(library, x (BATCH, TIME, WIDTH), weight (CLASSES, WIDTH), bias (CLASSES), targets (BATCH, TIME)) → what backward is
called on."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of at most 7 rows of float32 logits."""
    monkeypatch.setattr(config, "loss_chunk_bytes", 7 * CLASSES * 4)
    monkeypatch.setattr(pass_, "FEWEST_ROWS", 1)
    monkeypatch.setattr(pass_, "SHARE", 1 << 30)
    monkeypatch.setattr(pass_, "LEAST_SAVED", -100.0)
    engine.reset()
    yield
    engine.reset()


def functional(library: Any) -> Any:
    return library.nn.functional


def logits_of(library: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return functional(library).linear(x, weight, bias).view(-1, CLASSES)


def plain(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return functional(library).cross_entropy(logits_of(library, x, weight), targets.view(-1))


def product(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return functional(library).cross_entropy((x @ weight.T).view(-1, CLASSES), targets.view(-1))


def classes_first(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    """The rows are dimension 1 of the product."""
    return functional(library).cross_entropy((weight @ x.reshape(-1, WIDTH).T).T, targets.view(-1))


def with_bias(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return functional(library).cross_entropy(logits_of(library, x, weight, bias), targets.view(-1), reduction="sum")


def ignoring(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return functional(library).cross_entropy(logits_of(library, x, weight), targets.view(-1), ignore_index=3)


def smoothed(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return functional(library).cross_entropy(logits_of(library, x, weight, bias), targets.view(-1),
                                             label_smoothing=0.2, ignore_index=4)


def each_row(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    losses = functional(library).cross_entropy(logits_of(library, x, weight), targets.view(-1), reduction="none")
    return (losses * x.mean(-1).view(-1)).sum()


def class_weights(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return functional(library).cross_entropy(logits_of(library, x, weight), targets.view(-1), label_smoothing=0.1,
                                             weight=bias.detach().abs())


def probabilities(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    wanted = functional(library).one_hot(targets.view(-1), CLASSES).to(library.float32) * 0.9 + 0.1 / CLASSES
    return functional(library).cross_entropy(logits_of(library, x, weight), wanted)


def classes_in_dimension_1(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return functional(library).cross_entropy(functional(library).linear(x, weight).transpose(1, 2), targets)


def shifted(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    """The last logits of each sequence are not used."""
    logits = functional(library).linear(x, weight, bias)[:, :-1]
    return functional(library).cross_entropy(logits.reshape(-1, CLASSES), targets[:, 1:].reshape(-1))


def shifted_product(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    logits = (x @ weight.T)[:, :-1]
    return functional(library).cross_entropy(logits.reshape(-1, CLASSES), targets[:, 1:].reshape(-1))


def capped(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    """With a soft cap, a temperature and a penalty of large log-sum-exps."""
    logits = library.tanh(logits_of(library, x, weight) / 5) * 5 / 0.7
    return (functional(library).cross_entropy(logits, targets.view(-1))
            + 1e-2 * (library.logsumexp(logits, -1) ** 2).mean())


def written_out(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    logs = functional(library).log_softmax(logits_of(library, x, weight), -1)
    return -logs.gather(1, targets.view(-1, 1)).mean()


def focal(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    """Each row's loss goes back into its gradient."""
    losses = functional(library).cross_entropy(logits_of(library, x, weight), targets.view(-1), reduction="none")
    return ((1 - library.exp(-losses)) ** 2 * losses).mean()


def scaled(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return plain(library, x, weight, bias, targets) * 3 + (x * x).sum()


def two_heads(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    return (plain(library, x, weight, bias, targets)
            + with_bias(library, x * 2, weight.flip(0), bias, targets))


def every_other(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    """Chunks of whole sequences: gradients of what is left out lie between others."""
    logits = functional(library).linear(x, weight, bias)[:, ::2]
    return functional(library).cross_entropy(logits.reshape(-1, CLASSES), targets[:, ::2].reshape(-1))


FORMS: list[Form] = [plain, product, classes_first, with_bias, ignoring, smoothed, each_row, class_weights,
                     probabilities, classes_in_dimension_1, shifted, shifted_product, capped, written_out, focal,
                     scaled, two_heads]


def arrays() -> tuple[np.ndarray, ...]:
    targets = np.random.default_rng(5).integers(0, CLASSES, (BATCH, TIME))
    targets[0, :4] = 3, 4, 3, 4
    return numbers(BATCH, TIME, WIDTH), numbers(CLASSES, WIDTH, seed=1), numbers(CLASSES, seed=2), targets


def run(library: Any, form: Form) -> list[Any]:
    """The loss and the gradients of x, weight and bias; zeros for what has none."""
    *floats, targets = [library.tensor(array) for array in arrays()]
    leaves = [x.requires_grad_() for x in floats]
    loss = form(library, *leaves, targets)
    loss.backward()
    return [loss.detach(), *(library.zeros_like(x) if x.grad is None else x.grad for x in leaves)]


def evaluated(form: Form) -> tuple[list[Any], Compiled]:
    """Our results, and the plan of the whole program."""
    def results() -> list[Any]:
        found = run(genesis, form)
        genesis.eval(*found)
        return found
    return planned(results)


Found = TypeVar("Found")


def planned(function: Callable[[], Found]) -> tuple[Found, Compiled]:
    """What the function returns, and the plan of the longest program over a weight that was built meanwhile.

    The plan that ran last may be another test's: what that has left in a circle is read where the collector finds it.
    """
    plans: list[Compiled] = []
    with engine.observe(plans.append):
        found = function()
    kind = tensor_type((CLASSES, WIDTH), float32, Device("cpu"))
    return found, max((plan for plan in plans if kind in plan.plan.inputs),
                      key=lambda plan: len(plan.stages["chunked"].nodes))


def largest(plan: Compiled) -> int:
    """The most elements of a floating value that the program computes."""
    return max(x.type.numel for x in plan.stages["chunked"].nodes if x.op.kind not in ("leaf", "movement")
               and type(x.type) is not tuple and x.dtype.kind == "float")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_values_and_gradients_are_torch_s_and_no_logits_are_whole(form: Form) -> None:
    found, plan = evaluated(form)
    for ours, theirs in zip(found, run(torch, form), strict=True):
        assert_same(ours, theirs, rtol=1e-4, atol=1e-5)  # float32 sums in other orders
    assert largest(plan) <= 8 * CLASSES


def test_what_is_left_out_between_rows_makes_chunks_of_sequences() -> None:
    found, plan = evaluated(every_other)
    for ours, theirs in zip(found, run(torch, every_other), strict=True):
        assert_same(ours, theirs, rtol=1e-4, atol=1e-5)
    assert largest(plan) <= TIME * CLASSES


def kept(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    logits = logits_of(library, x, weight)
    return functional(library).cross_entropy(logits, targets.view(-1)) + (logits.sum(0) ** 2).sum() * 1e-3


def by_the_loss(library: Any, x: Any, weight: Any, bias: Any, targets: Any) -> Any:
    """The gradient of each row needs the losses of all rows first."""
    return plain(library, x, weight, bias, targets) ** 2


@pytest.mark.parametrize(("form", "why"), [(kept, "add"), (by_the_loss, "cross_entropy_backward")])
def test_what_needs_all_rows_first_stays_whole_and_says_why(form: Form, why: str) -> None:
    found, plan = evaluated(form)
    for ours, theirs in zip(found, run(torch, form), strict=True):
        assert_same(ours, theirs, rtol=1e-4, atol=1e-5)
    assert largest(plan) >= ROWS * CLASSES
    refusal, = {x.why for x in plan.schedule.missed if x.why.startswith("logits")}
    assert f"read by {why}, which" in refusal


def test_logits_that_are_alive_stay_whole() -> None:
    x, weight, _, targets = (genesis.tensor(array) for array in arrays())
    logits = logits_of(genesis, x.requires_grad_(), weight)
    loss = functional(genesis).cross_entropy(logits, targets.view(-1))
    loss.backward()
    _, plan = planned(lambda: genesis.eval(loss, x.grad, logits))
    wanted = torch.tensor(arrays()[0]).view(-1, WIDTH) @ torch.tensor(arrays()[1]).T
    assert_same(logits, wanted, rtol=1e-4, atol=1e-5)
    assert any("somebody may still read the tensor" in x.why for x in plan.schedule.missed)


def test_gradients_of_two_backwards_add_up() -> None:
    found = []
    for library in (genesis, torch):
        x, weight, bias, targets = [library.tensor(array) for array in arrays()]
        weight.requires_grad_()
        for form in (plain, smoothed):
            form(library, x, weight, bias, targets).backward()
        found.append(weight.grad)
    assert_same(*found, rtol=1e-4, atol=1e-5)


def test_second_derivatives() -> None:
    found = []
    for library in (genesis, torch):
        x, weight, _, targets = [library.tensor(array) for array in arrays()]
        x.requires_grad_()
        gradient, = library.autograd.grad(plain(library, x, weight, None, targets), x, create_graph=True)
        (gradient ** 2).sum().backward()
        found.append(x.grad)
    assert_same(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_with_a_tied_weight(compiled: bool) -> None:
    """As without chunks."""
    found = []
    for limit in (config.loss_chunk_bytes, 0):
        config.loss_chunk_bytes = limit
        weight, ids = genesis.tensor(arrays()[1]).requires_grad_(), genesis.tensor(arrays()[3])
        optimizer = genesis.optim.SGD([weight], lr=0.5)

        def step(tokens: Any, weight: Any = weight, optimizer: Any = optimizer) -> Any:
            hidden = genesis.tanh(functional(genesis).embedding(tokens, weight))
            loss = plain(genesis, hidden, weight, None, tokens.flip(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = genesis.compile(step) if compiled else step
        losses, plan = planned(lambda run=run, ids=ids: [run(ids).item() for _ in range(3)])
        assert (largest(plan) < ROWS * CLASSES / 2) == bool(limit)
        found.append((losses, weight.detach().numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-6)


def test_a_loss_without_gradients_and_the_best_class() -> None:
    x, weight, _, targets = (genesis.tensor(array) for array in arrays())
    logits = logits_of(genesis, x, weight)
    loss, best = functional(genesis).cross_entropy(logits, targets.view(-1)), logits.argmax(-1)
    del logits
    _, plan = planned(lambda: genesis.eval(loss, best))
    assert largest(plan) < ROWS * CLASSES / 2
    wanted = torch.tensor(arrays()[0]).view(-1, WIDTH) @ torch.tensor(arrays()[1]).T
    np.testing.assert_array_equal(best.numpy(), wanted.argmax(-1).numpy())
    np.testing.assert_allclose(loss.item(), functional(torch).cross_entropy(wanted, torch.tensor(
        arrays()[3]).view(-1)).item(), rtol=1e-5)


def test_bfloat16_gradients_are_added_up_in_float32() -> None:
    found = {}
    for limit in (config.loss_chunk_bytes // 2, 0):
        config.loss_chunk_bytes = limit
        with genesis.autocast("cpu", dtype=genesis.bfloat16):
            found[limit] = run(genesis, with_bias)
        _, plan = planned(lambda limit=limit: genesis.eval(*found[limit]))
        sums = [x for x in plan.stages["chunked"].nodes if x.op.name == "add" and x.shape == (CLASSES, WIDTH)]
        assert len(sums) >= (4 if limit else 0) and all(x.dtype is genesis.float32 for x in sums)
    for by_chunks, whole in zip(*found.values(), strict=True):
        error = (by_chunks - whole).abs().max() / whole.abs().max()
        assert error.item() < 2 ** -7  # parts and their sum are rounded to 8 bits


def head(rows: int, width: int, classes: int) -> Graph:
    """Forward and backward of a bfloat16 loss head."""
    shapes = ((rows, width), bfloat16), ((classes, width), bfloat16), ((rows,), int64), ((rows,), bfloat16)
    x, weight, targets, g = (leaves.input(index=index, type=tensor_type(shape, dtype, CUDA))
                             for index, (shape, dtype) in enumerate(shapes))
    logits = contraction.linear(x, weight)
    gradient = loss.cross_entropy_backward(g, logits, targets)
    return Graph((x, weight, targets, g), (
        loss.cross_entropy(logits, targets), contraction.matmul(gradient, weight),
        contraction.matmul(contraction.swap_last(gradient), x)))


def test_the_memory_of_a_loss_head_is_that_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """8192 x 768 x 50304: at most 0.4 of whole logits; and whatever the rows, a chunk, the sum of the weight's gradient
    and a few bytes a row."""
    monkeypatch.undo()
    planned = {}
    for rows, limit in ((8192, 0), (8192, config.loss_chunk_bytes), (16384, config.loss_chunk_bytes)):
        monkeypatch.setattr(config, "loss_chunk_bytes", limit)
        planned[rows, limit > 0] = run_passes(head(rows, 768, 50304), backend_named("h200")).memory.arena_bytes
        monkeypatch.undo()
    assert planned[8192, False] >= 8192 * 50304 * 2
    assert planned[8192, True] <= 0.4 * planned[8192, False]
    assert max(planned[8192, True], planned[16384, True]) < config.loss_chunk_bytes + 4 * 50304 * 768 + (40 << 20)


def test_sums_that_take_more_than_chunks_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weight's gradient in float32 would take as much as all logits: these stay whole."""
    monkeypatch.undo()
    graph = head(8192, 4096, 128256)
    assert pass_.chunk_loss(graph, config.loss_chunk_bytes)[0] is graph


@pytest.mark.parametrize("rows", [3000, 8184, 8192, 10000, 16368, 20001])
def test_chunks_are_about_equal(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    graph = head(rows, 768, 50304)
    logits = next(node for node in graph.nodes if node.op is contraction.linear)
    found = pass_.loop_of(graph, logits)
    assert isinstance(found, pass_.Loop)
    spans = pass_.chunks(found, config.loss_chunk_bytes)
    assert [span.first for span in spans[1:]] == [span.last for span in spans[:-1]]
    assert (spans[0].first, spans[-1].last) == (0, rows)
    sizes = [span.rows for span in spans]
    assert max(sizes) - min(sizes) < 2 * pass_.BLOCK and all(size % pass_.BLOCK == 0 for size in sizes[:-1])


def test_zero_turns_it_off() -> None:
    config.loss_chunk_bytes = 0
    _, plan = evaluated(plain)
    assert largest(plan) >= ROWS * CLASSES
