"""A compiled function: its captures by signature of a call, and which of them a call is replayed by.

A call is looked up by its arguments' types and Python values, grad mode and autocast; then the guards of its entry are
checked (`genesis.tracing.guards`). A hit replays without running the function: as one `call` node when the function
only computes, so that an outer backward and step still form one plan; as the plan itself when it ended a training step.
What cannot be guarded is recorded anew at each call, like an undecorated function, and `explain` says why.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from genesis.frontend import patches, session
from genesis.frontend.patches import Held
from genesis.frontend.state import state
from genesis.frontend.threads import unlocked_after_fork
from genesis.ir.errors import failure
from genesis.ir.source import Source
from genesis.tracing import stance
from genesis.tracing.attempts import Attempts
from genesis.tracing.call_capture import CallCapture, Kept
from genesis.tracing.call_templates import CallTemplates
from genesis.tracing.certain_refusals import certain_refusal
from genesis.tracing.explanation import CallShape, Explanation, Recapture
from genesis.tracing.find_slots import changed_numbers
from genesis.tracing.signature import signature
from genesis.tracing.snapshot import CompiledBase, NotReplayable, Opaque, Unsettled
from genesis.tracing.value_texts import two_texts
from genesis.tracing.view_copies import Copied, ViewCopies

_VARIANTS, _SIGNATURES = 64, 64
"""Captures kept for one set of argument types and values, and such sets; beyond these numbers the oldest is dropped.
One that read a value of memory that was written to since is dropped at the next capture: no call is like it again."""
_RECAPTURES = 256
"""Recaptures that `explain` remembers."""
_capturing = threading.RLock()
"""One capture at a time."""
unlocked_after_fork(sys.modules[__name__], "_capturing")
_made: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
"""All compiled functions, for `reset`."""


class CompiledFunction(CompiledBase):
    """A function that is captured and replayed; `genesis.compile` makes it.

    Attributes:
        function: the function that it calls.
        hits: how many calls were replayed.
    """

    def __init__(self, function: Callable[..., Any], fullgraph: bool = False):
        self.function, self.fullgraph = function, fullgraph
        self._lock = threading.RLock()
        unlocked_after_fork(self, "_lock")
        self.reset()
        self.own_names = frozenset({*vars(self), "own_names"})
        functools.update_wrapper(self, function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        _made.add(self)

    def reset(self) -> None:
        """Forget all captures, and what was learned of the calls."""
        self._entries: dict[Any, list[Kept]] = {}
        self._attempts, self._views, self._templates = Attempts(), ViewCopies(), CallTemplates()
        self._notes: dict[str, None] = {}
        self._ran: dict[types.CodeType, dict[str, Any]] = {}
        self._latest: CallShape | None = None
        self._gradients_move = False  # a call found other gradients than one before
        self._recaptures: deque[Recapture] = deque(maxlen=_RECAPTURES)
        self.hits = self._calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.session is not None and session.active() is not None:  # inside another capture it is part of that one
            with stance.inside():  # a disabled function may lie between them
                return self.function(*args, **kwargs)
        if state.rewriting.calls:  # the arguments are stand-ins, which have no values
            return self.function(*args, **kwargs)
        if stance.unusual and stance.disabled():
            return self.function(*args, **kwargs)
        copied, reason = None, ""
        try:
            key, tensors = signature(args, kwargs)
        except NotReplayable as refusal:
            reason = str(refusal)
        if reason:  # not in the handler, where each error of the function's would have this one as its context
            copied = self._views.of(args, kwargs, always=self.fullgraph)
            if copied is None:
                return self._plainly(reason, args, kwargs)
            if not copied.allowed and not self.fullgraph:  # a capture on copies tells what it refuses at once
                if stance.unusual and self._stands_back(copied.key, copied.args, copied.kwargs, copied.originals):
                    return self.function(*args, **kwargs)
                with stance.inside():
                    return copied.called_as_it_is(self.function, args, kwargs)
            key, tensors = copied.key, copied.tensors
        with self._lock:
            for entry, given in self._candidates(key, tensors):
                if entry.shares(given) or (copied is not None and entry.shares(copied.originals)):
                    return self._plainly("an argument shares memory with a tensor that it knows", args, kwargs)
                if entry.replay.ready(given) and entry.guards.hold():
                    self.hits += 1
                    return entry.replay.run(given)
        self._calls += 1
        if stance.unusual and (self._stands_back(key, args, kwargs) if copied is None else self._stands_back(
                key, copied.args, copied.kwargs, copied.originals)):
            return self.function(*args, **kwargs)
        if copied is not None and self._entries.get(key) and not self.fullgraph:
            copied.watch_again()
            with stance.inside():
                return copied.called_as_it_is(self.function, args, kwargs)
        if not self._wanted(key) or self._is_refused_for_certain(key):
            with stance.inside():
                return self.function(*args, **kwargs)
        with _capturing, self._lock, stance.inside():
            if copied is not None:
                return self._capture_copies(copied)
            return self._capture(key, tensors, args, kwargs)

    def _candidates(self, key: Any, tensors: list[Any]) -> Iterator[tuple[Kept, list[Any]]]:
        """The captured calls that one with this key may be replayed by, and the tensors that their replays take."""
        for entry in self._entries.get(key, ()):
            given: Any = tensors
            if entry.slots is not None:
                given = entry.slots.read(tensors)
                if given is None or (entry.shares(given) and not entry.shares(tensors)):
                    continue
            yield entry, given
        if self._templates:
            yield from self._templates.find(key, tensors)

    def _capture_copies(self, copied: Copied) -> Any:
        """Capture a call on copies of the views among its arguments."""
        try:
            result = self._capture(copied.key, copied.tensors, copied.args, copied.kwargs, copied)
        except BaseException:
            copied.kept()
            raise
        clean = copied.captured(result, self._ran)
        if copied.kept() or not clean:
            self._entries.pop(copied.key, None)
            self._templates.forget(copied.key)
            if self.fullgraph:
                raise self._unsupported(self._located(
                    "it returns or keeps an argument that is a view of other memory, or asks how it lies there"))
        return result

    def _plainly(self, reason: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call the function as it is, and note why."""
        if self.fullgraph:
            raise self._unsupported(self._located(reason))
        self._notes[reason] = None  # its line is looked for when somebody asks
        with stance.inside():
            return self.function(*args, **kwargs)

    def _stands_back(self, key: Any, args: tuple, kwargs: dict[str, Any], views: Sequence[Any] = ()) -> bool:
        """Whether the stance has the function run as it is, as nothing is replayed for this call.

        Raises:
            RuntimeError: the stance is "fail_on_recompile", and the call would be captured.
        """
        def difference() -> str:
            found = self._failed_guard(key) or self._other_call(CallShape(self.function, args, kwargs, views))
            return str(found[0]) if found else "no call was captured before"
        stance.check_capture(self.__name__, self._attempts.are_refused(key), difference)
        return stance.stands_back(self._calls)

    def _wanted(self, key: Any) -> bool:
        """Whether a call that nothing is replayed for is captured."""
        known = self._entries.get(key)
        return self.fullgraph or self._attempts.wanted(
            key, self.hits, lambda: known and known[0].slots and known[0].slots.state())

    def _is_refused_for_certain(self, key: Any) -> bool:
        """Whether the function's code alone says that a capture of the call comes to nothing; notes why."""
        reason = None if self.fullgraph else certain_refusal(self.function)
        if reason is None:
            return False
        self._attempts.refused(key, reason, False, reached_again=True)
        return True

    def _unsupported(self, reason: str) -> Exception:
        return failure("compile", f"{self.__name__} cannot be captured as a whole: {reason}",
                       hint="change that line, or leave out fullgraph=True, which records such calls one by one")

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction:
        """A compiled function of its own, without captures; of a plain function, which copies share, the same one."""
        function = copy.deepcopy(self.function, memo)
        return self if function is self.function else type(self)(function, self.fullgraph)

    def __reduce__(self) -> Any:
        """Pickle the function by its name, as functions are, or as the compiled form of what the name finds."""
        found: Any = sys.modules.get(self.__module__)
        name: str = getattr(self, "__qualname__", self.__name__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (type(self), (self.function, self.fullgraph))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def explain(self, around: Callable[..., Any] | None = None) -> Explanation:
        """A text that says what is replayed, what is captured again or recorded at each call, and why.

        Args:
            around: what calls it, a module or a method: the explanation, called, calls that.
        """
        kept = [entry for entries in self._entries.values() for entry in entries]
        head = f"{self.__name__}: {len(kept)} captures, {self.hits} replays"
        if self._templates:
            ways = self._templates.count
            head += f"; other sizes and numbers are replayed in {ways} way{'s' * (ways > 1)}"
        recorded = [self._located(x) for x in (*self._notes, *self._attempts.reasons())]
        single = dict.fromkeys(x for entry in kept if entry.slots is not None for x in entry.slots.reasons)
        single.update(dict.fromkeys(f"each size or number that changes, as {x}" for x in self._templates.refusals()))
        return Explanation(head, len(kept), self.hits, self._recaptures, dict.fromkeys(recorded), single,
                           functools.partial(self.explain_call, around or self))

    def explain_call(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
        """Call this, which is the function or calls it, and explain it afterwards."""
        call(*args, **kwargs)
        return self.explain(None if call is self else call)

    def _capture(self, key: Any, tensors: list[Any], args: tuple, kwargs: dict[str, Any],
                 copied: Copied | None = None) -> Any:
        """Call the function, and keep what can be replayed of it."""
        roots = [self.function, *(part.value for part in key if isinstance(part, Held)),
                 *(held.value for _, held in patches.replaced)]
        again = self._failed_guard(key)
        before = self._templates.latest(key)
        numbers = [] if before is None else changed_numbers(before.guards, before.slots)
        self._gradients_move = self._gradients_move or any(
            not entry.replay.finds_gradients for entry in (*self._entries.get(key, ()), before) if entry is not None)
        capture = CallCapture(roots, self._ran, key, tensors, args, kwargs, copied, numbers, self._gradients_move)
        try:
            result = capture.run(self.function)
            self._ran = capture.globals
            self._keep_capture(key, capture, result, again, () if copied is None else copied.originals)
            return capture.settle(result)
        except BaseException:
            capture.undo()
            raise

    def _keep_capture(self, key: Any, capture: CallCapture, result: Any, again: list[Recapture],
                      views: Sequence[Any]) -> None:
        """Keep what can be replayed of a call that gave this result; `again` says why earlier captures did not fit, and
        `views` are those of its arguments of which it was given copies."""
        try:
            kept = capture.kept(result)
            shape = CallShape(self.function, capture.args, capture.kwargs, views)
            self._recaptures += again or self._other_call(shape)
            self._latest = shape
            self._keep(key, kept)
            self._templates.captured(key, capture, kept, self.function)
        except NotReplayable as refusal:
            reason = self._located(str(refusal))
            settled = self._attempts.refused(key, reason, isinstance(refusal, Unsettled),
                                             capture.reached_again or isinstance(refusal, Opaque))
            capture.refused()
            if self.fullgraph and settled:
                capture.settle(result)
                raise self._unsupported(reason) from None

    def _failed_guard(self, key: Any) -> list[Recapture]:
        """What keeps the newest capture of such calls from being replayed."""
        entry = next(iter(self._entries.get(key, ())), None)
        if entry is None:
            return []
        slots, checks = entry.slots, entry.guards.checks
        change = (None if slots is None else slots.change()) or next(checks.changes(), None)
        if change is not None:
            return [Recapture(change.name, *two_texts(change.before, change.now))]
        if checks.over:
            return [Recapture("memory that it reads a value of", "as captured", "written to")]
        return [Recapture("a gradient, a cache or a count that it reads", "as captured", "changed")]

    def _other_call(self, shape: CallShape) -> list[Recapture]:
        """What the call has otherwise than the last one that was captured."""
        return [] if self._latest is None else [self._latest.difference(shape)]

    def _located(self, reason: str) -> str:
        """The reason with a line: the one that it names, or the function's first."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return reason if " at " in reason or code is None else f"{reason} at {Source(code, 0)}"

    def _keep(self, key: Any, entry: Kept) -> None:
        self._attempts.kept(key)
        kept = self._entries.setdefault(key, [])
        kept[:] = [entry, *(each for each in kept if not each.guards.checks.over)][:_VARIANTS]
        while len(self._entries) > _SIGNATURES:
            del self._entries[next(iter(self._entries))]


class EagerFunction(CompiledFunction):
    """A function of the backend "eager": a call is one of a compiled function, and is recorded."""

    def reset(self) -> None:
        """Forget what was noted."""
        super().reset()
        self._notes["backend='eager' captures no call"] = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if stance.unusual and stance.disabled():
            return self.function(*args, **kwargs)
        with stance.inside():
            return self.function(*args, **kwargs)


def reset() -> None:
    """Forget what was captured of all compiled functions: the next call of each is captured anew.

    >>> import genesis
    >>> genesis.compiler.reset()
    """
    for each in list(_made):
        with each._lock:
            each.reset()


__all__ = ["CompiledFunction", "EagerFunction", "reset"]
