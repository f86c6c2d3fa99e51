"""Optimizers: five steps give torch's parameters, and states go from one to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_peer import array_of, assert_same, both, numbers
from torch_programs import check

import genesis
from genesis import nn, optim

STEPS = 5
CASES = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd with momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd with dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "sgd with nesterov and decay": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "sgd upwards": ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True, "weight_decay": 0.1}),
    "adam": ("Adam", {"lr": 0.1}),
    "adam with decay": ("Adam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}),
    "adam upwards": ("Adam", {"lr": 0.1, "maximize": True}),
    "adamw": ("AdamW", {"lr": 0.1}),
    "adamw with decay": ("AdamW", {"lr": 0.1, "weight_decay": 0.5, "betas": (0.8, 0.9)}),
    "adamw upwards": ("AdamW", {"lr": 0.1, "maximize": True}),
    "adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
    "adadelta": ("Adadelta", {"lr": 1.0, "weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {"lr": 0.1}),
    "rmsprop with momentum": ("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    "rprop": ("Rprop", {"lr": 0.1}),
    "rprop upwards": ("Rprop", {"lr": 0.1, "maximize": True, "step_sizes": (0.01, 0.11)}),
    "asgd": ("ASGD", {"lr": 0.1}),
    "asgd that averages": ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 1, "weight_decay": 0.1}),
    "asgd upwards": ("ASGD", {"lr": 0.1, "maximize": True, "alpha": 0.5, "lambd": 0.5}),
    "adam with amsgrad": ("Adam", {"lr": 0.1, "amsgrad": True, "capturable": False, "weight_decay": 0.1}),
    "adamw with amsgrad": ("AdamW", {"lr": 0.1, "amsgrad": True}),
    "adamax": ("Adamax", {"lr": 0.1, "weight_decay": 0.1}),
    "nadam": ("NAdam", {"lr": 0.1, "weight_decay": 0.1}),
    "nadam that shrinks": ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "radam that shrinks": ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "adafactor": ("Adafactor", {"lr": 0.1}),
    "adafactor with all": ("Adafactor", {"lr": 0.3, "beta2_decay": -0.5, "eps": (1e-3, 0.1), "d": 1.2,
                                         "weight_decay": 0.1}),
    "adafactor upwards": ("Adafactor", {"lr": 0.1, "maximize": True}),
    "radam": ("RAdam", {"lr": 0.1, "betas": (0.9, 0.9)}),
}


def problem() -> tuple[list[Any], list[torch.Tensor], tuple[Any, torch.Tensor]]:
    """Two parameters of each framework, with equal values, and the targets of their loss."""
    pairs = [both(numbers(4, 3), grad=True), both(numbers(3, seed=1), grad=True)]
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs], both(numbers(4, 3, seed=2))


def loss_of(parameters: Any, target: Any) -> Any:
    """A loss whose gradients change with the parameters."""
    weight, bias = parameters
    return ((weight * weight + bias - target) ** 2).mean()


def take_steps(optimizer: Any, parameters: Any, target: Any, count: int = STEPS) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        loss_of(parameters, target).backward()
        optimizer.step()


def assert_all_same(ours: list[Any], theirs: list[torch.Tensor]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert_same(a, b, rtol=1e-4, atol=1e-6)  # rounding is carried through five steps


@pytest.mark.parametrize("name", CASES)
def test_five_steps_are_torchs(name: str) -> None:
    kind, options = CASES[name]
    ours, theirs, (target, ttarget) = problem()
    take_steps(getattr(optim, kind)(ours, **options), ours, target)
    take_steps(getattr(torch.optim, kind)(theirs, **options), theirs, ttarget)
    assert_all_same(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_a_state_dict_carries_over(name: str) -> None:
    """Three steps, save, load into a new optimizer, two more: as five in a row. Through torch's layout."""
    kind, options = CASES[name]
    ours, theirs, (target, ttarget) = problem()
    first = getattr(optim, kind)(ours, **options)
    take_steps(first, ours, target, 3)
    second = getattr(optim, kind)(ours, **{**options, "lr": 123.0})
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["lr"] == options["lr"]
    take_steps(second, ours, target, 2)
    take_steps(getattr(torch.optim, kind)(theirs, **options), theirs, ttarget)
    assert_all_same(ours, theirs)


