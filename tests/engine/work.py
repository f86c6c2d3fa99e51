"""What a program costs, counted: figures that no other process and no clock has a part in."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

from genesis.frontend.storage import Cell, Storage
from genesis.ir.node import Node
from genesis.ir.source import PACKAGE
from genesis.runtime.contexts import uncollected

COMPARED = Node, Storage, Cell
"""Classes whose objects are told apart by identity. A set of them compares none, a list all that stand before."""

Work = Counter[tuple[str, str]]
"""(file, function) → the lines of it that ran, each turn of a comprehension too; or (file, "function: class") → how
often it compared objects of this class."""


@contextmanager
def _comparisons(found: Work) -> Iterator[None]:
    """Count the comparisons of objects of `COMPARED` that are not one object."""
    def counts(what: type) -> Callable[[object, object], Any]:
        def same(self: object, other: object) -> Any:
            code = sys._getframe(1).f_code
            found[code.co_filename.removeprefix(PACKAGE), f"{code.co_qualname}: {what.__name__}"] += 1
            return NotImplemented
        return same
    hashes = [what.__hash__ for what in COMPARED]
    own = [vars(what).get("__eq__") for what in COMPARED]
    try:
        for what, hashed in zip(COMPARED, hashes, strict=True):
            what.__eq__ = counts(what)  # type: ignore[method-assign]
            what.__hash__ = hashed  # type: ignore[method-assign]
        yield
    finally:
        for what, before in zip(COMPARED, own, strict=True):
            if before is None:
                del what.__eq__
            else:
                what.__eq__ = before  # type: ignore[method-assign]


def work_of(run: Callable[[], object]) -> Work:
    """What Genesis does in one run: lines of its Python, and comparisons of its objects one by one.

    Python's collector is off, whose finalizers would be counted where it happens to run.

    >>> import genesis
    >>> sum(work_of(lambda: genesis.ones(3).sum().item()).values()) > 100
    True
    """
    lines: Counter[CodeType] = Counter()

    def local(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            lines[frame.f_code] += 1
        return local

    def trace(frame: FrameType, event: str, _: object) -> Any:
        return local if frame.f_code.co_filename.startswith(PACKAGE) else None

    found: Work = Counter()
    gc.collect()
    before = sys.gettrace()
    with uncollected, _comparisons(found):
        sys.settrace(trace)
        try:
            run()
        finally:
            sys.settrace(before)
    for code, count in lines.items():
        found[code.co_filename.removeprefix(PACKAGE), code.co_qualname] += count
    return found


SHARE: Final = 0.003
"""Part of the widest program's work from which on what grows too fast is told."""


def superlinear(narrow: Work, wide: Work, wider: Work) -> dict[tuple[str, str], tuple[int, int]]:
    """Where work grows faster than programs of which each is twice as wide as the one before: (from narrow to wide,
    from wide to wider), of which the second is twice the first where work is linear, and four times where quadratic.

    >>> f, g = ("a file", "linear"), ("a file", "quadratic")
    >>> superlinear(*[Counter({f: 10 * n, g: 10 * n * n}) for n in (1, 2, 4)])
    {('a file', 'quadratic'): (30, 120)}

    What the narrowest did for the first time alone, and the others found done, hides nothing and is no growth:

    >>> superlinear(Counter({f: 1000}), Counter({f: 20}), Counter({f: 21, g: 1000}))
    {('a file', 'quadratic'): (0, 1000)}
    """
    least = SHARE * sum(wider.values())
    steps = {key: (max(wide[key] - narrow[key], 0), wider[key] - wide[key]) for key in wider}
    return {key: (first, then) for key, (first, then) in steps.items()
            if then > 3 * first and then - 2 * first > least}
