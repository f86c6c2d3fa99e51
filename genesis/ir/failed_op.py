"""The error of an op whose values do not fit, found while its program ran: op, operands, the user's line, what to try.

A library that computes an op says what is wrong with the values, and knows neither op nor line. The error that a user
sees is of the same class, with the four parts of any other (`ir/errors.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from genesis.ir.errors import describe
from genesis.ir.misplaced import line_of

if TYPE_CHECKING:
    from genesis.ir.node import Node

_NO_ZERO = "an integer divisor without zeros, or floating-point operands"
_INVERTIBLE = "linalg.pinv or linalg.lstsq, or add a multiple of the identity to the matrix"
_FINITE = "a matrix without NaN and infinity"
HINTS: Final = {
    "floor_divide": _NO_ZERO, "remainder": _NO_ZERO, "fmod": _NO_ZERO, "trunc_divide": _NO_ZERO,
    "lu_factor": "linalg.lu, which gives the factors of singular matrices, too",
    "inv": _INVERTIBLE, "solve": _INVERTIBLE, "svd": _FINITE, "pinv": _FINITE, "eigh": _FINITE,
    "cholesky": "a symmetric positive-definite matrix: add a multiple of the identity",
    "binary_cross_entropy": "probabilities, as sigmoid gives them; of logits binary_cross_entropy_with_logits",
    "fill": "a number that the dtype holds", "require_all": "look at the values; what comes before may give NaN",
}
"""Op → what to try when its values do not fit."""

_WORDS: Final = {"ZeroDivisionError": "an integer is divided by 0 (ZeroDivisionError)"}
_NAMED: Final = r"(?:torch\.)?(linalg\.\w+): "
_REQUIRED: Final = r"([\w.]+): "


class Unfit(RuntimeError, ValueError):
    """A condition of `ops/require_all.py` does not hold. torch raises the one error or the other, by the function."""


class Failure(NamedTuple):
    """What is known of the op that an error is of (`failure_of`): its name, and what the library said."""

    op: str
    said: str


def failed(error: Exception, op: str, operands: Iterable[object], place: str) -> Exception:
    """The library's error about this op, of the same class, with its operands and line.

    Args:
        operands: tensors, anything that has their type, or numbers.
        place: the user's line; '' where it is not known.
    """
    said = str(error)
    named = re.match(_REQUIRED if isinstance(error, Unfit) else _NAMED, said)
    name, problem = (named[1], said[named.end():]) if named else (op, said)
    lines = [f"{name}: {_WORDS.get(problem, problem)}"]
    shown = list(operands)[:1] if isinstance(error, Unfit) else operands  # without the condition
    lines += [f"  operand {number}: {describe(operand)}" for number, operand in enumerate(shown)]
    if place:
        lines.append(f"  at {place}")
    if op in HINTS:
        lines.append(f"  try: {HINTS[op]}")
    found = type(error)("\n".join(lines))
    found.failure = Failure(op, said)  # type: ignore[attr-defined]
    return found


def failure_of(error: BaseException) -> Failure | None:
    """What is known of the op that raised this error, if it is one of `failed`."""
    return getattr(error, "failure", None)


def at_node(error: Exception, node: Node) -> Exception:
    """The same error, told of this node: the one of the program that ran, which may have come from another line."""
    found = failure_of(error)
    assert found is not None
    return failed(type(error)(found.said), found.op, node.inputs, line_of(node.source).text)
