"""LBFGS: steps by the inverse Hessian that the last gradients tell, with or without a line search."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import enable_grad, no_grad
from genesis.frontend.recording import read
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.ir.errors import failure
from genesis.nn.utils.parameters import parameters_to_vector
from genesis.ops.arithmetic import addcmul
from genesis.ops.creation import zeros
from genesis.optim.line_search import computed, strong_wolfe
from genesis.optim.optimizer import Optimizer

Closure = Callable[[], Any]

PIECE: Final = 10
"""Pairs of the history that one program goes through, forth or back: a history of any length is made of programs of so
many, and of one that goes through the rest. As one it would be compiled anew at each length up to `history_size`, of
100 pairs 900 nodes."""


class LBFGS(Optimizer):
    """The two-loop recursion of Nocedal (1980) over the last `history_size` pairs of steps and gradient changes.

    A step evaluates the closure several times. It reads values on the host, as torch's does, and takes one group.

    Args:
        params: parameters.
        lr: step size; the first of a line search.
        max_iter: iterations a step.
        max_eval: evaluations a step; 1.25 · max_iter by default.
        tolerance_grad: the step ends when no element of the gradient is larger.
        tolerance_change: the step ends when parameters or loss change less.
        history_size: how many pairs are kept.
        line_search_fn: "strong_wolfe", or None for none.

    >>> import genesis
    >>> w = genesis.tensor([3.0], requires_grad=True)
    >>> optimizer = LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - 1) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item(), round(w.item(), 4)
    (4.0, 1.0)
    """

    by_element = False

    def __init__(self, params: Iterable[Any], lr: float = 1, max_iter: int = 20, max_eval: int | None = None,
                 tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None):
        if line_search_fn not in (None, "strong_wolfe"):
            raise failure("LBFGS", f"only 'strong_wolfe' is supported, not {line_search_fn!r}", hint="None for none")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Some iterations; the closure clears gradients, computes the loss, calls backward and returns the loss.

        Whatever raises on the way, the closure or an interrupt, leaves parameters and state as they were before.

        Returns:
            The loss before the step.
        """
        if closure is None:
            raise failure("LBFGS.step", "it needs a closure, which computes the loss anew", hint="step(closure)")
        memory = self._states[self._params[0]]
        kept = {name: list(value) if isinstance(value, list) else value for name, value in memory.items()}
        start = [p.clone() for p in self._params]
        try:
            loss = self._iterated(self.param_groups[0], memory, enable_grad()(closure))
            engine.end_step()  # the last move, too, is made while what was there before is at hand
            return loss
        except BaseException:
            with no_grad():  # an interrupt where the closure's `with` ends may have left tracking on
                assign_all(self._params, [read(x) for x in start], [(memory.clear,), (memory.update, kept)])
            raise

    def _iterated(self, group: dict[str, Any], memory: dict[str, Any], evaluate: Closure) -> Any:
        """Move the parameters until an end is reached; the first loss.

        Values that are looked at one after the other are computed together: `computed`.
        """
        first, gradient = evaluate(), self._gradient()
        memory.setdefault("func_evals", 0)
        memory.setdefault("n_iter", 0)
        memory["func_evals"] += 1
        evaluations, iterations = 1, 0
        pair = _Pair.since(memory, gradient) if memory["n_iter"] else None
        loss, steepest, *products = computed(first, _largest(gradient), *(pair.products if pair is not None else ()))
        if steepest <= group["tolerance_grad"]:
            return first
        while iterations < group["max_iter"]:
            iterations += 1
            memory["n_iter"] += 1
            direction = self._direction(memory, group, gradient, pair, products)
            before, loss_before = gradient, loss
            memory["prev_flat_grad"], memory["prev_loss"] = before, loss_before
            length = min(1.0, 1.0 / float(gradient.abs().sum())) * group["lr"] if memory["n_iter"] == 1 else group["lr"]
            memory["d"], memory["t"] = direction, length  # also where it ends here, as torch's
            slope, reach = computed(gradient.dot(direction), _largest(direction))
            if slope > -group["tolerance_change"]:
                break
            calls = 0
            if group["line_search_fn"] is not None:
                start = [p.clone() for p in self._params]
                asked: dict[int, tuple[Tensor, list[float]]] = {}  # with its gradient, whose `id` is the key

                def at(t: float, start: list[Tensor] = start, d: Tensor = direction, before: Tensor = before,
                       asked: dict[int, tuple[Tensor, list[float]]] = asked) -> tuple[float, Tensor, float]:
                    self._move(t, d)
                    found, gradient = evaluate(), self._gradient()
                    loss, slope, *numbers = computed(found, gradient.dot(d), _largest(gradient),
                                                     *_Pair.of(gradient - before, d * t).products)
                    asked[id(gradient)] = gradient, numbers  # what is asked where this is the length that is taken
                    for p, x in zip(self._params, start, strict=True):
                        p.copy_(x)
                    return loss, gradient, slope
                loss, gradient, length, calls = strong_wolfe(at, length, reach, loss, gradient, slope,
                                                              most=group["max_eval"] - evaluations)
                self._move(length, direction)
                memory["t"] = length
                pair = _Pair.since(memory, gradient)
                _, numbers = asked.get(id(gradient)) or (gradient, computed(_largest(gradient), *pair.products))
                steepest, *products = numbers
            else:
                self._move(length, direction)
                if iterations != group["max_iter"]:
                    found, gradient, calls = evaluate(), self._gradient(), 1
                    pair = _Pair.since(memory, gradient)
                    loss, steepest, *products = computed(found, _largest(gradient), *pair.products)
            evaluations += calls
            memory["func_evals"] += calls
            if (evaluations >= group["max_eval"] or steepest <= group["tolerance_grad"]
                    or reach * length <= group["tolerance_change"]
                    or abs(loss - loss_before) < group["tolerance_change"]):
                break
        return first

    @staticmethod
    def _direction(memory: dict[str, Any], group: dict[str, Any], gradient: Tensor, pair: _Pair | None,
                   products: list[float]) -> Tensor:
        """Where to go: down the gradient at first, then as the pairs of the last steps say, the last of which, with its
        products, is not among the state's yet."""
        if pair is None:
            memory.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        along, square = products
        changes, moves, inverses = memory["old_dirs"], memory["old_stps"], memory["ro"]
        if along > 1e-10:
            if len(changes) == group["history_size"]:
                for kept in (changes, moves, inverses):
                    kept.pop(0)
            changes.append(pair.change)
            moves.append(pair.moved)
            inverses.append(1.0 / along)
            memory["H_diag"] = along / square
        q = -gradient
        factors: list[Tensor] = [gradient] * len(changes)  # until each is found
        for i in reversed(range(len(changes))):
            factors[i] = moves[i].dot(q) * inverses[i]
            q = addcmul(q, changes[i], factors[i], value=-1)
            if i and i % PIECE == 0:
                engine.materialize(q, factors[i:i + PIECE])
        r = q * memory["H_diag"]
        for i in range(len(changes)):
            r = addcmul(r, moves[i], factors[i] - changes[i].dot(r) * inverses[i])
            if i % PIECE == PIECE - 1:
                engine.materialize(r)
        return r

    def _gradient(self) -> Tensor:
        """All gradients as one vector."""
        return parameters_to_vector([zeros(p.numel(), dtype=p.dtype, device=p.device) if p.grad is None else p.grad
                                     for p in self._params])

    def _move(self, length: float, direction: Tensor) -> None:
        """Add length · direction to the parameters."""
        first = 0
        for p in self._params:
            p.add_(direction[first:first + p.numel()].view_as(p), alpha=length)
            first += p.numel()


class _Pair(NamedTuple):
    """The last move, and how the gradient changed with it.

    Attributes:
        change, moved: vectors.
        products: change · moved, and change · change.
    """

    change: Tensor
    moved: Tensor
    products: tuple[Tensor, Tensor]

    @classmethod
    def since(cls, memory: dict[str, Any], gradient: Tensor) -> _Pair:
        """The pair of the move that the state tells of, and the gradient behind it."""
        return cls.of(gradient - memory["prev_flat_grad"], memory["d"] * memory["t"])

    @classmethod
    def of(cls, change: Tensor, moved: Tensor) -> _Pair:
        """The pair of these vectors."""
        return cls(change, moved, (change.dot(moved), change.dot(change)))


def _largest(x: Tensor) -> Tensor:
    return x.abs().max()