@pytest.mark.parametrize("name", ["sgd with momentum", "adamw", "adam with decay", "adagrad", "adadelta",
                                  "rmsprop with momentum", "rprop", "adamax", "nadam", "radam", "adam with amsgrad",
                                  "asgd that averages", "adafactor with all"])
def test_state_dicts_have_torchs_layout(name: str) -> None:
    kind, options = CASES[name]
    ours, theirs, (target, ttarget) = problem()
    optimizer, peer = getattr(optim, kind)(ours, **options), getattr(torch.optim, kind)(theirs, **options)
    take_steps(optimizer, ours, target, 1)
    take_steps(peer, theirs, ttarget, 1)
    mine, its = optimizer.state_dict(), peer.state_dict()
    assert list(mine["state"]) == list(its["state"])
    for number, state in its["state"].items():
        for key, value in state.items():
            if key in ("step", "mu_product", "eta", "mu"):  # counted in Python here, in a float32 there
                assert mine["state"][number][key] == pytest.approx(value.item(), rel=1e-6)
            else:
                assert_same(mine["state"][number][key], value)
    assert mine["param_groups"][0]["params"] == its["param_groups"][0]["params"]


@pytest.mark.parametrize("compiled", [False, True])
def test_adafactor_keeps_rows_and_columns_of_any_rank(compiled: bool) -> None:
    """Of stacks of matrices, of a single row and of a number; a compiled step counts on."""
    shapes: list[tuple[int, ...]] = [(2, 4, 3), (1, 5), (), (3,)]
    pairs = [both(numbers(*shape, seed=number), grad=True) for number, shape in enumerate(shapes)]
    found = []
    for T, parameters in ((genesis, [a for a, _ in pairs]), (torch, [b for _, b in pairs])):
        optimizer, scale = T.optim.Adafactor(parameters, lr=0.1), T.ones(())

        def step(x: Any, parameters: Any = tuple(parameters), optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = sum((p ** 3).sum() + x * p.sum() for p in parameters)
            loss.backward()
            optimizer.step()
            return loss
        run = genesis.compile(step) if compiled and T is genesis else step
        for _ in range(5):
            run(scale)
        found.append([*parameters, *[x for p in parameters for k, x in optimizer.state[p].items() if k != "step"]])
        assert optimizer.state[parameters[0]]["step"] == 5
        assert not compiled or T is torch or run.hits >= 3  # type: ignore[attr-defined]
    assert_all_same(*found)


def test_torchs_state_can_be_loaded() -> None:
    ours, theirs, (target, ttarget) = problem()
    peer = torch.optim.AdamW(theirs, lr=0.1)
    take_steps(peer, theirs, ttarget, 3)
    saved = peer.state_dict()
    saved["state"] = {number: {key: genesis.tensor(value.numpy()) for key, value in state.items()}
                      for number, state in saved["state"].items()}
    with genesis.no_grad():
        for a, b in zip(ours, theirs, strict=True):
            a.copy_(genesis.tensor(b.detach().numpy()))
    optimizer = optim.AdamW(ours, lr=0.1)
    optimizer.load_state_dict(saved)
    take_steps(optimizer, ours, target, 2)
    take_steps(peer, theirs, ttarget, 2)
    assert_all_same(ours, theirs)


def test_groups_have_their_own_options() -> None:
    ours, theirs, (target, ttarget) = problem()
    groups = [[{"params": [ps[0]], "lr": 0.5}, {"params": ps[1], "weight_decay": 0.0}] for ps in (ours, theirs)]
    take_steps(optim.AdamW(groups[0], lr=0.1, weight_decay=0.3), ours, target)
    take_steps(torch.optim.AdamW(groups[1], lr=0.1, weight_decay=0.3), theirs, ttarget)
    assert_all_same(ours, theirs)


def test_a_parameter_without_gradient_is_left_alone() -> None:
    """It joins later, with the bias correction of its own first step."""
    ours, theirs, (target, ttarget) = problem()
    for parameters, goal, kind in ((ours, target, optim.AdamW), (theirs, ttarget, torch.optim.AdamW)):
        optimizer = kind(parameters, lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of([parameters[0], parameters[1].detach() if step < 2 else parameters[1]], goal).backward()
            optimizer.step()
    assert_all_same(ours, theirs)


def named_groups(L: Any) -> list[Any]:
    """What optimizers of `named_parameters` tell of their groups, and what a step with them gives."""
    model = L.nn.Linear(2, 1)
    with L.no_grad():
        for p in model.parameters():
            p.fill_(0.5)
    plain, grouped = L.optim.SGD(model.named_parameters(), lr=0.1), L.optim.Adam(
        [{"params": [("w", model.weight)], "lr": 0.2}, {"params": iter([("b", model.bias)])}])
    model(L.ones(3, 2)).sum().backward()
    plain.step()
    found: list[Any] = [[group["param_names"] for group in o.state_dict()["param_groups"]] for o in (plain, grouped)]
    other = L.optim.SGD(model.named_parameters(prefix="of"), lr=0.3)
    other.load_state_dict(plain.state_dict())
    mixed = [lambda: plain.add_param_group({"params": [L.ones(1)]}), lambda: L.optim.SGD(
        [("w", model.weight), model.bias], lr=0.1), lambda: L.optim.SGD([{"params": set(model.parameters())}], lr=0.1)]
    for wrong in mixed:
        with pytest.raises((ValueError, TypeError)) as told:
            wrong()
        found.append(str(told.value))
    return [found, other.param_groups[0]["param_names"], len(plain.param_groups),
            [p.detach().tolist() for p in model.parameters()]]


def test_parameters_may_come_with_their_names() -> None:
    assert named_groups(genesis) == named_groups(torch)


def test_a_learning_rate_can_change() -> None:
    ours, theirs, (target, ttarget) = problem()
    for parameters, goal, kind in ((ours, target, optim.SGD), (theirs, ttarget, torch.optim.SGD)):
        optimizer = kind(parameters, lr=0.1, momentum=0.9)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
            take_steps(optimizer, parameters, goal, 1)
    assert_all_same(ours, theirs)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_a_first_step_begins_with_are_the_options_of_then(name: str, compiled: bool) -> None:
    """A warm-up sets the learning rate between the constructor and the first step, and again before each other."""
    kind, options = CASES[name]
    ours, theirs, (target, ttarget) = problem()
    for parameters, goal, T in ((ours, target, genesis), (theirs, ttarget, torch)):
        optimizer = getattr(T.optim, kind)(parameters, **options)

        def step(parameters: Any = parameters, goal: Any = goal, optimizer: Any = optimizer) -> None:
            take_steps(optimizer, parameters, goal, 1)
        step = genesis.compile(step) if compiled and T is genesis else step
        for turn in range(STEPS):
            optimizer.param_groups[0]["lr"] = options.get("lr", 0.1) * (0.25, 2.0, 0.5, 1.5, 0.75)[turn % 5]
            step()
    assert_all_same(ours, theirs)


def test_a_closure_computes_the_loss() -> None:
    ours, _, (target, _) = problem()
    optimizer = optim.SGD(ours, lr=0.1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(ours, target)
        loss.backward()
        return loss
    assert optimizer.step(closure).item() > optimizer.step(closure).item()


def test_a_closure_runs_with_gradients_wherever_the_step_is() -> None:
    w = genesis.tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=0.25)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (w ** 2).sum()
        loss.backward()
        return loss
    with genesis.no_grad():
        assert optimizer.step(closure).item() == 1.0
    assert w.item() == 0.5


def test_moments_of_a_low_precision_parameter_are_float32() -> None:
    """In bfloat16 0.999 · v is v: the moment would stand still."""
    w = genesis.ones(3, dtype=genesis.bfloat16, requires_grad=True)
    state = optim.AdamW([w]).initial_state(w, {"amsgrad": False})
    assert {state[name].dtype for name in ("exp_avg", "exp_avg_sq")} == {genesis.float32}


def test_state_is_made_from_the_start() -> None:
    """The first step and the second are then one program."""
    parameter = genesis.ones(3, requires_grad=True)
    state = optim.AdamW([parameter])._states[parameter]
    assert state["step"] == 0 and not array_of(state["exp_avg"]).any() and state["exp_avg_sq"].shape == (3,)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adadelta", "Adamax",
                                  "ASGD", "Rprop", "Adafactor"])
