"""Arguments that are views of other memory: a batch cut out of the data, a token out of a row of them.

A replay takes memories, and a view is a part of one. Where a function only reads such an argument, a copy of it is the
same to the function, and a capture of a call with copies serves every other view of that shape and those strides.
Whether it only reads is seen first: its calls run as they are, `WATCHED` times for each kind of arguments. A function
that writes to the memory meanwhile, returns it, keeps it, or asks how it lies is called as it is from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from gc import get_referrers
from itertools import product
from operator import is_, mul
from sys import getrefcount
from types import CodeType
from typing import Any, Final
from weakref import ref

from genesis.frontend.session import Session
from genesis.frontend.storage import Storage
from genesis.frontend.tensor import Tensor
from genesis.frontend.views import Layout
from genesis.runtime.contexts import uncollected
from genesis.tracing.erased_signature import Places, erased
from genesis.tracing.signature import signature
from genesis.tracing.snapshot import NotReplayable, set_by_the_user
from genesis.tracing.tracer import Tracer

WATCHED: Final = 2
"""Calls with views that run as they are before one is captured: the first often makes what later ones use."""

KEPT: Final = 256
"""Kinds of arguments that are remembered; beyond, the oldest is forgotten."""

LAYOUT: Final = frozenset({"stride", "is_contiguous", "storage_offset", "data_ptr", "_base", "_is_view",
                           "untyped_storage", "storage", "is_set_to"})
"""Names by which a program asks how a tensor lies in memory: a copy lies elsewhere, and otherwise."""

REFUSED: Final = -1
"""What stands for the count of calls that only read, once a call did more."""

COPIES: Final = "copies of views"
"""What the key of a call with copies has before their places, so that no other call has its captures."""


def without_copies(key: tuple) -> tuple:
    """The signature of the arguments, for a key that says which are copies, too."""
    return key[:-2] if key[-2:-1] == (COPIES,) else key


class Copied:
    """A call's arguments with copies instead of views.

    Attributes:
        args, kwargs: the arguments, with copies.
        key, tensors: their signature.
        kind: the signature apart from sizes and numbers.
        originals: the views.
    """

    def __init__(self, views: ViewCopies, args: tuple, kwargs: dict[str, Any]):
        self._views = views
        self._made: dict[int, tuple[Any, Any]] = {}
        self._containers: list[tuple[Any, Any]] = []
        self.args: tuple = self._replaced(args)
        self.kwargs = {name: self._replaced(value) for name, value in kwargs.items()}
        self.originals = [view for view, _ in self._made.values()]
        if not self.originals:  # what kept the call from being compared is another argument
            raise NotReplayable("no argument is a view of other memory")
        key, self.tensors = signature(self.args, self.kwargs)
        places = tuple([i for i, x in enumerate(self.tensors) if any(x is copy for _, copy in self._made.values())])
        whole = [x.storage for i, x in enumerate(self.tensors) if i not in places]
        if any(x.storage is storage for x in self.originals for storage in whole):
            raise NotReplayable("two arguments share memory")
        self.key = (*key, COPIES, Places(places, tuple([x.stride() for x in self.originals])))
        self.kind = erased(self.key).key

    def _replaced(self, value: Any) -> Any:
        if value.__class__ is tuple:
            return tuple([self._replaced(x) for x in value])
        if value.__class__ in (list, dict):
            return self._replaced_in(value)
        if not isinstance(value, Tensor) or not _is_part(value):
            return value
        if id(value) not in self._made:
            plain = value.__class__ is Tensor and not value.requires_grad and not value.storage.inference
            if not plain or set_by_the_user(value):
                raise NotReplayable("an argument is a view of other memory: pass its clone()")
            self._made[id(value)] = value, value.clone()
        return self._made[id(value)][1]

    def _replaced_in(self, value: Any) -> Any:
        """A list or dictionary with copies, or the same one where it has no view."""
        if value.__class__ is list:
            found: Any = [self._replaced(x) for x in value]
            same = all(map(is_, found, value))
        else:
            found = {name: self._replaced(x) for name, x in value.items()}
            same = all(map(is_, found.values(), value.values()))
        if same:
            return value
        self._containers.append((value, found))
        return found

    @property
    def allowed(self) -> bool:
        """Was the function seen to read such arguments only?"""
        return self._views.seen.get(self.kind, 0) >= WATCHED

    def called_as_it_is(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the function gives for the views, and note what it did to the memory that they show."""
        memories = list({id(x.storage): x.storage for x in self.originals}.values())
        before = [(x.version, getrefcount(x)) for x in memories] + [(0, getrefcount(x)) for x in self.originals]
        held = [_held(x) for x, _ in self._containers]
        tracer = Tracer(lambda code, namespace: None, lambda reason: None)
        try:
            with uncollected, tracer:  # a collection may call the user's callbacks, which are no part of the function
                result = function(*args, **kwargs)
        finally:
            tracer.forget()
        after = [(x.version, getrefcount(x)) for x in memories] + [(0, getrefcount(x)) for x in self.originals]
        unchanged = held == [_held(x) for x, _ in self._containers]
        self._note(before == after and unchanged and not _shows(result, memories) and tracer.refusal is None
                   and not _asks_how_it_lies(tracer.globals))
        return result

    def mirror(self, session: Session) -> None:
        """Let copies follow what a captured call writes to the views' memories, and those what it writes to copies."""
        session.mirrored = dict.fromkeys((x.storage._reference for pair in self._made.values() for x in pair),
                                         partial(self._follow, session))

    def _follow(self, session: Session, written: ref[Any]) -> None:
        session.mirrored = {}  # what follows is no write of the function's
        session.refuse("it writes to the memory of an argument that is a view of other memory")
        self._note(False)
        for view, copy in self._made.values():
            if copy.storage._reference is written:
                view.copy_(copy)
        for view, copy in self._made.values():
            if copy.storage._reference is not written:
                copy.copy_(view)
        self.mirror(session)

    def watching(self, entered: Callable[..., str | None]) -> Callable[[CodeType, dict[str, Any]], str | None]:
        """`Entered.enter` for a capture on copies: code that asks how an argument lies finds the views themselves."""
        def enter(code: CodeType, namespace: dict[str, Any]) -> str | None:
            if not _asks_how_it_lies((code,)):
                return entered(code, namespace)
            self._note(False)
            pairs, self._made = list(self._made.values()), {}
            for view, copy in pairs:
                _show_memory(view, copy.stride(), copy.storage)
            return "it asks how an argument that is a view of other memory lies there"
        return enter

    def captured(self, result: Any, ran: Iterable[CodeType]) -> bool:
        """Whether a captured call returned no copy and did not ask how one lies; `ran` is the user's code that ran."""
        clean = (not _shows(result, [copy.storage for _, copy in self._made.values()])
                 and not _asks_how_it_lies(ran))
        if not clean:
            self._note(False)
        return clean

    def kept(self) -> bool:
        """Let go of the copies. Whether the function has kept one, or a view of one: what it kept shows the memory of
        the argument from now on, as it does after a plain call."""
        pairs = [(view, copy.stride(), ref(copy), ref(copy.storage)) for view, copy in self._made.values()]
        self.args, self.kwargs = (), {}
        found = self._containers_kept()
        self._made = {}
        self.tensors.clear()
        for view, strides, copy, storage in pairs:
            memory = storage()
            if copy() is None and memory is None:
                continue
            found = _show_memory(view, strides, memory) or found
        if found:
            self._note(False)
        return found

    def _containers_kept(self) -> bool:
        """Let go of the lists and dictionaries with copies. Whether the function has kept one, or changed one: the
        argument's own is in its place from now on, and holds what that held."""
        views = {id(copy): view for view, copy in self._made.values()}
        views |= {id(copy): own for own, copy in self._containers}
        pairs, self._containers = self._containers, []
        found = False
        while pairs:
            own, copy = pairs.pop()
            if own.__class__ is list:
                now: Any = [views.get(id(x), x) for x in copy]
                changed = len(now) != len(own) or not all(map(is_, now, own))
                if changed:
                    own[:] = now
            else:
                now = {name: views.get(id(x), x) for name, x in copy.items()}
                changed = list(now) != list(own) or not all(map(is_, now.values(), own.values()))
                if changed:
                    own.clear()
                    own.update(now)
            found = found or changed
            for holder in get_referrers(copy):
                found = _put_back(holder, copy, own) or found
            copy.clear()
        return found

    def watch_again(self) -> None:
        """The function goes on otherwise than in the calls that were captured: it is seen anew what it does."""
        if self._views.seen.get(self.kind) != REFUSED:
            self._views.seen[self.kind] = 0

    def _note(self, only_reads: bool) -> None:
        seen = self._views.seen
        if len(seen) > KEPT:
            del seen[next(iter(seen))]
        count = seen.get(self.kind, 0)
        seen[self.kind] = REFUSED if not only_reads or count == REFUSED else count + 1


