"""Programs for what came after the first ones: views as arguments, losses by chunks, plans of other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import genesis
from genesis.nn import functional as F
from genesis.runtime.contexts import Switched, Temporary
from tests.faults.programs import PROGRAMS, Case, Recipe, Statement, Training


class OnViews(Training):
    """A compiled step whose argument is columns of a wider matrix: it is replayed on a copy."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        self.wide = genesis.cat([self.x, self.x * 0.5], 1)
        genesis.eval(self.wide)
        self.x = self.wide[:, 1:4]

    def kept(self) -> Iterator[tuple[str, Any]]:
        yield from super().kept()
        yield "wide", self.wide


def under(statement: Statement, name: str, value: int) -> Statement:
    """The statement under a setting, which a fault does not leave switched: what ran next had its losses by chunks."""
    before = getattr(genesis.config, name)

    def run() -> Any:
        with Temporary(lambda: Switched([(setattr, genesis.config, name, value)],
                                        [(setattr, genesis.config, name, before)])):
            return statement.run()
    return replace(statement, run=run)


class ByChunks(Training):
    """A loss whose logits take more memory than they may: it is computed by chunks of rows."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        self.statements = [under(x, "loss_chunk_bytes", 16) for x in self.statements]
        assert self.whole is not None
        self.whole = under(self.whole, "loss_chunk_bytes", 16)


class OtherSizes(Training):
    """Each iteration has another number of rows; the first one's plan is the only one that is known."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        self.batches = [(self.x[:rows].clone(), self.y[:rows].clone()) for rows in (4, 3, 2, 1)]
        genesis.eval(*self.batches)
        found: list[Statement] = []
        for i, (x, y) in enumerate(self.batches[:recipe.warm + 2]):
            found += self._of(x, y, i == 0)
        self.statements = found

    def _of(self, x: Any, y: Any, anew: bool) -> Iterator[Statement]:
        yield Statement("opt.zero_grad()", self._forget_and_clear if anew else self.opt.zero_grad)
        yield Statement("out = net(x)", lambda: {"out": self.net(x)}, ("out",))
        yield Statement("loss = cross_entropy(out, y)",
                        lambda: {"loss": F.cross_entropy(self.names["out"], y)}, ("loss",))
        yield Statement("loss.backward()", lambda: self.names["loss"].backward())
        yield Statement("opt.step()", self.opt.step)
        yield Statement("value = loss.item()", lambda: {"value": self.names["loss"].item()}, ("value",))


def _made(kind: Callable[[Recipe], Case], **choices: Any) -> Callable[[str], Case]:
    return lambda device: kind(Recipe(device=device, **choices))


PROGRAMS.update({
    "compiled on views": _made(OnViews, compiled="step", warm=4),
    "capture on views": _made(OnViews, compiled="step", warm=2),
    "loss by chunks": _made(ByChunks, compiled="step", optimizer="SGD momentum"),
    "second size": _made(OtherSizes, optimizer="SGD momentum", warm=1),
    "third size": _made(OtherSizes, optimizer="SGD momentum", warm=2),
})
