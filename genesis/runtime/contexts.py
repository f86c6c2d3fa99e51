"""Contexts that C enters and leaves: no exception comes between a change and the block that takes it back.

Python looks a context's `__enter__` and `__exit__` up before it calls the first. Here looking up makes, in Python, the
two functions that are called; what these do is one call of C.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import chain, compress, repeat, starmap
from operator import call
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class _Entering:
    """`__enter__`, whose look-up makes the function to call. Looked up in the class, as `contextlib.ExitStack` does, it
    is one that does both."""

    def __get__(self, context: Context | None, owner: type | None = None) -> Callable[..., object]:
        return (lambda context: context._entering()()) if context is None else context._entering()


class _Leaving:
    """`__exit__`, likewise."""

    def __get__(self, context: Context | None, owner: type | None = None) -> Callable[..., object]:
        return (lambda context, *error: context._leaving()(*error)) if context is None else context._leaving()


class Context:
    """The base of such contexts.

    A subclass says what enters and leaves it, by functions of C: for a `with` both are asked for before it is entered.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        def __enter__(self) -> object:
            """Enter."""

        def __exit__(self, *error: object) -> None:
            """Leave."""
    else:
        __enter__, __exit__ = _Entering(), _Leaving()

    def _entering(self) -> Callable[[], object]:
        """What enters the context."""
        raise NotImplementedError

    def _leaving(self) -> Callable[..., object]:
        """What leaves it, given three arguments."""
        raise NotImplementedError


class NotYet(RuntimeError):
    """A device cannot begin a run: what is left of an earlier one comes first, and fails. Nothing has been done."""


in_order: Final[Callable[[Iterator[object]], None]] = deque[object](maxlen=0).extend
"""Go through an iterator to its end."""


def _calls_into_one_another(levels: int) -> Callable[[], object]:
    found: Callable[[], object] = bool
    for _ in range(levels):
        found = partial(call, found)
    return found


need_room: Final = _calls_into_one_another(8)
"""Raise RecursionError where the stack has no room for eight calls of C into one another, and do nothing else.

Up to Python 3.11 these count as Python's do. It is called before the first of several changes that no exception may
part: one that takes a call more than the first would find the stack's end behind it. 0.1 µs."""

_ITEM: Final = "{0[it]!s:.0}".format
"""Looks an item of its first argument up, whatever the others are, and gives ""."""


def leaving(*changes: tuple) -> Callable[..., str]:
    """What makes the changes (functions of C and their arguments) when it is called for the first time, whatever it is
    given, and gives "": an `__exit__` that is one call of C.

    A formatted string takes any arguments. The item that it looks up is not there, so the dictionary calls its
    function. It is made before what it takes back: who finds no room on the stack for it finds that out here.

    >>> done = []
    >>> leave = leaving((done.append, 1), (done.append, 2))
    >>> leave(None, None, None), done
    ('', [1, 2])
    """
    need_room()
    return partial(_ITEM, defaultdict(partial(in_order, starmap(call, changes))))


Changes = Sequence[tuple]
"""Functions of C, each with its arguments."""


class Switched(NamedTuple):
    """What a context does: the changes that enter it, those that leave it, and what `as` gives."""

    changes: Changes
    back: Changes
    given: object = None


