"""What `sys.getrefcount` returns for an object with so many holders, measured: Python versions differ.

Up to 3.13 a call holds its arguments; from 3.14 on it borrows those that are local variables. Compare with a number
here only what is counted by the same expression.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Final


def _held_and_named() -> int:
    holder = [object()]
    name = holder[0]
    return getrefcount(name)


HELD_ONCE: Final = next(map(getrefcount, [object()]))
"""The count of an object that only a list holds, counted by `map(getrefcount, the list)`."""

HELD_AND_NAMED: Final = _held_and_named()
"""The count of an object that one other and a local variable hold, counted by `getrefcount(the variable)`."""
