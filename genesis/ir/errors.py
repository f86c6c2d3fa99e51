"""Errors with four parts: what failed, the operands, the user's line, what to try."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from genesis.ir.interrupting import interrupts
from genesis.ir.source import here


class Overwritten(RuntimeError):
    """A program needs a value whose memory has another content by now."""


class Misfit(RuntimeError):
    """A type rule's refusal of operands, with what to try."""

    def __init__(self, problem: str, hint: str):
        super().__init__(problem)
        self.hint = hint


class NotAnOperand(TypeError):
    """Something that is neither a tensor nor a number is where one of them should be."""


class NotAnIndex(IndexError, RuntimeError):
    """A tensor that is no index by its dtype. torch raises the one error or the other, by the op."""


class IndexOutOfRange(IndexError, RuntimeError):
    """An index, class or id that is outside of what it counts. torch raises the one error or the other, by the op."""


class LinAlgError(RuntimeError):
    """A matrix that has no such decomposition, inverse or solution: it is singular, not positive definite, not finite.

    >>> import genesis
    >>> try:
    ...     genesis.linalg.inv(genesis.zeros(2, 2))
    ... except genesis.linalg.LinAlgError as error:
    ...     "singular" in str(error)
    True
    """


def not_an_operand(value: object) -> NotAnOperand:
    """The error for a value that an op cannot take: what it is, and how to make a tensor of it."""
    return NotAnOperand(_with_line(f"expected a genesis tensor or a number, not {kind_and_conversion(value)}"))


def not_a_tensor(value: object) -> NotAnOperand:
    """The error for a value where only a tensor will do."""
    return NotAnOperand(_with_line(f"expected a genesis tensor, not {kind_and_conversion(value)}"))


def _with_line(problem: str) -> str:
    """The sentence with the user's line behind it, before what to try."""
    what, newline, hint = problem.partition("\n")
    return "\n".join([what, *_user_line()]) + newline + hint


def _user_line() -> list[str]:
    """The user's line as an error tells it; none where there is no file to look into."""
    place = here()
    if place is None or place.filename.startswith("<"):
        return []
    return [f"  at {place.filename}:{place.line}: {place.text}"]


def kind_of(value: object) -> str:
    """The class of a value with the library that it is of.

    >>> import fractions
    >>> kind_of(fractions.Fraction(1)), kind_of(2.5)
    ('fractions.Fraction', 'float')
    """
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return kind.__qualname__ if library in ("builtins", "genesis") else f"{library}.{kind.__qualname__}"


def conversion_of(value: object) -> str:
    """The line that says how to make a tensor of a value that is not one of ours, '' where that cannot be had."""
    return "".join(kind_and_conversion(value).partition("\n")[1:]) if hasattr(value, "shape") else ""


def kind_and_conversion(value: object) -> str:
    """What a value is that is not one of ours, and in a second line how to make a tensor of it, if that can be had."""
    name = kind_of(value)
    library = name.partition(".")[0]
    copied = f"{name}\n  try: genesis.tensor(x)"
    if library == "torch":
        return f"{copied}, which copies, or genesis.from_dlpack(x.detach()), which shares memory"
    if name == "numpy.ndarray":
        return f"{copied}, which copies, or genesis.from_numpy(x), which shares its memory"
    return copied if isinstance(value, (list, tuple, bool, int, float)) else name


def is_foreign(value: object) -> bool:
    """Whether a value is a tensor of torch's or an array of numpy's."""
    library = type(value).__module__.partition(".")[0]
    return library in ("torch", "numpy") and hasattr(value, "shape") and hasattr(value, "__array__")


def describe(operand: Any) -> str:
    """An operand as an error message shows it: its type when it has one, else its value.

    >>> describe(2.5)
    'float 2.5'
    """
    kind = getattr(operand, "type", operand)
    if hasattr(kind, "dtype"):
        return f"{kind.dtype!r} of shape {tuple(kind.shape)} on {kind.device}"
    if hasattr(operand, "dtype") and hasattr(operand, "shape"):
        return f"{operand.dtype!r} of shape {tuple(operand.shape)} on {operand.device}"
    return f"{type(operand).__name__} {operand!r}"


def _interrupting() -> Exception | None:
    """The exception from outside that the caller of `failure`, or its caller, has caught."""
    error = sys.exc_info()[1]
    if not isinstance(error, Exception) or error.__traceback__ is None:
        return None
    caught, frame = error.__traceback__.tb_frame, sys._getframe(2)
    return error if caught in (frame, frame.f_back) and interrupts(error) else None


def failure(op: str, problem: str, operands: Iterable[tuple[str, object]] = (), hint: str = "",
            error: type[Exception] = RuntimeError) -> Exception:
    """The exception to raise when recording `op` with these operands cannot work.

    Where it would stand for an exception from outside (`interrupting.py`), it is that exception.

    >>> print(failure("matmul", "inner sizes 3 and 4 differ", hint="transpose one operand"))
    matmul: inner sizes 3 and 4 differ
      try: transpose one operand
    """
    if (limit := _interrupting()) is not None:
        return limit
    lines = [f"{op}: {problem}"]
    lines += [f"  {name}: {describe(operand)}" for name, operand in operands]
    lines += _user_line()
    if hint:
        lines.append(f"  try: {hint}")
    return error("\n".join(lines))
