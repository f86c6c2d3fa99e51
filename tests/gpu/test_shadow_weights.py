"""Low-precision copies of weights are kept from step to step, and give what casting anew gives, bit for bit."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine, nn
from genesis.ir.place import memory_of
from genesis.runtime import shadow_weights
from genesis.runtime.cuda import executor
from genesis.runtime.cuda.executor import CudaExecutor
from genesis.runtime.cuda.shadow_executor import ShadowWeightsExecutor
from genesis.runtime.plan_edges import places_of
from tests.sweeping import by_default, sweep_but

from .compare import array

Between = Callable[[int, Any, Any], None]
"""(step number, model, optimizer): done before a step."""


def batch(number: int, rows: int = 4) -> Any:
    return genesis.tensor(np.random.default_rng(number).standard_normal((rows, 6), np.float32), device="cuda")


def model_of(seed: int = 0) -> Any:
    genesis.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)).to("cuda")


def stepping(model: Any, compiled: bool = False) -> tuple[Callable[[Any], Any], Any]:
    """A training step in mixed precision, and its optimizer."""
    optimizer = genesis.optim.AdamW(model.parameters(), lr=0.05)

    def step(x: Any) -> Any:
        with genesis.autocast("cuda"):
            loss = model(x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return (genesis.compile(step) if compiled else step), optimizer


def train(keep: bool, between: Between | None = None, compiled: bool = False, rows: tuple[int, ...] = (4,) * 5,
          ) -> list[Any]:
    """The losses, and the weights at the end."""
    genesis.config.keep_shadow_weights = keep
    model = model_of()
    step, optimizer = stepping(model, compiled)
    losses = []
    for number, count in enumerate(rows):
        if between is not None:
            between(number, model, optimizer)
        losses.append(step(batch(number, count)).item())
    return [losses, *(array(p.detach()).tolist() for p in model.parameters())]


@pytest.fixture(autouse=True)
def setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genesis.config, "keep_shadow_weights", True)  # so that it is as it was afterwards
    shadow_weights.forget_all()


@pytest.fixture
def refreshes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many copies each run of a keeping executor made anew."""
    found: list[int] = []
    run, original = ShadowWeightsExecutor.start, CudaExecutor.run

    def counted(self: Any, *args: Any) -> Any:
        found.append(0)
        return run(self, *args)

    def noted(self: Any, *args: Any) -> Any:
        if self.plan.updates and not self.plan.numbers and not self.plan.outputs and found:
            found[-1] = len(self.plan.updates)
        return original(self, *args)
    monkeypatch.setattr(ShadowWeightsExecutor, "start", counted)
    monkeypatch.setattr(CudaExecutor, "run", noted)
    return found


@by_default("gpu-*", "host-True")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_casts_no_weight(cuda: Any, refreshes: list[int], compiled: bool) -> None:
    kept = train(True, compiled=compiled)
    plan = engine.last_plan()
    assert plan is not None and isinstance(plan.executor, ShadowWeightsExecutor)
    readers = [[step.label for step in plan.plan.steps if any(memory_of(x) == ("input", at) for x in places_of(step))]
               for at in plan.plan.kept]
    assert len(readers) == 2 and all("adamw" in label for labels in readers for label in labels)
    assert refreshes == [2, 0, 0, 0, 0]
    assert kept == train(False, compiled=compiled)


def add_by_hand(number: int, model: Any, optimizer: Any) -> None:
    if number == 2:
        with genesis.no_grad():
            model[0].weight.add_(0.5)


def copy_from_numpy(number: int, model: Any, optimizer: Any) -> None:
    if number == 2:
        with genesis.no_grad():
            model[2].weight.copy_(genesis.tensor(np.full((5, 8), 0.25, np.float32)))


def other_data(number: int, model: Any, optimizer: Any) -> None:
    if number == 2:
        model[0].weight.data = genesis.full((8, 6), 0.125, device="cuda")


def load(number: int, model: Any, optimizer: Any) -> None:
    if number == 3:
        model.load_state_dict({name: x * 0.5 for name, x in model.state_dict().items()})


