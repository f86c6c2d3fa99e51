"""Learning rate schedules are torch's, epoch by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis import optim

CASES = {
    "lambda": ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    "a lambda for each group": ("LambdaLR", {"lr_lambda": [lambda epoch: 0.9**epoch, lambda epoch: 1 / (epoch + 1)]}),
    "step": ("StepLR", {"step_size": 3, "gamma": 0.5}),
    "linear": ("LinearLR", {"start_factor": 0.1, "total_iters": 4}),
    "linear down": ("LinearLR", {"start_factor": 1.0, "end_factor": 0.2, "total_iters": 6}),
    "cosine": ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.01}),
    "cosine past its end": ("CosineAnnealingLR", {"T_max": 4}),
    "multiplicative": ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.9 + 0.01 * epoch}),
    "several steps": ("MultiStepLR", {"milestones": [5, 2, 5], "gamma": 0.5}),
    "constant": ("ConstantLR", {"factor": 0.25, "total_iters": 4}),
    "exponential": ("ExponentialLR", {"gamma": 0.8}),
    "polynomial": ("PolynomialLR", {"total_iters": 6, "power": 2.0}),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 3}),
    "longer restarts": ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    "triangles": ("CyclicLR", {"base_lr": 0.1, "max_lr": [1.0, 2.0], "step_size_up": 2, "step_size_down": 3}),
    "falling triangles": ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2, "mode": "triangular2"}),
    "shrinking range": ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3, "mode": "exp_range",
                                     "gamma": 0.9, "cycle_momentum": False}),
    "own scale": ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2, "scale_fn": lambda n: 1 / n,
                               "base_momentum": [0.7, 0.6]}),
    "one cycle": ("OneCycleLR", {"max_lr": 1.0, "total_steps": 10}),
    "one cycle in lines": ("OneCycleLR", {"max_lr": [1.0, 0.3], "epochs": 2, "steps_per_epoch": 6, "pct_start": 0.4,
                                          "anneal_strategy": "linear", "div_factor": 10.0}),
    "one cycle in three phases": ("OneCycleLR", {"max_lr": 1.0, "total_steps": 12, "three_phase": True}),
}


def groups(framework: Any) -> list[dict[str, Any]]:
    return [{"params": [framework.ones(1, requires_grad=True)], "lr": lr} for lr in (0.5, 0.1)]


def momenta(optimizer: Any) -> list[float]:
    return [group["momentum"] for group in optimizer.param_groups]


@pytest.mark.parametrize("name", CASES)
def test_rates_are_torchs(name: str) -> None:
    kind, options = CASES[name]
    optimizer, peer = optim.SGD(groups(genesis), momentum=0.9), torch.optim.SGD(groups(torch), momentum=0.9)
    ours, theirs = (getattr(module.lr_scheduler, kind)(o, **options)
                    for module, o in ((optim, optimizer), (torch.optim, peer)))
    for _ in range(9):
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9)
        assert [group["lr"] for group in optimizer.param_groups] == ours.get_last_lr()
        assert momenta(optimizer) == pytest.approx(momenta(peer))
        peer.step()
        ours.step()
        theirs.step()


@pytest.mark.parametrize("name", CASES)
def test_a_rate_that_the_user_sets_is_gone_on_from_as_in_torch(name: str) -> None:
    kind, options = CASES[name]
    optimizer, peer = optim.SGD(groups(genesis), momentum=0.9), torch.optim.SGD(groups(torch), momentum=0.9)
    ours, theirs = (getattr(module.lr_scheduler, kind)(o, **options)
                    for module, o in ((optim, optimizer), (torch.optim, peer)))
    for epoch in range(9):
        if epoch in (2, 5):
            optimizer.param_groups[1]["lr"] = peer.param_groups[1]["lr"] = 0.03 * epoch
        peer.step()
        ours.step()
        theirs.step()
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == pytest.approx([group["lr"] for group in peer.param_groups], rel=1e-9), epoch
        assert ours.get_last_lr() == rates


@pytest.mark.parametrize("name", [name for name in CASES if name != "multiplicative"])
@pytest.mark.filterwarnings("ignore")
def test_the_rates_of_an_epoch_that_is_given_are_torchs(name: str) -> None:
    kind, options = CASES[name]
    optimizer, peer = optim.SGD(groups(genesis), momentum=0.9), torch.optim.SGD(groups(torch), momentum=0.9)
    ours, theirs = (getattr(module.lr_scheduler, kind)(o, **options)
                    for module, o in ((optim, optimizer), (torch.optim, peer)))
    peer.step()
    for epoch in (7, 1, 4, 2, 5, 6, 3):
        ours.step(epoch)
        theirs.step(epoch)
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9), epoch


@pytest.mark.parametrize("second", CASES)
@pytest.mark.parametrize("first", ["exponential", "linear"])
def test_two_schedules_of_one_optimizer_are_torchs(first: str, second: str) -> None:
    optimizer, peer = optim.SGD(groups(genesis), momentum=0.9), torch.optim.SGD(groups(torch), momentum=0.9)
    ours, theirs = ([getattr(module.lr_scheduler, CASES[name][0])(o, **CASES[name][1]) for name in (first, second)]
                    for module, o in ((optim, optimizer), (torch.optim, peer)))
    for epoch in range(9):
        peer.step()
        for mine, its in zip(ours, theirs, strict=True):
            mine.step()
            its.step()
            assert mine.get_last_lr() == pytest.approx(its.get_last_lr(), rel=1e-9), epoch
        assert [x.get_last_lr() for x in ours] == [pytest.approx(x.get_last_lr(), rel=1e-9) for x in theirs]


def test_a_schedule_by_torchs_protocol_works_and_goes_on_where_it_was_saved() -> None:
    def rates(library: Any) -> list[float]:
        class Own(library.optim.lr_scheduler.LRScheduler):
            def get_lr(self) -> list[float]:
                by = 0.5 if self.last_epoch % 2 else 1.0
                return [group["lr"] * by for group in self.optimizer.param_groups]
        optimizer, again = library.optim.SGD(groups(library)), library.optim.SGD(groups(library))
        scheduler, second = Own(optimizer), Own(again)
        for _ in range(3):
            optimizer.step()
            scheduler.step()
        again.load_state_dict(optimizer.state_dict())
        second.load_state_dict(scheduler.state_dict())
        again.step()
        second.step()
        again.step()
        second.step()
        return second.get_last_lr()
    assert rates(genesis) == rates(torch)


def in_sequence(module: Any, optimizer: Any) -> Any:
    return module.SequentialLR(optimizer, [module.ConstantLR(optimizer, 0.1, 20), module.ExponentialLR(optimizer, 0.9),
                                           module.CosineAnnealingLR(optimizer, 5)], [3, 6])


def chained(module: Any, optimizer: Any) -> Any:
    return module.ChainedScheduler([module.ConstantLR(optimizer, 0.1, 3), module.ExponentialLR(optimizer, 0.9)])


@pytest.mark.parametrize("make", [in_sequence, chained])
@pytest.mark.filterwarnings("ignore")
def test_schedules_of_schedules_are_torchs(make: Any) -> None:
    optimizer, peer = optim.SGD(groups(genesis)), torch.optim.SGD(groups(torch))
    ours, theirs = make(optim.lr_scheduler, optimizer), make(torch.optim.lr_scheduler, peer)
    for epoch in range(10):
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9), epoch
        peer.step()
        ours.step()
        theirs.step()
    again = optim.SGD(groups(genesis))
    second = make(optim.lr_scheduler, again)
    second.load_state_dict(ours.state_dict())
    ours.step()
    second.step()
    assert second.get_last_lr() == pytest.approx(ours.get_last_lr())


@pytest.mark.parametrize("how", [{"patience": 1}, {"mode": "max", "patience": 0, "cooldown": 2}, {
    "patience": 0, "threshold_mode": "abs", "threshold": 0.5, "min_lr": [0.2, 0.01], "factor": 0.3}])
def test_a_plateau_is_torchs(how: dict[str, Any]) -> None:
    optimizer, peer = optim.SGD(groups(genesis)), torch.optim.SGD(groups(torch))
    ours, theirs = (m.lr_scheduler.ReduceLROnPlateau(o, **how) for m, o in ((optim, optimizer), (torch.optim, peer)))
    for loss in (3.0, 2.0, 2.0, 1.9, 1.9, 2.5, 1.0, 1.0, 1.0, 0.9):
        ours.step(genesis.tensor(loss))
        theirs.step(loss)
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9)


def test_a_schedule_goes_on_where_it_was_saved() -> None:
    first = optim.lr_scheduler.StepLR(optim.SGD(groups(genesis)), step_size=2)
    for _ in range(3):
        first.step()
    second = optim.lr_scheduler.StepLR(optim.SGD(groups(genesis)), step_size=2)
    second.load_state_dict(first.state_dict())
    first.step()
    second.step()
    assert first.get_last_lr() == second.get_last_lr() == pytest.approx([0.005, 0.001])


@pytest.mark.parametrize("call", [
    lambda m, o: m.OneCycleLR(o, 1.0), lambda m, o: m.OneCycleLR(o, 1.0, 5, pct_start=2.0),
    lambda m, o: m.OneCycleLR(o, [1.0], 5), lambda m, o: m.CyclicLR(o, 0.1, 1.0, mode="sine"),
    lambda m, o: m.ConstantLR(o, 2.0), lambda m, o: m.CosineAnnealingWarmRestarts(o, 0),
    lambda m, o: m.ReduceLROnPlateau(o, factor=1.5), lambda m, o: m.ReduceLROnPlateau(o, mode="least"),
    lambda m, o: m.SequentialLR(o, [m.ExponentialLR(o, 0.9)], [1]), lambda m, o: m.ChainedScheduler([]),
])
def test_what_torch_refuses_is_refused(call: Any) -> None:
    for library, module in ((genesis, optim), (torch, torch.optim)):
        with pytest.raises(ValueError):
            call(module.lr_scheduler, module.SGD(groups(library), momentum=0.9))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected 2 lr_lambdas"):
        optim.lr_scheduler.LambdaLR(optim.SGD(groups(genesis)), [lambda epoch: 1.0])
    with pytest.raises(KeyError, match="initial_lr"):
        optim.lr_scheduler.StepLR(optim.SGD(groups(genesis)), 2, last_epoch=3)


def schedules_of_users(T: Any) -> list[Any]:
    """Schedules as people write them over torch's base."""
    base = getattr(T.optim.lr_scheduler, "_LRScheduler")  # noqa: B009

    class Warmup(base):  # type: ignore[misc, valid-type]
        def __init__(self, optimizer: Any, warmup: int, most: int, last_epoch: int = -1):
            self.warmup, self.most, self.asked = warmup, most, 0
            super().__init__(optimizer, last_epoch)

        def get_lr(self) -> list[float]:
            self.asked += not self._get_lr_called_within_step  # where torch's own schedules warn
            if self.last_epoch < self.warmup:
                return [lr * (self.last_epoch + 1) / self.warmup for lr in self.base_lrs]
            return [group["lr"] * 0.9 for group in self.optimizer.param_groups]

        def _get_closed_form_lr(self) -> list[float]:
            return [lr * 0.9 ** self.last_epoch for lr in self.base_lrs]

    class InverseRoot(base):  # type: ignore[misc, valid-type]
        def get_lr(self) -> list[float]:
            return [min(self._step_count ** -0.5, self._step_count * 3 ** -1.5) for _ in self.base_lrs]

    class GradualWarmup(base):  # type: ignore[misc, valid-type]
        def __init__(self, optimizer: Any, epochs: int, after: Any):
            self.epochs, self.after, self.finished = epochs, after, False
            super().__init__(optimizer)

        def get_lr(self) -> list[float]:
            if self.last_epoch > self.epochs:
                if not self.finished:
                    self.after.base_lrs = [2 * lr for lr in self.base_lrs]
                    self.finished = True
                return self.after.get_last_lr()
            return [lr * (1 + self.last_epoch / self.epochs) for lr in self.base_lrs]

        def step(self, epoch: int | None = None) -> None:
            if self.finished:
                self.after.step(None if epoch is None else epoch - self.epochs)
                self._last_lr = self.after.get_last_lr()
            else:
                super().step(epoch)

    class Logged(T.optim.lr_scheduler.ReduceLROnPlateau):  # type: ignore[misc, name-defined]
        def _reduce_lr(self, epoch: Any) -> None:
            self.reductions = getattr(self, "reductions", 0) + 1
            super()._reduce_lr(epoch)

    def optimizer() -> Any:
        return T.optim.SGD([T.nn.Parameter(T.ones(1))], lr=0.1)
    found: list[Any] = []
    warm, root = Warmup(optimizer(), 3, 10), InverseRoot(optimizer())
    held = optimizer()
    both = GradualWarmup(held, 2, T.optim.lr_scheduler.CosineAnnealingLR(held, 4))
    for _ in range(7):
        for schedule in (warm, root, both):
            schedule.optimizer.step()
            schedule.step()
            found.append((schedule.get_last_lr(), schedule.last_epoch, schedule._step_count))
    warm.step(20)
    found.append((warm.get_last_lr(), warm.get_lr(), warm.asked, warm._step_count))
    plateau = Logged(optimizer(), patience=0, cooldown=1)
    for loss in (1.0, 1.0, 1.0, 1.0):
        plateau.step(loss)
        found.append((plateau.get_last_lr(), plateau.in_cooldown, getattr(plateau, "reductions", 0)))
    restarts = T.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer(), 2, 2)
    for _ in range(7):
        restarts.optimizer.step()
        restarts.step()
        found.append((restarts.T_cur, restarts.T_i, restarts.get_last_lr()))
    state = warm.state_dict()
    again = Warmup(optimizer(), 3, 10)
    again.load_state_dict(state)
    found.append((state["_step_count"], again._step_count, again.last_epoch, again.get_last_lr()))
    return found


