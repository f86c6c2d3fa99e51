"""Several changes as one: no line of Python runs between them, so no exception, signal handler or finalizer does.

CPython looks for signals, and lets other threads run, between the bytecodes of Python functions. A loop in C over calls
into C has none: `at_once(changes(writes, ...))` makes all of them or, if it is not reached, none. What the
changes replace has to be held by the caller until they are made: the end of an object may be a line of Python.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat, starmap
from operator import call, eq
from typing import Any, Final

from genesis.runtime.contexts import in_order, need_room

Change = tuple[Any, ...]
"""A function of C and its arguments."""

Expected = tuple[Change, Any]
"""A function of C with its arguments, and what it has to give, such as `(getattr, x, "version"), 3`."""

at_once: Final[Callable[[Iterator[Any]], None]] = in_order
"""Make the changes. Called with what `changes` returned, which was made before: then a condition that is looked at
right before it, without a call, holds when the first change is made."""


def changes(writes: Iterable[Callable[[], Any]], others: Iterable[Change] = (),
            expected: Sequence[Expected] = ()) -> Iterator[Any]:
    """The changes in order, to be made by `at_once`: calls without arguments, then others.

    `expected`: calls and what they have to give. `at_once` raises KeyError, and has done nothing, where one gives
    something else by then.

    Python's collector stays out meanwhile, as it runs finalizers.

    Raises:
        RecursionError: the stack has no room for the changes.

    >>> from functools import partial
    >>> state: dict[str, int] = {}
    >>> loop = changes([partial(state.__setitem__, "a", 1)], [(state.__setitem__, "b", 2)])
    >>> at_once(loop)
    >>> state
    {'a': 1, 'b': 2}
    """
    need_room()
    found: Iterator[Any] = chain(map(call, writes), starmap(call, others))
    if gc.isenabled():
        found = chain(starmap(call, _UNCOLLECTED), found, starmap(call, _COLLECTED))
    if not expected:
        return found
    asked, values = zip(*expected, strict=True)
    return chain(map(_HOLDS.__getitem__, map(eq, starmap(call, asked), values)), found)


_HOLDS: Final = {True: None}


_UNCOLLECTED: Final[tuple[Change, ...]] = ((gc.disable,),)
_COLLECTED: Final[tuple[Change, ...]] = ((gc.enable,),)


def attributes(objects: Iterable[Any], name: str, values: Iterable[Any]) -> Change:
    """One change that gives each of these objects its value as this attribute, a slot or a plain one."""
    return at_once, map(setattr, objects, repeat(name), values)