def write_through_dlpack(number: int, model: Any, optimizer: Any) -> None:
    if number >= 2:
        genesis.from_dlpack(model[0].weight.detach()).mul_(0.5)


def evaluate(number: int, model: Any, optimizer: Any) -> None:
    with genesis.no_grad(), genesis.autocast("cuda"):
        model(batch(100 + number)).sum().item()


def accumulate(number: int, model: Any, optimizer: Any) -> None:
    """A sum of squares of the weights, kept elsewhere: reads them, and writes to other memory."""
    optimizer.norm = getattr(optimizer, "norm", genesis.zeros((), device="cuda"))
    optimizer.norm += model[0].weight.detach().square().sum()


@pytest.mark.parametrize(("between", "compiled"), sweep_but(
    lambda between, compiled: between is add_by_hand or compiled is (between is not load),
    [add_by_hand, copy_from_numpy, other_data, load, write_through_dlpack, evaluate, accumulate], [False, True]))
def test_whoever_else_uses_the_weights(cuda: Any, between: Between, compiled: bool) -> None:
    assert train(True, between, compiled) == train(False, between, compiled)


@by_default("gpu-*", "host-False")
@pytest.mark.parametrize("compiled", [False, True])
def test_only_writes_make_copies_anew(cuda: Any, refreshes: list[int], compiled: bool) -> None:
    train(True, evaluate, compiled)
    assert refreshes == [2, 0, 0, 0, 0]
    refreshes.clear()
    train(True, add_by_hand, compiled)
    assert refreshes.count(2) == 2, "once at first, once after the write"


@by_default("gpu-*", "host-True")
@pytest.mark.parametrize("compiled", [False, True])
def test_plans_of_all_batch_sizes_share_the_copies(cuda: Any, refreshes: list[int], compiled: bool) -> None:
    rows = (4, 7, 4, 4, 7)
    kept = train(True, rows=rows, compiled=compiled)
    assert [count for count in refreshes if count] == [2]
    # Plans of another size may round an intermediate that these keep in registers.
    for got, want in zip(kept, train(False, rows=rows, compiled=compiled), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-3)


def test_two_models_of_one_structure(cuda: Any) -> None:
    def losses(keep: bool) -> list[float]:
        genesis.config.keep_shadow_weights = keep
        steps = [stepping(model_of(seed))[0] for seed in (1, 2)]
        return [step(batch(number)).item() for number in range(3) for step in steps]
    assert losses(True) == losses(False)


@pytest.mark.parametrize("compiled", sweep_but(lambda compiled: compiled, [False, True]))
def test_a_plan_that_writes_a_weight_that_only_another_reads_in_low_precision(cuda: Any, compiled: bool) -> None:
    """A tied embedding: one step looks rows up, in float32, the other multiplies by the table."""
    def losses(keep: bool) -> list[float]:
        genesis.config.keep_shadow_weights = keep
        genesis.manual_seed(0)
        table = nn.Parameter(genesis.randn(7, 6, device="cuda"))
        head = nn.Linear(6, 5).to("cuda")
        optimizer = genesis.optim.AdamW([table, *head.parameters()], lr=0.05)
        ids = genesis.tensor([1, 3, 5, 1], device="cuda")

        def look_up(x: Any) -> Any:
            with genesis.autocast("cuda"):
                loss = head(table[ids]).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        def multiply(x: Any) -> Any:
            with genesis.autocast("cuda"):
                loss = nn.functional.linear(x, table).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss
        steps = [genesis.compile(step) if compiled else step for step in (look_up, multiply)]
        return [step(batch(number)).item() for number in range(4) for step in steps]
    assert losses(True) == losses(False)


def test_two_weights_that_get_one_value(cuda: Any) -> None:
    def results(keep: bool) -> list[Any]:
        genesis.config.keep_shadow_weights = keep
        genesis.manual_seed(0)
        a, b, new = (genesis.randn(8, 6, device="cuda") for _ in range(3))
        genesis.eval(a, b, new)
        found = []
        for number in range(3):
            with genesis.autocast("cuda"):
                y = nn.functional.linear(batch(number), a), nn.functional.linear(batch(number), b)
            value = new * 0.5 + number
            a.copy_(value)
            b.copy_(value)
            found += [array(part.float()).tolist() for part in y]
        return found
    assert results(True) == results(False)


