"""Another size: no kernel is compiled for one of a known class, and results are those of a plan made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import engine, nn
from genesis.engine.backends import backend_named
from genesis.ir.sym_int import SymInt
from genesis.models import GPT, GPTConfig
from genesis.passes.fusion.side_by_side import FEWEST
from tests.gpu.compare import array, check, check_gradients, integers, numbers, same


@pytest.fixture
def compiled(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the kernels that were compiled, each text once."""
    names: list[str] = []
    seen: set[str] = set()
    backend = type(backend_named("cuda"))
    original = backend.compile

    def counted(self: Any, sources: Sequence[Any]) -> Any:
        for source in sources:
            key = repr(source.key_parts())
            if key not in seen:
                seen.add(key)
                names.append(source.name)
        return original(self, sources)

    monkeypatch.setattr(backend, "compile", counted)
    yield names


def origin() -> str:
    """Where the plan that ran last comes from."""
    return engine.last_plan().origin


def rows(x: Any) -> Any:
    return F.softmax(F.layer_norm(x, (6,)) * 2.5, -1)


def mixed(x: Any) -> Any:
    return x.flatten().cumsum(0).view(x.shape) + x.mean() + x.amax(0), (x * x).sum(0), x.sum((0, 1)), x.argmax(0)


def joined(x: Any) -> Any:
    return genesis.cat([x, x[:, :2] * 2], 1).t().contiguous(), genesis.cat([x, x], 0).reshape(2, -1, 6).sum(1)


def pairs(x: Any) -> Any:
    return (x @ x.t()).softmax(1) @ x


def broadcast(x: Any) -> Any:
    return x + genesis.arange(x.shape[0], device=x.device)[:, None] * genesis.ones(x.shape[0], 1, device=x.device)


PROGRAMS: dict[str, Callable[..., Any]] = {"rows": rows, "mixed": mixed, "joined": joined, "pairs": pairs,
                                           "broadcast": broadcast}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_size_gives_the_cpu_s_values_whichever_came_first(cuda: Any, name: str) -> None:
    for sizes in ((5, 7, 3, 16, 6, 1, 33, 2, 0), (33, 5, 1, 32)):
        engine.reset()
        for size in sizes:
            if size or name not in ("mixed", "pairs"):
                check(PROGRAMS[name], numbers(size, 6, seed=size))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_at_every_size(cuda: Any, name: str) -> None:
    for size in (7, 5, 13, 1):
        check_gradients(lambda x: [y for y in _list(PROGRAMS[name](x)) if y.is_floating_point()], numbers(size, 6),
                        tolerance=1e-4)


def _list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_size_compiles_no_kernel(compiled: list[str], name: str) -> None:
    check(PROGRAMS[name], numbers(11, 6))
    assert origin() == "compiled" and compiled
    compiled.clear()
    for size in (9, 13, 15, 11):
        check(PROGRAMS[name], numbers(size, 6))
        assert size == 11 or origin() == "other size"
    assert not compiled


def test_multiples_of_16_are_a_class(compiled: list[str]) -> None:
    check(rows, numbers(48, 6))
    compiled.clear()
    check(rows, numbers(64, 6))
    assert origin() == "other size" and not compiled
    check(rows, numbers(34, 6))
    assert origin() == "compiled"
    compiled.clear()
    check(rows, numbers(63, 6))
    assert origin() == "other size" and not compiled


@pytest.mark.parametrize("channels", [3, 5])
def test_long_rows_of_another_number_of_blocks_compile_no_kernel(compiled: list[str], channels: int) -> None:
    """Images of a class have rows of 5 to 11 blocks; which of them a program has is its place in the grid."""
    def channels_last(x: Any) -> Any:
        return genesis.flip(x.permute(0, 2, 3, 1) * 2.5, (0,))
    for side in (41, 45):
        check(channels_last, numbers(2, channels, side, side + 4))
    compiled.clear()
    for side in (43, 47, 53, 59):
        check(channels_last, numbers(2, channels, side, side + 4))
        assert not compiled, side


