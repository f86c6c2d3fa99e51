"""Hooks around a module's backward: what arrives at its results, and what leaves by its inputs.

A pair of ordinary hooks puts a function between the arguments and forward, and another one between forward and who
reads the results. Backward passes the second first: there are the gradients of the results; then the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.autograd.function import Function
from genesis.frontend.tensor import Tensor
from genesis.nn.modules.hooks import RemovableHandle, everywhere
from genesis.nn.modules.tree import changed

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


class BackwardHooks:
    """Hooks of backward, of a module or of all, and the two hooks of forward that serve them."""

    def __init__(self, module: Any):
        self.before: dict[int, Callable[..., Any]] = {}
        self.after: dict[int, Callable[..., Any]] = {}
        self._calls: list[_Call] = []
        if module is None:
            RemovableHandle(everywhere, (True, self._entering), changed)  # type: ignore[arg-type]
            RemovableHandle(everywhere, (False, self._leaving), changed)  # type: ignore[arg-type]
        else:
            RemovableHandle(module._forward_pre_hooks, self._entering, changed)
            RemovableHandle(module._forward_hooks, self._leaving, changed)

    @classmethod
    def of_all(cls) -> BackwardHooks:
        """Those of all modules, made when first asked for."""
        global _of_all
        if _of_all is None:
            _of_all = cls(None)
        return _of_all

    @classmethod
    def of(cls, module: Any) -> BackwardHooks:
        """The module's, made when first asked for."""
        found: BackwardHooks | None = module.__dict__.get("_backward_hooks")
        if found is None:
            found = module.__dict__["_backward_hooks"] = cls(module)
        return found

    def add(self, hook: Callable[..., Any], first: bool, prepend: bool) -> RemovableHandle:
        """Add a hook that runs first, or when the gradients by the inputs are there."""
        return RemovableHandle(self.before if first else self.after, hook, changed, prepend)

    def _entering(self, module: Any, args: tuple[Any, ...]) -> Any:
        if not self.before and not self.after:
            return None
        places = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
        call = _Call(self, module, len(args), places)
        self._calls.append(call)
        if not places or not self.after:
            return None
        new = list(args)
        for i, x in zip(places, _Passing.apply(call.by_inputs, *[args[i] for i in places]), strict=True):
            new[i] = x
        return tuple(new)

    def _leaving(self, module: Any, args: tuple[Any, ...], result: Any) -> Any:
        while self._calls and self._calls[-1].module is not module:  # whose forward raised
            self._calls.pop()
        if not self._calls:
            return None
        call = self._calls.pop()
        alone = isinstance(result, Tensor)
        results = [result] if alone else list(result) if isinstance(result, (tuple, list)) else []
        places = [i for i, x in enumerate(results) if isinstance(x, Tensor) and x.requires_grad]
        if not places:
            return None
        call.results = len(results), places
        for i, x in zip(places, _Passing.apply(call.of_results, *[results[i] for i in places]), strict=True):
            results[i] = x
        return results[0] if alone else type(result)(results)


_of_all: BackwardHooks | None = None


class _Call:
    """One call of forward: which arguments and results gradients flow through, and what arrived."""

    def __init__(self, owner: BackwardHooks, module: Any, arguments: int, places: list[int]):
        self._owner, self._arguments, self._places = owner, arguments, places
        self.module = module
        self.results: tuple[int, list[int]] = 0, []
        self._arrived: Gradients = ()

    def of_results(self, gradients: Gradients) -> Gradients:
        """The gradients of the results arrived."""
        owner, (count, places) = self._owner, self.results
        whole = _spread(count, places, gradients)
        for hook in list(owner.before.values()):
            new = hook(self.module, whole)
            if new is not None:
                whole = new if isinstance(new, tuple) else (new,)
        self._arrived = whole
        if not self._places:  # no gradient leaves by the inputs
            for hook in list(owner.after.values()):
                hook(self.module, (None,) * max(1, self._arguments), whole)
        return tuple(whole[i] for i in places)

    def by_inputs(self, gradients: Gradients) -> Gradients:
        """The gradients by the inputs are there."""
        owner = self._owner
        whole = _spread(self._arguments, self._places, gradients)
        for hook in list(owner.after.values()):
            new = hook(self.module, whole, self._arrived)
            if new is not None:
                whole = new if isinstance(new, tuple) else (new,)
        return tuple(whole[i] for i in self._places)


def _spread(count: int, places: list[int], gradients: Gradients) -> Gradients:
    """The gradients at their places, None elsewhere."""
    whole: list[Any] = [None] * count
    for i, gradient in zip(places, gradients, strict=True):
        whole[i] = gradient
    return tuple(whole)