def test_the_copies_go_with_the_model(cuda: Any) -> None:
    model = model_of()
    step, optimizer = stepping(model)
    step(batch(0)).item()
    assert len(shadow_weights.copies) == 2
    del model, step, optimizer
    gc.collect()
    genesis.cuda.empty_cache()  # the plan that made the weights may still have their memory for its next run
    assert not shadow_weights.copies


def test_a_failed_step_leaves_no_wrong_copy(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def losses(keep: bool, failing: bool) -> list[float]:
        genesis.config.keep_shadow_weights = keep
        model = model_of()
        step, _ = stepping(model)
        found = [step(batch(0)).item(), step(batch(1)).item()]
        if failing:
            with monkeypatch.context() as patched:
                patched.setattr(CudaExecutor, "start", _fail)
                with pytest.raises(RuntimeError, match="no memory"):
                    step(batch(2)).item()
        return [*found, step(batch(3)).item()]
    assert losses(True, failing=True)[:2] == losses(False, failing=False)[:2]
    genesis.config.keep_shadow_weights = True
    assert losses(True, failing=True) == losses(False, failing=True)


def _fail(*args: Any) -> Any:
    raise RuntimeError("no memory")


def one_weight() -> tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]:
    """A weight, a product with it in mixed precision, and a training step: two kernels where `model_of` has a dozen."""
    weight = genesis.full((3, 6), 0.5, device="cuda", requires_grad=True)
    optimizer = genesis.optim.SGD([weight], lr=1.0)

    def product(x: Any) -> Any:
        with genesis.autocast("cuda"):
            return nn.functional.linear(x, weight).float().sum()

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = product(x)
        loss.backward()
        optimizer.step()
        return loss
    return weight, product, step


def anew(product: Callable[[Any], Any], x: Any) -> float:
    """The product with the weight as it is now."""
    genesis.config.keep_shadow_weights = False
    with genesis.no_grad():
        found: float = product(x).item()
    genesis.config.keep_shadow_weights = True
    return found


def test_a_kernel_that_fails_between_a_weight_and_its_copy(host_cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has written the weight and not the copy: the next step multiplies with the weight that there is."""
    monkeypatch.setattr(executor, "STEPS_WITHOUT_GRAPH", 1000)
    weight, product, step = one_weight()
    step(batch(0)).item()
    works = host_cuda.launch
    copy, = shadow_weights.copies[id(weight.storage.cell.memory)].values()

    def launch(prepared: Any, stream: Any) -> None:
        before = ctypes.string_at(copy.memory.ptr, copy.memory.nbytes)
        works(prepared, stream)
        if ctypes.string_at(copy.memory.ptr, copy.memory.nbytes) != before:
            ctypes.memmove(copy.memory.ptr, before, len(before))
            raise RuntimeError("the launch failed")
    with monkeypatch.context() as patched:
        patched.setattr(host_cuda, "launch", launch)
        with pytest.raises(RuntimeError, match="the launch failed"):
            step(batch(1)).item()
    want = anew(product, batch(2))
    assert step(batch(2)).item() == pytest.approx(want, rel=1e-3)


def test_who_knows_a_weights_address_writes_to_it_unseen(host_cuda: Any) -> None:
    weight, _, step = one_weight()
    step(batch(0)).item()
    other = genesis.from_dlpack(weight.detach())
    for number in (1, 2):
        step(batch(number)).item()
        values = (ctypes.c_float * 18).from_address(weight.data_ptr())
        values[:] = [float(number)] * 18
        assert step(batch(0)).item() == pytest.approx(number * batch(0).sum().item() * 3, rel=2e-2)  # bfloat16's 2^-8
    del other


def test_off_there_is_nothing_to_keep(cuda: Any) -> None:
    train(False)
    plan = engine.last_plan()
    assert plan is not None and not plan.plan.kept and plan.plan.refresh is None and not shadow_weights.copies