def test_small_loops_over_rows_of_open_length_run_side_by_side(compiled: list[str]) -> None:
    """Their programs lie along one dimension, in which each loop's two dimensions are found again."""
    def layers(x: Any, y: Any) -> Any:
        number, found = x[0, 0], []
        for _ in range(FEWEST + 1):
            one, two = (x.t() * number).contiguous(), (y.t() + number).contiguous()
            found += [one, two]
            number = one[1, 1] * 0.25 + two[1, 1] * 0.25
        return found
    for rows in (99, 101):
        check(layers, numbers(rows, 40), numbers(rows, 70))
    compiled.clear()
    for rows in (103, 77, 121):
        check(layers, numbers(rows, 40), numbers(rows, 70))
        assert origin() == "other size" and not compiled, rows
    assert any("beside" in step.kernel.name for step in engine.last_plan().plan.steps)


def test_a_size_of_another_class_is_compiled(compiled: list[str]) -> None:
    check(rows, numbers(7, 6))
    check(rows, numbers(7 * 64, 6))
    assert origin() == "compiled", "blocks that suit 7 rows are not for 448"
    check(rows, numbers(1, 6))
    assert origin() == "compiled"


def test_a_size_that_is_also_another_size(compiled: list[str]) -> None:
    """Where the batch is as large as something else, nothing is mistaken for it."""
    for size in (6, 12, 6, 5):
        check(rows, numbers(size, 6))
        check(pairs, numbers(size, 6))


def test_what_a_program_says_of_its_size_is_kept(cuda: Any) -> None:
    """Shapes that a program computes from others than the batch, though they are as large."""
    def half(x: Any) -> Any:
        return x[:4] * 2, x[4:].sum(0), x[1::2], genesis.zeros(8, 6, device=x.device) + x[:1]

    for size in (8, 10, 16, 9):
        check(half, numbers(size, 6))