class ViewCopies:
    """What was seen of a function's calls with views.

    Attributes:
        seen: kind of arguments → how many calls only read; REFUSED once one did more.
    """

    def __init__(self) -> None:
        self.seen: dict[Any, int] = {}

    def of(self, args: tuple, kwargs: dict[str, Any], always: bool = False) -> Copied | None:
        """The arguments with copies; None where none is a view, or copies will not do. `always`: also where
        they did not before: a capture tells again what is in their way."""
        try:
            found = Copied(self, args, kwargs)
        except NotReplayable:
            return None
        return found if always or self.seen.get(found.kind) != REFUSED else None


def _show_memory(view: Any, strides: Sequence[int], memory: Storage | None) -> bool:
    """Let all tensors over a view's copy, which has these strides, show the view's memory. Whether there are any."""
    holders = [x for x in get_referrers(memory) if isinstance(x, Tensor)]
    for holder in holders:
        part = _same_part(holder, strides, view)
        if part is not None:
            holder.data = part
    return bool(holders)


def _put_back(holder: Any, copy: Any, own: Any) -> bool:
    """Let a list, a dictionary or an object hold the argument's own container instead of its copy."""
    if holder.__class__ is list:
        places = [i for i, x in enumerate(holder) if x is copy]
        for i in places:
            holder[i] = own
        return bool(places)
    space = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
    names = [name for name, x in space.items() if x is copy]
    for name in names:
        if space is holder:
            holder[name] = own
        else:
            setattr(holder, name, own)
    return bool(names)


