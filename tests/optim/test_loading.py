"""A state dict is taken over whole or not at all: what does not fit raises, and nothing has changed then."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch_peer import array_of, assert_same

import genesis
from genesis import optim
from genesis.engine import flushing, running
from genesis.runtime.cpu.executor import CPUExecutor
from tests.optim.test_optimizers import CASES, assert_all_same, loss_of, problem, take_steps
from tests.sweeping import by_default

MOVING = [name for name in CASES if name not in ("sgd",)]
"""The cases whose optimizer has tensors in its state."""


def trained(name: str, steps: int = 2) -> tuple[Any, list[Any], Any]:
    kind, options = CASES[name]
    ours, _, (target, _) = problem()
    optimizer = getattr(optim, kind)(ours, **options)
    take_steps(optimizer, ours, target, steps)
    return optimizer, ours, target


def copied(optimizer: Any) -> dict[str, Any]:
    """A state dict that shares nothing with the optimizer."""
    found = optimizer.state_dict()
    return {"state": {number: {name: value.clone() if isinstance(value, genesis.Tensor) else value
                               for name, value in state.items()} for number, state in found["state"].items()},
            "param_groups": deepcopy(found["param_groups"])}


def contents(optimizer: Any) -> Any:
    """All that an optimizer holds, as plain numbers."""
    found = optimizer.state_dict()
    return ({number: {name: array_of(value).tolist() if isinstance(value, genesis.Tensor) else value
                      for name, value in state.items()} for number, state in found["state"].items()},
            found["param_groups"])


def a_tensor(state: dict[str, Any]) -> str:
    """The name of a tensor that is shaped like the parameter."""
    return next(name for name, value in state.items() if isinstance(value, genesis.Tensor) and value.ndim)


Change = Callable[[dict[str, Any], dict[str, Any]], Any]
WRONG: dict[str, tuple[Change, type[Exception], str]] = {
    "one element": (lambda state, _: state.update({a_tensor(state): genesis.ones(1)}), ValueError, "has shape"),
    "no dimensions": (lambda state, _: state.update({a_tensor(state): genesis.tensor(1.0)}), ValueError, "has shape"),
    "a dimension more": (lambda state, _: state.update({a_tensor(state): state[a_tensor(state)][None]}), ValueError,
                         "has shape"),
    "empty": (lambda state, _: state.update({a_tensor(state): genesis.ones(0)}), ValueError, "has shape"),
    "a tensor is gone": (lambda state, _: state.pop(a_tensor(state)), ValueError, "has no"),
    "a tensor is None": (lambda state, _: state.update({a_tensor(state): None}), TypeError, "None"),
    "a tensor is a number": (lambda state, _: state.update({a_tensor(state): 0.0}), TypeError, "not a tensor"),
    "a tensor is torch's": (lambda state, _: state.update({a_tensor(state): torch.zeros(3)}), TypeError,
                            r"a torch\.Tensor, not a tensor of Genesis"),
    "a tensor is a list": (lambda state, _: state.update({a_tensor(state): [0.0] * 3}), TypeError, "not a tensor"),
    "a negative step": (lambda state, _: state.update(step=-1), ValueError, "no count of steps"),
    "half a step": (lambda state, _: state.update(step=1.5), ValueError, "no count of steps"),
    "no step": (lambda state, _: state.update(step=float("nan")), ValueError, "no count of steps"),
    "steps without end": (lambda state, _: state.update(step=float("inf")), ValueError, "no count of steps"),
    "a step in words": (lambda state, _: state.update(step="two"), ValueError, "no count of steps"),
    "many steps": (lambda state, _: state.update(step=genesis.ones(2)), ValueError, "has shape"),
    "an option is gone": (lambda _, group: group.pop("lr"), ValueError, "no option 'lr'"),
    "an option in words": (lambda _, group: group.update(lr="fast"), ValueError, "option 'lr'"),
    "no group's parameters": (lambda _, group: group.pop("params"), ValueError, "params"),
    "too few parameters": (lambda _, group: group.update(params=[0]), ValueError, "size of optimizer's group"),
    "a parameter twice": (lambda _, group: group.update(params=[0, 0]), ValueError, "more than once"),
}


@by_default("sgd with momentum-*", "*-one element", "*-a tensor is gone", "*-a parameter twice")
@pytest.mark.parametrize("change", WRONG)
@pytest.mark.parametrize("name", MOVING)
def test_what_does_not_fit_raises_and_changes_nothing(name: str, change: str) -> None:
    """The last parameter's state is wrong: those before it must not have been copied."""
    saved = copied(trained(name, 3)[0])
    apply, error, words = WRONG[change]
    apply(saved["state"][1], saved["param_groups"][0])
    optimizer, _, _ = trained(name)
    before = deepcopy(contents(optimizer))
    with pytest.raises(error, match=words):
        optimizer.load_state_dict(saved)
    assert contents(optimizer) == before