class Step:
    """Training steps of a small GPT on one device."""

    def __init__(self, device: str):
        genesis.manual_seed(0)
        self.device = device
        self.model = GPT(GPTConfig(vocab_size=48, context=16, layers=2, heads=2, dim=16)).to(device)
        self.optimizer = genesis.optim.AdamW(self.model.parameters(), lr=1e-2)

    def __call__(self, batch: int, length: int = 16) -> Any:
        tokens = integers(0, 48, batch, length + 1, seed=batch)
        x, y = (genesis.tensor(part, device=self.device) for part in (tokens[:, :-1], tokens[:, 1:]))
        _, loss = self.model(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def test_training_goes_on_with_another_batch(compiled: list[str]) -> None:
    here, there = Step("cpu"), Step("cuda")
    for at, batch in enumerate((6, 9, 4, 6)):
        same(there(batch, 8), array(here(batch, 8)), 1e-4, f"step {at}")
        if at == 0:
            compiled.clear()
    assert not compiled
    for name, p in there.model.named_parameters():
        same(p.detach(), array(dict(here.model.named_parameters())[name].detach()), 2e-3, name)


def test_evaluation_with_another_batch(compiled: list[str]) -> None:
    model = Step("cuda").model
    with genesis.no_grad():
        for at, batch in enumerate((6, 9, 4)):
            genesis.eval(model(genesis.tensor(integers(0, 48, batch, 16), device="cuda"))[0])
            assert origin() == ("other size" if at else "compiled")
            if not at:
                compiled.clear()
    assert not compiled


def test_a_convolution_and_a_running_mean(compiled: list[str]) -> None:
    genesis.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to("cuda")
    with genesis.no_grad():
        for batch in (5, 6, 11):
            x = numbers(batch, 6)
            expected = x
            for layer in model:
                expected = np.maximum(expected, 0) if isinstance(layer, nn.ReLU) else (
                    expected @ array(layer.weight).T + array(layer.bias))
            same(model(genesis.tensor(x, device="cuda")), expected.astype(np.float32), 1e-5)


def test_another_python_number_is_the_same_plan(cuda: Any) -> None:
    x = genesis.tensor(numbers(4, 6), device="cuda")
    plans = set()
    for number in (0.5, 2.5, -1.0):
        same(x * number + 1, array(x) * np.float32(number) + 1)
        plans.add(id(engine.last_plan()))
    assert len(plans) == 1


def test_stages_of_a_plan_for_another_size_have_its_sizes(cuda: Any) -> None:
    for size in (7, 5):
        check(rows, numbers(size, 6))
        found = engine.last_plan()
        assert found.graph.inputs[0].shape == (size, 6)
        assert all(isinstance(n, int) for node in found.stages["canonical"].nodes if not isinstance(node.type, tuple)
                   for n in node.shape)


def test_a_smaller_size_takes_the_edges_of_the_larger(cuda: Any) -> None:
    """Graphs, which run from the second time on: the host driver runs them in the order that edges forbid least."""
    found = {}
    for size in (13, 9, 15, 14):
        for _ in range(3):
            check(mixed, numbers(size, 6, seed=size))
        found[size] = engine.last_plan().plan
    assert found[13].larger is None and found[15].larger is None
    assert found[9].larger is found[13] and found[14].larger is found[15]
    assert found[9].edges is found[13].edges and len(found[9].edges) == len(found[9].steps)


def test_memory_planned_for_another_size_is_that_of_a_plan_of_its_own(cuda: Any) -> None:
    """The same requests with other bytes: no more memory than a plan that was made for the size takes."""
    def arena(*sizes: int) -> tuple[str, int, int]:
        engine.reset()
        for size in sizes:
            check(pairs, numbers(size, 6))
        return origin(), engine.last_plan().plan.arena_bytes, engine.last_plan().plan.max_live_bytes

    assert arena(9, 15) == ("other size", *arena(15)[1:])


def broken(error: Exception) -> Any:
    """Passes that cannot work with symbolic sizes."""
    from genesis.passes import pipeline
    run_passes = pipeline.run_passes

    def run(graph: Any, *args: Any, **more: Any) -> Any:
        if any(type(size) is SymInt for x in graph.inputs for size in x.type.shape):
            raise error
        return run_passes(graph, *args, **more)
    return run


def test_a_plan_says_why_its_sizes_stay_numbers(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check(rows, numbers(5, 6))
    assert engine.last_plan().fixed_sizes is None
    check(lambda x: x * 2, numbers(1, 1))
    assert engine.last_plan().fixed_sizes == "no size of its data can change by itself"
    monkeypatch.setattr("genesis.passes.pipeline.run_passes", broken(TypeError("this pass wants a number")))
    monkeypatch.setenv("GENESIS_VERIFY", "0")
    engine.reset()
    check(rows, numbers(5, 6))
    assert engine.last_plan().fixed_sizes == "a pass needs them (TypeError: this pass wants a number)"


@pytest.mark.parametrize("verify, error", [("1", TypeError("this pass wants a number")), ("0", KeyError("a bug"))],
                         ids=["under GENESIS_VERIFY", "an error that sizes do not make"])
def test_an_error_of_a_pass_is_not_compiled_around(cuda: Any, monkeypatch: pytest.MonkeyPatch, verify: str,
                                                   error: Exception) -> None:
    monkeypatch.setattr("genesis.passes.pipeline.run_passes", broken(error))
    monkeypatch.setenv("GENESIS_VERIFY", verify)
    engine.reset()
    with pytest.raises(type(error), match=str(error)):
        array(rows(genesis.tensor(numbers(5, 6), device="cuda")))
    engine.reset()


def test_programs_over_symbolic_sizes_are_verified_too(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENESIS_VERIFY", "1")
    engine.reset()
    check(rows, numbers(5, 6))
    check(rows, numbers(7, 6))
    assert engine.last_plan().origin == "other size"


def test_rows_added_at_fewer_places_have_the_kernels_of_their_class(compiled: list[str]) -> None:
    """And no more shares of a row that most places are than these fill."""
    for count in (31_001, 17_001):
        index = np.random.default_rng(count).integers(0, 40, count)
        index[np.arange(count) % 8 != 0] = 39
        check(lambda x, i: genesis.zeros(40, 3, device=x.device).index_add(0, i, x), numbers(count, 3), index,
              tolerance=1e-4)
    assert origin() == "other size" and compiled.count("block_sums") == 1
