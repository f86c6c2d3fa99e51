"""The updates of the adaptive optimizers, each as one op over all parameters of a dtype.

A row is a rule for one parameter: from its gradient and its state in float32 at least, to the new parameter and state.
The op applies it to `count` parameters. Its operands are numbers, then `count` parameters, gradients and tensors of
each kind of state; its results are the parameters, then the states. The first number is weight decay: what the
gradient gets of the parameter, or, `decoupled`, what is kept of the parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op
from genesis.ir.ops.pointwise import abs, gt, lt, maximum, minimum, sign, sqrt, where
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.samples import Samples, Values, case, cases, np, number, positives, reals
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from typing import TypeVar

    from numpy import ndarray

    from genesis.ir.ops.samples import Case

    Value = Callable[..., tuple[ndarray, ...]]
    T = TypeVar("T", Node, ndarray)

Rule = Callable[..., tuple[Node, ...]]
"""(numbers, parameter, gradient, *states, **attributes) → the new parameter and states, of nodes; `Value` is
the same of arrays."""


def _groups(tensors: tuple, count: int) -> list[tuple]:
    """Runs of `count` tensors: parameters, gradients, then states."""
    return [tensors[i:i + count] for i in range(0, len(tensors), count)]


def _decayed(decay: T, p: T, g: T, decoupled: bool) -> tuple[T, T]:
    return (p * decay, g) if decoupled else (p, g + p * decay)


def update_op(name: str, numbers: str, rule: Rule, value: Value, samples: Samples, doc: str,
              attrs: tuple[str, ...] = ()) -> Op:
    """An op that applies `rule` to each parameter; `value` is the same with numpy, and `numbers` their names."""
    first = 1 + len(numbers.split())

    def infer(*types: TensorType, count: int, decoupled: bool, **how: bool) -> tuple[TensorType, ...]:
        parameters, _, *states = _groups(types[first:], count)
        return sum(states, parameters)

    def apply(found: Callable[..., tuple[T, ...]], lift: Callable[[T], T],
              lower: Callable[[T, T], T]) -> Callable[..., tuple[T, ...]]:
        def several(*operands: T, count: int, decoupled: bool, **how: bool) -> tuple[T, ...]:
            updated: list[list[T]] = []
            mine: tuple[T, ...]
            for mine in zip(*_groups(operands[first:], count), strict=True):
                p, g, *states = map(lift, mine)
                new = found(operands[1:first], *_decayed(operands[0], p, g, decoupled), *states, **how)
                before = [x for at, x in enumerate(mine) if at != 1]  # all but the gradient
                updated.append([lower(x, old) for x, old in zip(new, before, strict=True)])
            return tuple(x for group in zip(*updated, strict=True) for x in group)
        return several

    return Op(name, "composite", infer, attrs=("count", "decoupled", *attrs), decompose=apply(rule, upcast, downcast),
              differentiable=False, ulp=8, samples=samples, reference=apply(value, lambda x: x, lambda x, old: x),
              doc=f"{doc} Operands: weight decay, {', '.join(numbers.split())}, then `count` parameters, gradients and "
                  "tensors of each kind of state; results: parameters, then states.")


def _samples(numbers: tuple[float, ...], *states: Values, **how: bool) -> tuple[Case, ...]:
    """Two parameters of different shapes, with weight decay of both kinds."""
    groups = [x for values in (reals(), reals(), *states) for x in (values.of(3, 37), values.of(5))]
    return tuple(case(*map(number, (decay, *numbers)), *groups, count=2, decoupled=decoupled, **how)
                 for decay, decoupled in ((0.1, False), (0.99, True)))


# Adagrad

def _adagrad(numbers: tuple, p: Node, g: Node, total: Node) -> tuple[Node, ...]:
    lr, eps = numbers
    new = total + g * g
    return p - g / (sqrt(new) + eps) * lr, new


def _adagrad_value(numbers: tuple, p: ndarray, g: ndarray, total: ndarray) -> tuple[ndarray, ...]:
    lr, eps = numbers
    new = total + np.square(g)
    return p - lr * g / (np.sqrt(new) + eps), new


adagrad = update_op("adagrad", "lr eps", _adagrad, _adagrad_value, cases(*_samples((0.1, 1e-3), positives(1)), scale=1),
                    "Adagrad (Duchi, Hazan and Singer 2011). State: sums of squared gradients.")


# Adadelta

def _adadelta(numbers: tuple, p: Node, g: Node, squares: Node, steps: Node) -> tuple[Node, ...]:
    lr, rho, rest, eps = numbers
    squares = squares * rho + g * g * rest
    delta = sqrt(steps + eps) / sqrt(squares + eps) * g
    return p - delta * lr, squares, steps * rho + delta * delta * rest


def _adadelta_value(numbers: tuple, p: ndarray, g: ndarray, squares: ndarray, steps: ndarray) -> tuple[ndarray, ...]:
    lr, rho, rest, eps = numbers
    squares = rho * squares + rest * np.square(g)
    delta = np.sqrt((steps + eps) / (squares + eps)) * g
    return p - lr * delta, squares, rho * steps + rest * np.square(delta)


adadelta = update_op("adadelta", "lr rho 1-rho eps", _adadelta, _adadelta_value,
                     cases(*_samples((0.5, 0.9, 0.1, 1e-2), positives(1), positives(1)), scale=1),
                     "Adadelta (Zeiler 2012). State: running means of squared gradients and of squared steps.")


# RMSprop

def _rmsprop(numbers: tuple, p: Node, g: Node, squares: Node, *more: Node, momentum: bool,
             centered: bool) -> tuple[Node, ...]:
    lr, alpha, rest, eps, rate = numbers
    new = [squares * alpha + g * g * rest]
    spread = new[0]
    if centered:
        mean = more[-1] * alpha + g * rest
        spread = spread - mean * mean
    step = g / (sqrt(spread) + eps)
    if momentum:
        step = more[0] * rate + step
        new.append(step)
    return p - step * lr, *new, *([mean] if centered else [])


def _rmsprop_value(numbers: tuple, p: ndarray, g: ndarray, squares: ndarray, *more: ndarray, momentum: bool,
                   centered: bool) -> tuple[ndarray, ...]:
    lr, alpha, rest, eps, rate = numbers
    squares = alpha * squares + rest * np.square(g)
    mean = alpha * more[-1] + rest * g if centered else 0.0
    step = g / (np.sqrt(squares - np.square(mean)) + eps) + (rate * more[0] if momentum else 0.0)
    return p - lr * step, squares, *([step] if momentum else []), *([mean] if centered else [])


rmsprop = update_op(
    "rmsprop", "lr alpha 1-alpha eps momentum", _rmsprop, _rmsprop_value,
    cases(*_samples((0.1, 0.9, 0.1, 1e-2, 0.5), positives(1), momentum=False, centered=False),
          *_samples((0.1, 0.9, 0.1, 1e-2, 0.5), positives(1), reals(), momentum=True, centered=False),
          *_samples((0.1, 0.9, 0.1, 1e-2, 0.5), Values(2, 3), reals(), Values(-1, 1), momentum=True, centered=True),
          scale=1),
    "RMSprop (Hinton 2012; centred: Graves 2013). State: running means of squared gradients, with `momentum` the last "
    "steps, `centered` the running means of gradients.", ("momentum", "centered"))


# Rprop

def _rprop(numbers: tuple, p: Node, g: Node, before: Node, size: Node) -> tuple[Node, ...]:
    shorter, longer, least, most = numbers
    turn = g * before
    scaled = where(gt(turn, 0), size * longer, where(lt(turn, 0), size * shorter, size))
    size = minimum(maximum(scaled, least), most)
    taken = where(lt(turn, 0), g * 0, g)
    return p - sign(taken) * size, taken, size


def _rprop_value(numbers: tuple, p: ndarray, g: ndarray, before: ndarray, size: ndarray) -> tuple[ndarray, ...]:
    shorter, longer, least, most = numbers
    size = np.clip(size * np.choose(1 + np.sign(g * before).astype(int), (shorter, 1.0, longer)), least, most)
    taken = np.where(g * before < 0, 0.0, g)
    return p - np.sign(taken) * size, taken, size


rprop = update_op("rprop", "shorter longer least most", _rprop, _rprop_value,
                  cases(*_samples((0.5, 1.2, 1e-3, 2.0), reals(), Values(0.5, 2)), scale=1),
                  "Rprop (Riedmiller 1993). State: the last gradients, 0 where they turned, and the step sizes.")


# Averaged SGD

def _asgd(numbers: tuple, p: Node, g: Node, average: Node) -> tuple[Node, ...]:
    kept, lr, share = numbers
    new = p * kept - g * lr
    return new, average + (new - average) * share


def _asgd_value(numbers: tuple, p: ndarray, g: ndarray, average: ndarray) -> tuple[ndarray, ...]:
    kept, lr, share = numbers
    new = kept * p - lr * g
    return new, (1 - share) * average + share * new


asgd = update_op("asgd", "kept lr share", _asgd, _asgd_value, cases(*_samples((0.9, 0.1, 0.25), reals()), scale=1),
                 "SGD of which the average is kept (Polyak and Juditsky 1992). State: averages of the parameters.")


# Adam's kin

def _adamax(numbers: tuple, p: Node, g: Node, mean: Node, largest: Node) -> tuple[Node, ...]:
    lr, rest, second, eps = numbers
    mean = mean + (g - mean) * rest
    largest = maximum(largest * second, abs(g) + eps)
    return p - mean / largest * lr, mean, largest


def _adamax_value(numbers: tuple, p: ndarray, g: ndarray, mean: ndarray, largest: ndarray) -> tuple[ndarray, ...]:
    lr, rest, second, eps = numbers
    mean, largest = (1 - rest) * mean + rest * g, np.maximum(second * largest, np.abs(g) + eps)
    return p - lr * mean / largest, mean, largest


adamax = update_op("adamax", "lr/(1-beta1^t) 1-beta1 beta2 eps", _adamax, _adamax_value,
                   cases(*_samples((0.1, 0.1, 0.99, 1e-2), reals(), Values(0.5, 2)), scale=1),
                   "Adam with the largest past gradient in place of the root of squares (Kingma and Ba 2015). State: "
                   "running means of gradients, and largest gradients.")


def _nadam(numbers: tuple, p: Node, g: Node, mean: Node, squares: Node) -> tuple[Node, ...]:
    rest, second, left, eps, correction, now, then = numbers
    mean, squares = mean + (g - mean) * rest, squares * second + g * g * left
    return p - (g * now + mean * then) / (sqrt(squares / correction) + eps), mean, squares


def _nadam_value(numbers: tuple, p: ndarray, g: ndarray, mean: ndarray, squares: ndarray) -> tuple[ndarray, ...]:
    rest, second, left, eps, correction, now, then = numbers
    mean, squares = (1 - rest) * mean + rest * g, second * squares + left * np.square(g)
    return p - (now * g + then * mean) / (np.sqrt(squares / correction) + eps), mean, squares


nadam = update_op("nadam", "1-beta1 beta2 1-beta2 eps 1-beta2^t step_of_gradient step_of_mean", _nadam, _nadam_value,
                  cases(*_samples((0.1, 0.99, 0.01, 1e-2, 0.3, 0.05, 0.1), reals(), positives(1)), scale=1),
                  "Adam with Nesterov's momentum (Dozat 2016). State: running means of gradients and of their squares.")


def _radam(numbers: tuple, p: Node, g: Node, mean: Node, squares: Node) -> tuple[Node, ...]:
    lr, rest, second, left, eps, scaled, plain = numbers
    mean, squares = mean + (g - mean) * rest, squares * second + g * g * left
    return p - mean * (1 / (sqrt(squares) + eps) * scaled + plain) * lr, mean, squares


def _radam_value(numbers: tuple, p: ndarray, g: ndarray, mean: ndarray, squares: ndarray) -> tuple[ndarray, ...]:
    lr, rest, second, left, eps, scaled, plain = numbers
    mean, squares = (1 - rest) * mean + rest * g, second * squares + left * np.square(g)
    return p - lr * mean * (scaled / (np.sqrt(squares) + eps) + plain), mean, squares


radam = update_op("radam", "lr/(1-beta1^t) 1-beta1 beta2 1-beta2 eps scaled plain", _radam, _radam_value,
                  cases(*_samples((0.1, 0.1, 0.99, 0.01, 1e-2, 0.5, 0.0), reals(), positives(1)), scale=1),
                  "Adam whose first steps are plain (Liu et al. 2020): plain is 1 then and scaled 0, later the other "
                  "way round. State: running means of gradients and of their squares.")


# Adam with the largest second moment

def _amsgrad(numbers: tuple, p: Node, g: Node, first: Node, second: Node, largest: Node) -> tuple[Node, ...]:
    lr, beta1, rest1, beta2, rest2, root, eps = numbers
    first, second = first * beta1 + g * rest1, second * beta2 + g * g * rest2
    largest = maximum(largest, second)
    return p - first / (sqrt(largest) / root + eps) * lr, first, second, largest


def _amsgrad_value(numbers: tuple, p: ndarray, g: ndarray, first: ndarray, second: ndarray,
                   largest: ndarray) -> tuple[ndarray, ...]:
    lr, beta1, rest1, beta2, rest2, root, eps = numbers
    first, second = beta1 * first + rest1 * g, beta2 * second + rest2 * np.square(g)
    largest = np.maximum(largest, second)
    return p - lr * first / (np.sqrt(largest) / root + eps), first, second, largest


amsgrad = update_op("amsgrad", "lr/c1 beta1 1-beta1 beta2 1-beta2 √c2 eps", _amsgrad, _amsgrad_value,
                    cases(*_samples((0.1, 0.9, 0.1, 0.99, 0.01, 0.3, 1e-2), reals(), positives(1), positives(1)),
                          scale=1),
                    "Adam over the largest second moment (Reddi et al. 2018). State: the moments, the largest.")