@pytest.mark.filterwarnings("ignore")
def test_schedules_that_users_write_over_torchs_base() -> None:
    for ours, theirs in zip(schedules_of_users(genesis), schedules_of_users(torch), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a == pytest.approx(b, rel=1e-12), (ours, theirs)


def test_the_rate_of_a_weight_average_is_torchs() -> None:
    def rates(library: Any, epochs: int, strategy: str) -> list[Any]:
        optimizer = library.optim.SGD(groups(library))
        scheduler = library.optim.swa_utils.SWALR(optimizer, [0.05, 0.2], epochs, strategy)
        found = [scheduler.get_last_lr()]
        for epoch in range(6):
            if epoch == 2:
                optimizer.param_groups[1]["lr"] = 0.3
            optimizer.step()
            scheduler.step()
            found.append((scheduler.get_last_lr(), [group["lr"] for group in optimizer.param_groups]))
        again = library.optim.swa_utils.SWALR(library.optim.SGD(groups(library)), [0.05, 0.2], epochs, strategy)
        again.load_state_dict(scheduler.state_dict())
        return [*found, again.get_last_lr(), again.last_epoch]
    for epochs in (0, 1, 4):
        for strategy in ("cos", "linear"):
            for ours, theirs in zip(rates(genesis, epochs, strategy), rates(torch, epochs, strategy), strict=True):
                assert np.allclose(ours, theirs, rtol=1e-12), (epochs, strategy)


class Decay:
    """An object that is called for a factor, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, epoch: int) -> float:
        self.calls += 1
        return 1 / self.calls


@pytest.mark.parametrize("kind", ["LambdaLR", "MultiplicativeLR"])
def test_what_is_called_for_a_factor_goes_on_where_it_was_saved(kind: str) -> None:
    def rates(library: Any) -> list[Any]:
        make = getattr(library.optim.lr_scheduler, kind)
        optimizer, again = library.optim.SGD(groups(library)), library.optim.SGD(groups(library))
        scheduler, second = make(optimizer, [Decay(), lambda epoch: 0.9]), make(again, [Decay(), lambda epoch: 0.9])
        for _ in range(4):
            optimizer.step()
            scheduler.step()
        state, of_groups = scheduler.state_dict(), optimizer.state_dict()
        scheduler.step()
        again.load_state_dict(of_groups)
        second.load_state_dict(state)
        again.step()
        second.step()
        return [state["lr_lambdas"], second.lr_lambdas[0].calls, *second.get_last_lr()]
    assert rates(genesis) == rates(torch) and rates(torch)[1] > 1


def test_a_schedule_of_the_users_keeps_what_it_has(tmp_path: Path) -> None:
    def state(library: Any) -> list[Any]:
        class Warmup(library.optim.lr_scheduler._LRScheduler):  # type: ignore[misc, name-defined]
            def __init__(self, optimizer: Any, epochs: int, after: Any):
                self.epochs, self.after, self.finished = epochs, after, False
                self.seen: dict[str, Any] = {"rates": [], "shape": (1, 2)}
                self.least = None
                super().__init__(optimizer)

            def get_lr(self) -> list[float]:
                if self.last_epoch >= self.epochs:
                    self.finished, self.least = True, 0.25
                    return list(self.after.get_last_lr())
                return [base * (self.last_epoch + 1) / self.epochs for base in self.base_lrs]

            def step(self, epoch: int | None = None) -> None:
                if self.finished:
                    self.after.step()
                super().step(epoch)
                self.seen["rates"].append(self.get_last_lr()[0])

        def made() -> tuple[Any, Any]:
            optimizer = library.optim.SGD(groups(library))
            return optimizer, Warmup(optimizer, 2, library.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        (optimizer, scheduler), (again, second) = made(), made()
        for _ in range(5):
            optimizer.step()
            scheduler.step()
        place = tmp_path / library.__name__
        saved = scheduler.state_dict()
        if library is torch:  # which keeps the inner schedule itself
            saved = saved | {"after": None}
            second.after.load_state_dict(scheduler.after.state_dict())
            after = second.after
        library.save(saved, place)
        second.load_state_dict(library.load(place))
        if library is torch:
            second.after = after
        again.load_state_dict(optimizer.state_dict())
        again.step()
        second.step()
        return [second.epochs, second.finished, second.least, second.seen["rates"], second.seen["shape"],
                second.after.last_epoch, second.last_epoch, *second.get_last_lr()]
    ours, theirs = state(genesis), state(torch)
    assert ours[:5] == theirs[:5]
    assert ours[5:] == pytest.approx(theirs[5:])
