"""What raises in the middle of a step, of LBFGS or of a schedule, leaves what was there before it, or all of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import genesis
from genesis import optim
from genesis.frontend.grad_mode import tracking
from genesis.runtime.cpu.straight_line import RUNS_BEFORE
from tests.faults.events import Traced, chosen, injected, instants_of
from tests.faults.loop_programs import SCHEDULES


def second_order(search: str | None, raises_at: int = 0) -> tuple[Any, optim.LBFGS, Callable[[], Any]]:
    """A parameter, its optimizer, and a closure whose call of this number raises."""
    w = genesis.tensor([3.0, -2.0], requires_grad=True)
    opt = optim.LBFGS([w], lr=0.5, max_iter=3, line_search_fn=search)
    calls = 0

    def closure() -> Any:
        nonlocal calls
        calls += 1
        if calls == raises_at:
            raise KeyboardInterrupt
        opt.zero_grad()
        loss = (w - 1).pow(4).sum()
        loss.backward()
        return loss
    return w, opt, closure


def state_of(opt: optim.LBFGS) -> dict[str, Any]:
    return {name: [x.tolist() if isinstance(x, genesis.Tensor) else x for x in value] if isinstance(value, list) else
            value.tolist() if isinstance(value, genesis.Tensor) else value
            for state in opt.state.values() for name, value in state.items()}


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_closure_that_raises_ends_a_step_of_lbfgs_where_it_began(search: str | None) -> None:
    for number in range(2, 6):
        w, opt, closure = second_order(search)
        opt.step(closure)
        before, kept = w.tolist(), state_of(opt)
        v, twin, same = second_order(search)
        twin.step(same)
        calls = 0

        def raising(closure: Callable[[], Any] = closure, number: int = number) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise KeyboardInterrupt
            return closure()
        try:
            opt.step(raising)
        except KeyboardInterrupt:
            assert (w.tolist(), state_of(opt)) == (before, kept)
            opt.step(closure)
        else:
            assert calls < number
        twin.step(same)
        assert (w.tolist(), state_of(opt)) == (v.tolist(), state_of(twin))


def tracked_until_it_raises(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function with tracking on, which stays on where it raises."""
    def inside() -> Any:
        mode = tracking(True)
        mode.__enter__()
        found = function()
        mode.__exit__(None, None, None)
        return found
    return inside