def test_state_is_shown_from_a_first_step_on(kind: str) -> None:
    """As in torch, and only of parameters that had a gradient; what a user resets afterwards stays."""
    def program(T, nn, optim, np):
        w, u, frozen = T.ones(3), T.ones(2), T.ones(4)
        w.requires_grad_(), u.requires_grad_()
        optimizer = getattr(optim, kind)([w, u, frozen], lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))
        found = [len(optimizer.state_dict()["state"]), len(optimizer.state), len(optimizer.state_dict()["state"])]
        for step in range(4):
            (w * w).sum().backward()
            optimizer.step()
            found += [len(optimizer.state_dict()["state"]), len(optimizer.state), *optimizer.state_dict()["state"]]
            if step == 1:
                for state in optimizer.state.values():
                    if "step" in state and kind != "SGD":
                        state["step"] = state["step"] * 0
                found.append(len(optimizer.state))
        (u * u).sum().backward()
        optimizer.step()
        return w, u, T.tensor(found), T.tensor(list(optimizer.state_dict()["state"]))
    check(program, rtol=1e-5)


def test_a_frozen_parameter_takes_no_memory() -> None:
    frozen, free = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)
    optimizer = optim.AdamW([*frozen.parameters(), *free.parameters()])
    assert set(optimizer._states) == set(free.parameters())
    frozen.requires_grad_()
    (frozen(genesis.ones(4)) + free(genesis.ones(4))).sum().backward()
    optimizer.step()
    assert len(optimizer.state) == 4


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_low_precision_parameters(kind: str) -> None:
    """A step on bfloat16 parameters rounds once: it is the float32 step's result to within one eps."""
    low = genesis.tensor(numbers(64)).bfloat16().requires_grad_()
    wide = low.detach().float().requires_grad_()
    for parameter in (low, wide):
        optimizer = getattr(optim, kind)([parameter], lr=0.1)
        (parameter * 3).sum().backward()
        optimizer.step()
    assert low.dtype is genesis.bfloat16
    np.testing.assert_allclose(array_of(low), array_of(wide), rtol=2**-7, atol=2**-7)