@pytest.mark.parametrize("state, error", [
    ({}, KeyError), ({"param_groups": []}, KeyError), ([], TypeError), (None, TypeError),
    ({"state": {}, "param_groups": 3}, ValueError), ({"state": {}, "param_groups": [3]}, ValueError),
    ({"state": [], "param_groups": [{"params": [0, 1]}]}, ValueError), ({"state": {}, "param_groups": []}, ValueError),
], ids=str)
def test_what_is_no_state_dict_is_refused(state: Any, error: type[Exception]) -> None:
    optimizer, _, _ = trained("adamw")
    before = deepcopy(contents(optimizer))
    with pytest.raises(error):
        optimizer.load_state_dict(state)
    assert contents(optimizer) == before


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("empty", [{}, {0: {}, 1: {}}], ids=["no states", "empty states"])
def test_a_parameter_without_state_begins_anew(name: str, empty: dict[int, Any]) -> None:
    """As in torch: not with zeros where a state begins with something else (Rprop's steps, NAdam's product)."""
    optimizer, _, _ = trained(name)
    optimizer.load_state_dict({"state": empty, "param_groups": copied(optimizer)["param_groups"]})
    kind, options = CASES[name]
    assert contents(optimizer)[0] == contents(getattr(optim, kind)(problem()[0], **options))[0]


@pytest.mark.parametrize("name", MOVING)
def test_the_tensors_stay_and_share_nothing_with_what_was_loaded(name: str) -> None:
    optimizer, parameters, _ = trained(name)
    mine = {(p, key): value for p in parameters for key, value in optimizer.state[p].items()
            if isinstance(value, genesis.Tensor)}
    saved = copied(trained(name, 3)[0])
    optimizer.load_state_dict(saved)
    assert all(optimizer.state[p][key] is value for (p, key), value in mine.items())
    before = deepcopy(contents(optimizer))
    for state in saved["state"].values():
        state[a_tensor(state)].fill_(7.0)
    for option in saved["param_groups"][0].values():
        if isinstance(option, list):
            option.clear()
    assert contents(optimizer) == before


def test_a_buffer_that_was_not_there_is_a_copy() -> None:
    """Momentum comes with the options that were saved; the two optimizers go on apart, and compiled steps know."""
    first, parameters, target = trained("sgd with momentum")
    kept = contents(first)[0]
    second = optim.SGD(parameters, lr=0.5)

    @genesis.compile
    def step() -> None:
        second.zero_grad()
        loss_of(parameters, target).backward()
        second.step()
    for _ in range(3):
        step()
    second.load_state_dict(first.state_dict())
    peers = [genesis.tensor(array_of(p), requires_grad=True) for p in parameters]
    plain = optim.SGD(peers, lr=0.5)
    plain.load_state_dict(copied(first))
    for _ in range(3):
        step()
    take_steps(plain, peers, target, 3)
    for a, b in zip(parameters, peers, strict=True):
        assert a.tolist() == b.tolist()
    assert contents(first)[0] == kept


def test_a_state_that_does_not_fit_leaves_the_options() -> None:
    """The groups are looked at first, and are right: they must not have been taken over."""
    optimizer, _, _ = trained("adamw")
    saved = copied(optimizer)
    saved["param_groups"][0]["lr"] = 77.0
    saved["state"][1]["step"] = -1
    with pytest.raises(ValueError, match="no count of steps"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] != 77.0


def test_moments_of_another_dtype_are_cast() -> None:
    optimizer, parameters, _ = trained("adamw")
    saved = copied(optimizer)
    for state in saved["state"].values():
        state["exp_avg"] = state["exp_avg"].double()
    optimizer.load_state_dict(saved)
    assert {optimizer.state[p]["exp_avg"].dtype for p in parameters} == {genesis.float32}