LEFT: dict[str, Callable[[], Any]] = {
    "tracking": lambda: tracking(True), "inference": genesis.inference_mode,
    "autocast": lambda: genesis.autocast("cpu"),
    "device": lambda: genesis.device("meta"), "anomaly": genesis.autograd.detect_anomaly}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_closure_that_leaves_a_mode_switched_and_raises(search: str | None, left: str,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """As an interrupt does where a `with` of the closure, or the one around it, ends: what puts parameters back works
    in any mode."""
    monkeypatch.setattr(optim.lbfgs, "enable_grad", lambda: tracked_until_it_raises)
    w, opt, closure = second_order(search)
    opt.step(closure)
    before, kept = w.tolist(), state_of(opt)
    calls, mode = 0, LEFT[left]()

    def leaving() -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            mode.__enter__()
            raise KeyboardInterrupt
        return closure()
    try:
        with pytest.raises(KeyboardInterrupt):
            opt.step(leaving)
    finally:
        mode.__exit__(None, None, None)
    genesis.set_grad_enabled(True)
    assert (w.tolist(), state_of(opt)) == (before, kept)
    v, twin, same = second_order(search)
    twin.step(same)
    twin.step(same)
    opt.step(closure)
    assert (w.tolist(), state_of(opt)) == (v.tolist(), state_of(twin))


def test_a_first_step_of_lbfgs_that_fails_leaves_no_state() -> None:
    w, opt, closure = second_order(None, raises_at=2)
    with pytest.raises(KeyboardInterrupt):
        opt.step(closure)
    assert (w.tolist(), state_of(opt)) == ([3.0, -2.0], {})
    opt.step(closure)
    v, twin, same = second_order(None)
    twin.step(same)
    assert (w.tolist(), state_of(opt)) == (v.tolist(), state_of(twin))


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_last_move_that_has_no_memory_ends_the_step_where_it_began(search: str | None) -> None:
    """What moves the parameters last is computed within the step: its failure drops the history of it, too."""
    for _ in range(RUNS_BEFORE + 2):  # those below find these programs, as one function each
        w, opt, closure = second_order(search)
        opt.step(closure)
        before, kept = w.tolist(), state_of(opt)
        opt.step(closure)
        assert w.storage.settled, "the last move waits for its first reader"
        after = w.tolist(), state_of(opt)
    calls = instants_of("call", "cpu")
    w, opt, closure = second_order(search)
    opt.step(closure)
    count, failed = len(calls.places(lambda: opt.step(closure))), 0
    for at in range(count - 20, count):  # those of the last plan, and a few before
        w, opt, closure = second_order(search)
        opt.step(closure)
        expected = after  # what the step does not need may have failed alone
        try:
            calls.fail(lambda opt=opt, closure=closure: opt.step(closure), at, injected(MemoryError))
        except MemoryError:
            expected = before, kept
            failed += 1
        assert (w.tolist(), state_of(opt)) == expected, f"call {at} of {count}"
    assert failed


def test_what_a_hook_has_no_memory_for_leaves_the_last_move_of_lbfgs() -> None:
    """What a hook records behind a step is no part of it: the parameters have moved, as the history says."""
    w, opt, closure = second_order(None)
    opt.param_groups[0]["max_iter"] = 1  # the step ends behind its move, which no evaluation computes
    opt.step(closure)
    before, total = w.tolist(), genesis.zeros(())
    genesis.eval(total)  # memory that is overwritten: the write is dropped
    opt.register_step_post_hook(lambda *_: total.add_(genesis.ones(1 << 50).cumsum(0)[-1]))
    with pytest.raises(MemoryError):
        opt.step(closure)
    alone, other, closure = second_order(None)
    other.param_groups[0]["max_iter"] = 1
    for _ in range(2):
        other.step(closure)
    assert alone.tolist() != before
    assert (w.tolist(), state_of(opt)) == (alone.tolist(), state_of(other))


def stepped(name: str) -> tuple[Any, Callable[[], Any]]:
    """A schedule after two steps, and its state with the options that it sets."""
    opt = optim.SGD([genesis.ones(1, requires_grad=True)], lr=0.5, momentum=0.5)
    schedule = SCHEDULES[name](opt)
    for _ in range(2):
        schedule.step()

    def shown() -> Any:
        groups = [{key: value for key, value in group.items() if key != "params"} for group in opt.param_groups]
        return repr((schedule.state_dict(), groups))
    return schedule, shown


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_interrupt_at_any_line_of_a_schedules_step(name: str) -> None:
    schedule, shown = stepped(name)
    before = shown()
    schedule.step()
    after, lines = shown(), Traced("line")
    assert before != after
    schedule, shown = stepped(name)
    places = lines.places(schedule.step)
    found = set()
    for at in chosen(places):
        schedule, shown = stepped(name)
        with pytest.raises(KeyboardInterrupt):
            lines.interrupt(schedule.step, at)
        assert shown() in (before, after), f"interrupted at {places[at]}"
        found.add(shown())
    assert before in found


def averaging(kind: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A statement that writes several tensors, and what they show."""
    net = genesis.nn.Sequential(genesis.nn.Linear(2, 2), genesis.nn.BatchNorm1d(2))
    with genesis.no_grad():
        for i, p in enumerate(net.parameters()):
            p.fill_(i + 1.0)
    if kind == "vector":
        vector = genesis.arange(sum(p.numel() for p in net.parameters())).float()
        return (lambda: genesis.nn.utils.vector_to_parameters(vector, net.parameters()),
                lambda: [p.tolist() for p in net.parameters()])
    if kind == "statistics":
        net(genesis.arange(6).view(3, 2).float())
        return net[1].reset_running_stats, lambda: [x.tolist() for x in net.buffers()]
    choices = {"ema": {"multi_avg_fn": optim.swa_utils.get_ema_multi_avg_fn(0.5)}, "equal shares": {},
               "function": {"avg_fn": optim.swa_utils.get_swa_avg_fn(), "use_buffers": True}}
    average = optim.swa_utils.AveragedModel(net, **choices[kind])
    average.update_parameters(net)
    with genesis.no_grad():
        for p in net.parameters():
            p.mul_(3.0)
        net[1].running_mean.fill_(5.0)
    return (lambda: average.update_parameters(net),
            lambda: [x.tolist() for x in (*average.parameters(), *average.buffers())])


@pytest.mark.parametrize("kind", ["vector", "ema", "equal shares", "function", "statistics"])
def test_tensors_that_are_written_together_are_all_written_or_none(kind: str) -> None:
    run, shown = averaging(kind)
    before = shown()
    run()
    after, lines = shown(), Traced("line", ("optim/", "nn/"))
    run, shown = averaging(kind)
    places = lines.places(run)
    raised = 0
    for at in chosen(places):
        run, shown = averaging(kind)
        try:
            lines.interrupt(run, at)
        except KeyboardInterrupt:
            raised += 1
        assert shown() in (before, after), f"interrupted at {places[at]}"
    assert raised > 3
    assert before != after


def test_an_interrupt_at_any_line_leaves_batch_norms_their_momentum() -> None:
    net = genesis.nn.Sequential(*[genesis.nn.BatchNorm1d(2, momentum=0.25) for _ in range(3)])
    lines = Traced("line", ("optim/", "runtime/contexts.py"))

    def gathered() -> None:
        optim.swa_utils.update_bn([genesis.ones(3, 2)], net)
    gathered()
    places = lines.places(gathered)
    for at in range(len(places)):
        with suppress(KeyboardInterrupt):
            lines.interrupt(gathered, at)
        if lines.last.unprotected:
            for module in net:
                module.momentum = 0.25
        assert [module.momentum for module in net] == [0.25] * 3, f"interrupted at {places[at]}"


def test_a_loader_that_raises_leaves_batch_norms_their_momentum() -> None:
    net = genesis.nn.BatchNorm1d(2, momentum=0.25).eval()

    def batches() -> Any:
        yield genesis.ones(3, 2)
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        optim.swa_utils.update_bn(batches(), net)
    assert (net.momentum, net.training) == (0.25, False)