def test_zero_grad() -> None:
    parameter = genesis.ones(2, requires_grad=True)
    optimizer = optim.SGD([parameter])
    (parameter * 2).sum().backward()
    gradient = parameter.grad
    optimizer.zero_grad(set_to_none=False)
    assert parameter.grad is gradient and gradient.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert parameter.grad is None


def test_what_is_refused() -> None:
    parameter = genesis.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(TypeError, match="iterable of Tensors"):
        optim.SGD(parameter)
    with pytest.raises(TypeError, match="one of the params is int"):
        optim.SGD([3])
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([parameter * 2])
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": [parameter]}, {"params": [parameter]}])
    with pytest.raises(ValueError, match="Invalid learning rate value: -1"):
        optim.SGD([parameter], lr=-1)
    with pytest.raises(ValueError, match="beta parameter at index 1"):
        optim.Adam([parameter], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="Nesterov"):
        optim.SGD([parameter], nesterov=True)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optim.SGD([parameter]).load_state_dict({"state": {}, "param_groups": []})


@pytest.mark.parametrize("kind, options", [
    ("Adagrad", {"lr": -1.0}), ("Adagrad", {"initial_accumulator_value": -1.0}), ("Adadelta", {"rho": 2.0}),
    ("RMSprop", {"alpha": -0.1}), ("Rprop", {"etas": (1.5, 0.5)}), ("Adamax", {"betas": (1.0, 0.9)}),
    ("NAdam", {"momentum_decay": -1.0}), ("RAdam", {"eps": -1.0}),
])
def test_options_that_torch_refuses_are_refused(kind: str, options: dict[str, Any]) -> None:
    for library, module in ((genesis, optim), (torch, torch.optim)):
        with pytest.raises(ValueError, match="Invalid"):
            getattr(module, kind)([library.ones(1, requires_grad=True)], **options)