def test_state_of_nobody_goes_when_another_state_is_loaded() -> None:
    optimizer, _, _ = trained("adamw")
    saved = copied(optimizer)
    optimizer.state["note"] = {"epoch": 3}
    optimizer.load_state_dict(saved)
    assert "note" not in optimizer.state


def test_a_compiled_step_goes_on_with_loaded_tensors() -> None:
    """After the state was cleared what is loaded goes into new tensors, as many as before."""
    found = []
    for compiled in (False, True):
        w = genesis.tensor([1.0, 2.0], requires_grad=True)
        optimizer = optim.AdamW([w], lr=0.1)
        states = optimizer.state  # asked for before: compiled steps look when somebody asks

        def step(w: Any = w, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            (w ** 2).sum().backward()
            optimizer.step()
        run = genesis.compile(step) if compiled else step
        run()
        saved = copied(optimizer)
        for _ in range(4):
            run()
        states.clear()
        optimizer.load_state_dict(saved)
        for _ in range(2):
            run()
        found.append((w.tolist(), contents(optimizer)))
    assert found[0] == found[1]


def test_states_can_change_places() -> None:
    """Each is read before any is written: two parameters of one shape swap their moments."""
    weights = [genesis.tensor([value], requires_grad=True) for value in (1.0, 2.0)]
    optimizer = optim.Adam(weights, lr=0.1)
    (weights[0] + weights[1] * 5).sum().backward()
    optimizer.step()
    first, second = (optimizer.state[w]["exp_avg"].item() for w in weights)
    state = optimizer.state_dict()
    state["state"] = {0: state["state"][1], 1: state["state"][0]}
    optimizer.load_state_dict(state)
    assert [optimizer.state[w]["exp_avg"].item() for w in weights] == [second, first] and first != second


@pytest.mark.parametrize(("place", "name"), [(flushing, "prepare"), (CPUExecutor, "start")])
def test_a_load_that_finds_no_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
    """Whether it is while the plan is looked for or while it runs: moments, counts and options stay together."""
    saved = in_memory(copied(trained("adamw", 3)[0]))
    saved["param_groups"][0]["lr"] = 0.5
    optimizer, *_ = trained("adamw", 1)
    before = deepcopy(contents(optimizer))
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(place, name, _no_memory)
        optimizer.load_state_dict(saved)
    assert contents(optimizer) == before
    optimizer.load_state_dict(saved)
    assert [state["step"] for state in optimizer.state.values()] == [3] * len(optimizer.state)


def test_a_load_that_fails_when_all_is_written_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensors have their new contents then, so counts and options stay with them."""
    expected = trained("adamw", 3)[0]
    saved = in_memory(copied(expected))
    optimizer, *_ = trained("adamw", 1)
    settle = running.finish

    def failing(flush: Any) -> None:
        settle(flush)
        raise MemoryError
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(running, "finish", failing)
        optimizer.load_state_dict(saved)
    assert contents(optimizer)[0] == contents(expected)[0]


def in_memory(saved: dict[str, Any]) -> dict[str, Any]:
    """The state dict, with its tensors computed: a load has nothing to run but its own copies."""
    genesis.eval([x for state in saved["state"].values() for x in state.values() if isinstance(x, genesis.Tensor)])
    return saved


def _no_memory(*args: Any) -> Any:
    raise MemoryError


def test_options_are_torchs_saved_ones() -> None:
    """Saved options replace the optimizer's, those it had from elsewhere are gone, flags that are missing are False."""
    found = []
    for library, module in ((genesis, optim), (torch, torch.optim)):
        optimizer = module.SGD([library.ones(2, requires_grad=True)], lr=0.5, momentum=0.9)
        optimizer.param_groups[0]["mark"] = "mine"
        saved = optimizer.state_dict()["param_groups"][0]
        saved = {name: value for name, value in saved.items() if name not in ("mark", "maximize", "nesterov")}
        optimizer.load_state_dict({"state": {}, "param_groups": [{**saved, "lr": 0.25, "initial_lr": 1.0}]})
        group = optimizer.param_groups[0]
        found.append({name: group.get(name, "gone") for name in
                      ("lr", "momentum", "initial_lr", "mark", "maximize", "nesterov")})
    assert found[0] == found[1]


def test_what_the_optimizer_does_not_know_is_kept_as_in_torch() -> None:
    for library, module in ((genesis, optim), (torch, torch.optim)):
        optimizer = module.SGD([library.ones(2, dtype=library.float64, requires_grad=True)], lr=0.5)
        saved = optimizer.state_dict()
        saved["state"] = {0: {"mine": library.ones(3), "notes": [1, 2]}, "other": {"x": 1}}
        optimizer.load_state_dict(saved)
        found = optimizer.state_dict()["state"]
        assert found[0]["mine"].dtype is library.float64 and found[0]["notes"] == [1, 2] and found["other"] == {"x": 1}


def test_torchs_momentum_buffers_are_directions() -> None:
    """torch keeps no count for SGD: a buffer says that a step was made, so that dampening holds from the next on."""
    ours, theirs, (target, ttarget) = problem()
    options = {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}
    peer = torch.optim.SGD(theirs, **options)
    take_steps(peer, theirs, ttarget, 2)
    optimizer = optim.SGD(ours, **options)
    saved = peer.state_dict()
    optimizer.load_state_dict({"param_groups": saved["param_groups"], "state": {
        n: {"momentum_buffer": genesis.tensor(s["momentum_buffer"].numpy())} for n, s in saved["state"].items()}})
    with genesis.no_grad():
        for a, b in zip(ours, theirs, strict=True):
            a.copy_(genesis.tensor(b.detach().numpy()))
    take_steps(optimizer, ours, target, 2)
    take_steps(peer, theirs, ttarget, 2)
    assert_all_same(ours, theirs)


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_options_that_cannot_be_followed_are_refused(kind: str) -> None:
    w = genesis.ones(2, requires_grad=True)
    saved = torch.optim.AdamW([torch.ones(2, requires_grad=True)]).state_dict()
    if kind == "Adam":
        with pytest.raises(ValueError, match="decoupled"):
            optim.Adam([w]).load_state_dict(saved)
    else:
        optim.AdamW([w]).load_state_dict(saved)


def test_a_narrow_parameters_moments_keep_their_bits() -> None:
    w = genesis.ones(2, dtype=genesis.bfloat16, requires_grad=True)
    optimizer = optim.AdamW([w])
    w.grad = genesis.ones(2, dtype=genesis.bfloat16)
    optimizer.step()
    saved = copied(optimizer)
    saved["state"][0]["exp_avg"] = genesis.tensor([1.001, 2.002])
    optimizer.load_state_dict(saved)
    assert_same(optimizer.state[w]["exp_avg"], torch.tensor([1.001, 2.002]))


# Schedulers and the scaler

SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "step": lambda m, o: m.StepLR(o, 2), "several": lambda m, o: m.MultiStepLR(o, [2, 4]),
    "cycle": lambda m, o: m.OneCycleLR(o, 1.0, 9), "triangles": lambda m, o: m.CyclicLR(o, 0.1, 1.0, 2),
    "sequence": lambda m, o: m.SequentialLR(o, [m.ConstantLR(o, 0.1, 20), m.ExponentialLR(o, 0.9)], [3]),
    "chain": lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.1, 3), m.ExponentialLR(o, 0.9)]),
    "plateau": lambda m, o: m.ReduceLROnPlateau(o),
    "product": lambda m, o: m.MultiplicativeLR(o, lambda epoch: 0.5),
}
WRONG_SCHEDULES: dict[str, tuple[Change, tuple[type[Exception], ...]]] = {
    "no epoch": (lambda state, last: last.pop("last_epoch"), (KeyError,)),
    "an epoch in words": (lambda state, last: last.update(last_epoch="three"), (ValueError,)),
    "no number": (lambda state, last: last.update(last_epoch=float("nan")), (ValueError,)),
    "None": (lambda state, last: last.update(last_epoch=None), (ValueError,)),
    "rates of other groups": (lambda state, last: last.update(base_lrs=[1.0], min_lrs=[1.0]), (ValueError,)),
    "rates in words": (lambda state, last: last.update(base_lrs=["a", "b"], min_lrs=["a", "b"]), (ValueError,)),
}