def _same_part(x: Any, strides: Sequence[int], view: Any) -> Any:
    """The part of a view that `x` shows of its copy, whose strides are these; None where no strides say it (columns of
    the data, flattened)."""
    def place(offset: int) -> int:
        """The element of the view's memory that is at this offset in the copy."""
        return view.storage_offset() + sum(offset // stride % size * there for size, stride, there in zip(
            view.shape, strides, view.stride(), strict=True))
    if not view.numel():
        return None
    first = x.storage_offset()
    begin = place(first)
    steps = [place(first + step) - begin if size > 1 else 0 for size, step in zip(x.shape, x.stride(), strict=True)]
    for index in product(*map(range, x.shape)):
        if place(first + sum(map(mul, index, x.stride()))) != begin + sum(map(mul, index, steps)):
            return None
    return view.as_strided(x.shape, steps, begin)


def _is_part(x: Any) -> bool:
    return x.part is not None and (x.part.__class__ is not Layout or x.leaf is not None)


def _held(value: Any) -> tuple[Any, ...]:
    """What a list or dictionary holds, and how many hold it."""
    return getrefcount(value), [*map(id, value)], [*map(id, value.values())] if value.__class__ is dict else ()


def _asks_how_it_lies(ran: Iterable[CodeType]) -> bool:
    return any(LAYOUT.intersection(code.co_names) for code in ran)


def _shows(result: Any, memories: list[Storage]) -> bool:
    """Does a tensor in a result show one of these memories?"""
    return any(x.storage is memory for x in _tensors(result, set()) for memory in memories)


def _tensors(value: Any, seen: set[int]) -> Iterator[Any]:
    if isinstance(value, Tensor):
        yield value
    elif id(value) not in seen:
        seen.add(id(value))
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (
            vars(value).values() if hasattr(value, "__dataclass_fields__") and hasattr(value, "__dict__") else ())
        for part in parts:
            yield from _tensors(part, seen)