class Temporary(Context):
    """A context that makes some changes and takes them back; it may be entered inside of itself. Also a decorator.

    Args:
        look: what to change, and how to take that back as things are now; asked just before the context is entered.

    >>> shown = [1]
    >>> with Temporary(lambda: Switched([(shown.append, 2)], [(shown.pop,)])):
    ...     shown
    [1, 2]
    >>> shown
    [1]
    """

    __slots__ = ("_backs", "_left_first", "_look")

    def __init__(self, look: Callable[[], Switched]):
        self._look = look
        self._backs: list[Changes] = []
        self._left_first = False

    def _entering(self) -> Callable[[], object]:
        found = self._look()
        if self._left_first:
            self._left_first = False
        else:
            self._backs.append(found.back)
        return partial(next, compress(starmap(call, found.changes), repeat(False)), found.given)

    def _leaving(self) -> Callable[..., object]:
        if self._backs:
            back = self._backs.pop()
        else:  # from Python 3.14 on a `with` looks this up first
            back, self._left_first = self._look().back, True
        return leaving(*back)

    def __call__(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        """The function, each of whose calls runs inside of such a context."""
        @functools.wraps(function)
        def inside(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            with Temporary(self._look):
                return function(*args, **kwargs)
        return inside


def items(target: MutableMapping[str, object], given: Mapping[str, object]) -> Temporary:
    """A context inside of which a dictionary, such as a module's globals, has these items."""
    return Temporary(lambda: Switched([(target.update, dict(given))],
                                      [(target.update, {name: target[name] for name in given})]))


def profiled_by(profile: object) -> tuple[Callable[..., object], tuple[object, ...]]:
    """What makes `profile`, as `sys.getprofile` gave it, the thread's profile function again, and its arguments.

    A profiler in C (`cProfile` up to Python 3.11) is no function that `sys.setprofile` could take: it sets itself.

    >>> profiled_by(None) == (sys.setprofile, (None,))
    True
    """
    if profile is None or callable(profile):
        return sys.setprofile, (profile,)
    return profile.enable, ()  # type: ignore[attr-defined]


_ONCE_IF: Final[dict[bool, tuple[tuple[()], ...]]] = {True: ((),), False: ()}
"""Arguments of the calls that are made: of one, or of none."""


class _Uncollected(Context):
    """Contexts may nest; what the user turned off stays off. Of several threads' the last to leave turns the collector
    on: whoever leaves takes the last note of whether it was on, and the first note is that of before all."""

    __slots__ = ("_was_on",)

    def __init__(self) -> None:
        self._was_on: list[bool] = []

    def _entering(self) -> Callable[[], object]:
        notes = map(self._was_on.append, starmap(gc.isenabled, ((),)))
        return partial(in_order, chain(notes, starmap(gc.disable, ((),))))

    def _leaving(self) -> Callable[..., object]:
        calls = chain.from_iterable(map(_ONCE_IF.__getitem__, starmap(self._was_on.pop, ((),))))
        return leaving((in_order, starmap(gc.enable, calls)))


uncollected: Final = _Uncollected()
"""A context in which neither Python's cyclic collector runs nor, so, a finalizer of a cycle."""

_MADE_OLD: Final[dict[bool, tuple[tuple[Callable[[], None]], ...]]] = {True: ((gc.freeze,), (gc.unfreeze,)), False: ()}
"""What gives all objects to the oldest generation. Nothing where a program has frozen some: they would be thawed."""


def _making_old() -> Iterator[object]:
    """The calls that give all objects to the oldest generation, as they are asked for."""
    frozen_none = map((0).__eq__, starmap(gc.get_freeze_count, ((),)))
    return starmap(call, chain.from_iterable(map(_MADE_OLD.__getitem__, frozen_none)))


def make_old() -> None:
    """Give all objects to the oldest generation, in one call of C: the collector then counts anew how often it has
    looked at the younger ones."""
    in_order(_making_old())


class _Importing(_Uncollected):
    __slots__ = ()

    def _leaving(self) -> Callable[..., object]:
        return leaving((in_order, _making_old()), (super()._leaving(), None, None, None))


importing: Final = _Importing()
"""`uncollected`, for modules that stay: the collector takes what was made for old, where it would go through all of it
twice first (35,000 objects of `import genesis`, a sixth of its time)."""


class Lock(Protocol):
    """A lock of Python's."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take it."""

    def release(self) -> None:
        """Let go of it."""


class Attempt(Context):
    """A context that takes a lock if it is free.

    Attributes:
        taken: [whether it was], inside.

    >>> import threading
    >>> lock = threading.RLock()
    >>> with (attempt := Attempt(lock)):
    ...     attempt.taken
    [True]
    """

    __slots__ = ("_lock", "taken")

    def __init__(self, lock: Lock):
        self._lock = lock
        self.taken: list[bool] = []

    def _entering(self) -> Callable[[], object]:
        return partial(in_order, map(self.taken.append, starmap(self._lock.acquire, ((False,),))))

    def _leaving(self) -> Callable[..., object]:
        calls = chain.from_iterable(map(_ONCE_IF.__getitem__, self.taken))
        return leaving((in_order, starmap(self._lock.release, calls)))