def with_schedule(name: str, library: Any = genesis, steps: int = 3, **options: Any) -> tuple[Any, Any]:
    groups = [{"params": [library.ones(1, requires_grad=True)], "lr": lr} for lr in (0.5, 0.1)]
    optimizer = library.optim.SGD(groups, momentum=0.9)
    scheduler = SCHEDULES[name](library.optim.lr_scheduler, optimizer)
    for _ in range(steps):
        optimizer.step()
        scheduler.step(*([1.0] if name == "plateau" else []))
    return scheduler, optimizer


@pytest.mark.parametrize("change", WRONG_SCHEDULES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedules_state_that_does_not_fit_changes_nothing(name: str, change: str) -> None:
    state = deepcopy(with_schedule(name)[0].state_dict())
    apply, errors = WRONG_SCHEDULES[change]
    apply(state, state["schedulers"][-1] if "schedulers" in state else state)
    scheduler, optimizer = with_schedule(name, steps=1)
    before = deepcopy((scheduler.state_dict(), optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]))
    with pytest.raises(errors):
        scheduler.load_state_dict(state)
    assert (scheduler.state_dict(), optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]) == before


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore")
def test_a_schedule_goes_on_as_torchs_does(name: str) -> None:
    """Scheduler and optimizer, saved after three epochs and loaded into new ones."""
    rates = []
    for library in (genesis, torch):
        scheduler, optimizer = with_schedule(name, library)
        second, other = with_schedule(name, library, steps=0)
        other.load_state_dict(optimizer.state_dict())
        second.load_state_dict(scheduler.state_dict())
        rates.append([group["lr"] for group in other.param_groups])
        for _ in range(3):
            other.step()
            second.step(*([1.0] if name == "plateau" else []))
            rates[-1] += [group["lr"] for group in other.param_groups]
    assert rates[0] == pytest.approx(rates[1], rel=1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore")
def test_a_schedule_goes_on_from_torchs_own_state(name: str) -> None:
    theirs, peer = with_schedule(name, torch)
    ours, optimizer = with_schedule(name, steps=0)
    optimizer.load_state_dict(peer.state_dict())
    ours.load_state_dict(theirs.state_dict())
    for _ in range(4):
        rates, wanted = ([group["lr"] for group in one.param_groups] for one in (optimizer, peer))
        assert rates == pytest.approx(wanted, rel=1e-9)
        for one, schedule in ((optimizer, ours), (peer, theirs)):
            one.step()
            schedule.step(*([1.0] if name == "plateau" else []))


def test_a_schedules_numbers_are_the_saved_ones_as_in_torch() -> None:
    found = []
    for library in (genesis, torch):
        optimizer = library.optim.SGD([library.ones(1, requires_grad=True)], lr=1.0)
        second = library.optim.lr_scheduler.StepLR(optimizer, step_size=50, gamma=0.5)
        second.load_state_dict(library.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1).state_dict())
        found.append((second.step_size, second.gamma))
    assert found[0] == found[1]