def test_a_composed_step_is_replayed_with_the_numbers_of_its_own_step() -> None:
    ours, theirs, (target, ttarget) = problem()
    optimizer = optim.NAdam(ours, lr=0.1)

    @genesis.compile
    def step(goal: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(ours, goal)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(STEPS):
        step(target)
    take_steps(torch.optim.NAdam(theirs, lr=0.1), theirs, ttarget)
    assert_all_same(ours, theirs)


def test_a_rate_that_changes_behind_a_look_at_the_state_is_the_first_step_s() -> None:
    def stepped(lib: Any) -> list[float]:
        w = lib.tensor([1.0, -2.0], requires_grad=True)
        optimizer = lib.optim.Rprop([w], lr=0.5)
        assert not optimizer.state
        optimizer.param_groups[0]["lr"] = 0.125
        (w * w).sum().backward()
        optimizer.step()
        return w.tolist()  # type: ignore[no-any-return]
    assert stepped(genesis) == stepped(torch)


LISTED_TWICE = [name for name, (_, options) in CASES.items() if "momentum" not in options or CASES[name][0] != "SGD"]
"""SGD's momentum is left out: at its first step torch gives each place in the list a buffer, and keeps the last."""


@pytest.mark.parametrize("compiled", [False, True], ids=["undecorated", "compiled"])
@pytest.mark.parametrize("name", LISTED_TWICE)
def test_a_parameter_that_is_listed_twice_is_updated_twice(name: str, compiled: bool) -> None:
    """As two modules that share a weight list it. The gradient is clipped twice, too, and a loaded state goes on."""
    kind, options = CASES[name]

    def run(T: Any) -> Any:
        first, shared = (T.tensor(numbers(2, 3, seed=seed), requires_grad=True) for seed in (1, 2))
        listed = [first, shared, shared]
        with pytest.warns(UserWarning, match="duplicate parameters"):
            optimizer = getattr(T.optim, kind)(listed, **options)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            ((first + shared * x) ** 2).sum().backward()
            norm = T.nn.utils.clip_grad_norm_(listed, 3.0)
            optimizer.step()
            return norm
        if compiled and T is genesis:
            step = genesis.compile(step)
        norms = [step(T.tensor(numbers(2, 3, seed=10 + turn))) for turn in range(STEPS)]
        saved = optimizer.state_dict()
        optimizer.load_state_dict(saved)
        norms.append(step(T.tensor(numbers(2, 3, seed=20))))
        return [first, shared, *norms], saved["param_groups"][0]["params"], sorted(saved["state"])
    (ours, *kept), (theirs, *torchs) = run(genesis), run(torch)
    assert kept == torchs
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_parameter_that_is_listed_twice_beside_two_that_share_elements() -> None:
    def run(T: Any) -> Any:
        whole, x = T.tensor(numbers(4, seed=1)), T.tensor(numbers(3, seed=2), requires_grad=True)
        low, high = (part.requires_grad_() for part in (whole[:3], whole[1:]))
        with pytest.warns(UserWarning, match="duplicate parameters"):
            optimizer = T.optim.Adam([x, x, low, high], lr=0.1)
        for turn in range(3):
            for number, p in enumerate((x, low, high)):
                p.grad = T.tensor(numbers(3, seed=10 * turn + number))
            optimizer.step()
        return [x, low, high]
    for a, b in zip(run(genesis), run(torch), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
