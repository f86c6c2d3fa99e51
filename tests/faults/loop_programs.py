"""What stands around a step in a training loop: schedules of rates, and loaders of batches that are resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import genesis
from genesis.optim import lr_scheduler
from genesis.utils.data import DataLoader, TensorDataset
from tests.faults.programs import PROGRAMS, Recipe, Statement, Training

SCHEDULES: Final[dict[str, Callable[[Any], Any]]] = {
    "StepLR": lambda opt: lr_scheduler.StepLR(opt, 1, gamma=0.5),
    "LambdaLR": lambda opt: lr_scheduler.LambdaLR(opt, lambda epoch: 1 / (1 + epoch)),
    "OneCycleLR": lambda opt: lr_scheduler.OneCycleLR(opt, 0.5, total_steps=64),
    "SequentialLR": lambda opt: lr_scheduler.SequentialLR(opt, [
        lr_scheduler.LinearLR(opt, total_iters=2), lr_scheduler.ExponentialLR(opt, 0.5)], [2]),
    "ChainedScheduler": lambda opt: lr_scheduler.ChainedScheduler([
        lr_scheduler.ConstantLR(opt, total_iters=2), lr_scheduler.ExponentialLR(opt, 0.5)]),
}


class Scheduled(Training):
    """After each step a schedule sets the rate, and another one looks at the loss."""

    def __init__(self, recipe: Recipe, schedule: str):
        super().__init__(recipe)
        self.schedule = SCHEDULES[schedule](self.opt)
        self.plateau = lr_scheduler.ReduceLROnPlateau(self.opt, factor=0.5, patience=0, threshold=10.0)
        iteration = [*self._iteration(), Statement("schedule.step()", self.schedule.step),
                     Statement("plateau.step(loss)", lambda: self.plateau.step(self.names["loss"]))]
        self.statements = iteration * (recipe.warm + 2)
        self.starts = [len(iteration) * i for i in range(recipe.warm + 3)]
        self.target = (self.starts[recipe.warm], self.starts[recipe.warm + 1])

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        yield "schedule", repr(self.schedule.state_dict())
        yield "plateau", repr(self.plateau.state_dict())
        yield "groups", repr([{name: value for name, value in group.items() if name != "params"}
                              for group in self.opt.param_groups])


class Loaded(Training):
    """Batches come from a loader that shuffles; after a fault the pass is taken up by a new iterator."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        data = TensorDataset(genesis.arange(12), genesis.arange(12) * 2)
        self.loader: Any = DataLoader(data, batch_size=4, shuffle=True, generator=genesis.Generator().manual_seed(3))
        self.batches: Any = None
        self.statements = [
            Statement("batches = iter(loader)", self._begin),
            *[Statement("a, b = next(batches)", self._next, ("a", "b"))] * 3,
            Statement("next(batches, None)", lambda: next(self.batches, None) and None)] * 3
        self.starts = [*range(len(self.statements) + 1)]
        self.target = (5, 10)

    def _begin(self) -> None:
        self.batches = iter(self.loader)

    def _next(self) -> Any:
        return dict(zip("ab", next(self.batches), strict=True))

    def resume(self, at: int) -> None:
        """After a fault the iterator is gone, and the loader says where the pass stands."""
        if at % 5:
            again: Any = DataLoader(self.loader.dataset, batch_size=4, shuffle=True, generator=genesis.Generator())
            again.load_state_dict(self.loader.state_dict())
            self.loader = again
            self._begin()

    def kept(self) -> Iterator[tuple[str, Any]]:
        state = self.loader.state_dict()
        yield "place", (state["seed"], state["batches"])

    def graded(self) -> Iterator[tuple[str, Any]]:
        return iter(())


PROGRAMS.update({
    **{f"schedule {name}": lambda device, name=name: Scheduled(
        Recipe(device=device, optimizer="SGD momentum"), name) for name in SCHEDULES},
    "loader": lambda device: Loaded(Recipe(device=device)),
})

