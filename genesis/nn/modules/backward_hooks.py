"""Hooks around a module's backward: what arrives at its results, and what leaves by its inputs.

A pair of ordinary hooks puts a function between the arguments and forward, and another one between forward and who
reads the results. Backward passes the second first: there are the gradients of the results; then the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.autograd.function import Function
from genesis.frontend.tensor import Tensor
from genesis.nn.modules.hooks import of

Gradients = tuple[Any, ...]


class _Passing(Function):
    """Its arguments, behind a function that sees their gradients."""

    @staticmethod
    def forward(ctx: Any, seen: Callable[[Gradients], Gradients], *tensors: Tensor) -> Any:
        """All tensors as they are."""
        ctx.seen = seen
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """What the function makes of the gradients."""
        return None, *ctx.seen(gradients)


class Passage:
    """One call of a module with hooks of backward: where gradients flow through arguments and results, what arrived.

    Hooks are those that there were at the call.
    """

    def __init__(self, module: Any, before: list[Callable[..., Any]], after: list[Callable[..., Any]]):
        self._module, self._before, self._after = module, before, after
        self._arguments = 0
        self._entered: list[int] = []
        self._results: tuple[int, list[int]] = 0, []
        self._arrived: Gradients | None = None

    @classmethod
    def of(cls, module: Any) -> Passage | None:
        """That of a call which begins; None where no hook would see it."""
        before, after = of(module, "backward_pre"), of(module, "backward")
        return cls(module, before, after) if before or after else None

    def entering(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments as forward gets them."""
        self._arguments, self._entered = len(args), _tracked(args)
        return _passed(args, self._entered, self._by_inputs) if self._after else args

    def leaving(self, result: Any) -> Any:
        """The result as the caller gets it: a tensor or a tuple of some; of another one nothing is seen."""
        several = isinstance(result, tuple)
        results = result if several else (result,)
        places = _tracked(results)
        if not places:
            return result
        self._results = len(results), places
        passed = _passed(results, places, self._of_results)
        if not several:
            return passed[0]
        return passed if type(result) is tuple else type(result)._make(passed)

    def _of_results(self, gradients: Gradients) -> Gradients:
        """The gradients of the results arrived."""
        count, places = self._results
        whole = _spread(count, places, gradients)
        for hook in self._before:
            new = hook(self._module, whole)
            if new is not None:
                whole = new if isinstance(new, tuple) else (new,)
        self._arrived = whole
        if not self._entered:  # no gradient leaves by the inputs
            for hook in self._after:
                hook(self._module, (None,) * max(1, self._arguments), whole)
        return tuple(whole[i] for i in places)

    def _by_inputs(self, gradients: Gradients) -> Gradients:
        """The gradients by the inputs are there."""
        if self._arrived is None:  # they came by another way than the results
            return gradients
        whole = _spread(self._arguments, self._entered, gradients)
        for hook in self._after:
            new = hook(self._module, whole, self._arrived)
            if new is not None:
                whole = new if isinstance(new, tuple) else (new,)
        return tuple(whole[i] for i in self._entered)


def _tracked(values: tuple[Any, ...]) -> list[int]:
    """The places of tensors that gradients flow through."""
    return [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]


def _passed(values: tuple[Any, ...], places: list[int], seen: Callable[[Gradients], Gradients]) -> tuple[Any, ...]:
    """The values, those at the places behind a function that sees their gradients."""
    if not places:
        return values
    new = list(values)
    for i, x in zip(places, _Passing.apply(seen, *[values[i] for i in places]), strict=True):
        new[i] = x
    return tuple(new)


def _spread(count: int, places: list[int], gradients: Gradients) -> Gradients:
    """The gradients at their places, None elsewhere."""
    whole: list[Any] = [None] * count
    for i, gradient in zip(places, gradients, strict=True):
        whole[i] = gradient
    return tuple(whole)