def test_a_schedule_of_other_schedules_is_refused() -> None:
    state = with_schedule("sequence")[0].state_dict()
    state["schedulers"].pop()
    scheduler, _ = with_schedule("sequence", steps=1)
    with pytest.raises(ValueError, match="not of 2 schedules"):
        scheduler.load_state_dict(state)
    assert scheduler.last_epoch == 1


@pytest.mark.parametrize("name", ["scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"])
@pytest.mark.parametrize("value", [None, "a", float("nan"), -1.0, [1.0], "gone"], ids=str)
def test_a_scalers_state_that_does_not_fit_changes_nothing(name: str, value: Any) -> None:
    scaler = genesis.amp.GradScaler("cpu", init_scale=4.0)
    before = scaler.state_dict()
    state = {"scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 2}
    if value == "gone":
        state.pop(name)
    else:
        state[name] = value
    with pytest.raises((KeyError, ValueError)):
        scaler.load_state_dict(state)
    assert scaler.state_dict() == before


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Rprop", "LBFGS"])
def test_a_group_has_torchs_options_before_its_parameters(kind: str) -> None:
    def keys(library: Any) -> list[str]:
        parameter = library.nn.Parameter(library.zeros(2))
        return list(getattr(library.optim, kind)([parameter], lr=0.1).state_dict()["param_groups"][0])
    assert set(keys(genesis)) == set(keys(torch)) and keys(genesis)[-1] == keys(torch)[-1] == "params"
