"""All that the engine remembers from one flush to the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from operator import length_hint
from types import CodeType
from typing import TYPE_CHECKING, Final, TypeVar

from genesis.engine.cuts import Cuts
from genesis.frontend.state import lock
from genesis.ir.memos import MEMOS, MemoFigures
from genesis.ir.numbers import set_numbers_apart

if TYPE_CHECKING:
    from genesis.codegen.base import Memory
    from genesis.engine.compilation import Compiled
    from genesis.engine.moving_places import Places
    from genesis.engine.preparation import Flush
    from genesis.engine.saved_values import Usage
    from genesis.engine.short_read import Read
    from genesis.engine.situations import Answer
    from genesis.engine.symbolic.shape_erased import ShapeErased
    from genesis.frontend.at_once import Change
    from genesis.ir.types import Device

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MOST_PROGRAMS: Final = 4096
"""Programs of which something is remembered. A training run has dozens; one whose sizes never come again, as many as
it has steps, and would fill the memory. A plan on the CPU takes about 10 kB, one on a GPU its kernels' code."""

MOST_SHAPE_ERASED: Final = 512
"""Programs apart from their sizes: far fewer, and larger, as each keeps its graph."""


MOST_PLAN_BYTES: Final = 512 << 20
"""Bytes that plans may take, about, their programs included."""

STEP_BYTES: Final = 2600
"""Bytes of a plan for each step, with what is kept of its program and the passes (tracemalloc, 2026-11: 2.2 MB for 901
steps, 47 kB for 16); a kernel's code comes on top."""


def plan_bytes(compiled: Compiled) -> int:
    """The bytes that a plan takes, about."""
    steps = compiled.plan.steps
    kernels = {id(kernel): len(kernel.cubin) + len(kernel.source)
               for step in steps if (kernel := getattr(step, "kernel", None)) is not None}
    return STEP_BYTES * (len(steps) + 4) + sum(kernels.values())


class Cache(dict[Key, Value]):
    """A dictionary of at most `most` entries: when it is full, the oldest quarter goes.

    Args:
        most_bytes: about how much memory the values may take; when it is more, the oldest go, but never the latest.
        size_of: about how much one takes.

    >>> squares = Cache(4)
    >>> for i in range(5):
    ...     _ = squares.add(i, i * i)
    >>> squares
    {1: 1, 2: 4, 3: 9, 4: 16}
    """

    __slots__ = ("_size_of", "_sizes", "most", "most_bytes", "nbytes")

    def __init__(self, most: int, most_bytes: int = 0, size_of: Callable[[Value], int] | None = None):
        super().__init__()
        self.most, self.most_bytes, self._size_of = most, most_bytes, size_of
        self._sizes: dict[Key, int] = {}
        self.nbytes = 0

    def add(self, key: Key, value: Value) -> Value:
        """Remember a value; returns it."""
        if len(self) >= self.most:
            for old in list(islice(self, max(1, self.most // 4))):
                self._forget(old)
        if self._size_of is not None:
            self._sizes[key] = size = self._size_of(value)
            self.nbytes += size
            if self.nbytes > self.most_bytes:
                for old in list(self):
                    if self.nbytes <= self.most_bytes * 3 // 4:
                        break
                    self._forget(old)
        self[key] = value
        return value

    def _forget(self, key: Key) -> None:
        del self[key]
        self.nbytes -= self._sizes.pop(key, 0)


MOST_PLACES_BYTES: Final = 32 << 20
"""Bytes that the keys of programs apart from their places may take (`moving_places.py`)."""

MOST_SITUATION_BYTES: Final = 32 << 20
"""Bytes that situations may take, roughly."""


def answer_bytes(answer: Answer) -> int:
    """The bytes of a situation and its answer, roughly: a key beside the plan's, and marks of who is alive."""
    return sum(24 * len(way.key) for way, _ in answer.ways.values()) + 1000


READ_BYTES: Final = 4000
"""Bytes of a short read: its key, of a few ops. The plan is among the programs'."""


class Plans:
    """The plans that this process has, by what asks for them.

    Attributes:
        programs: (device, settings, key of a captured program) → its plan.
        reads: (settings, key of a short read) → the plan that the first such read got as a program.
        shape_erased: (device, its model, settings, key without sizes) → what plans of other sizes are made from.
        places: key of a captured program without the places of its slices → which of these move.
        compiled: how many programs were compiled, rather than filled in or read from disk.
        situations: a program and who is alive → what a flush computes then (`situations.py`).
    """

    __slots__ = ("compiled", "places", "programs", "reads", "shape_erased", "situations")

    def __init__(self) -> None:
        self.compiled = 0
        self.programs: Cache[tuple, Compiled] = Cache(MOST_PROGRAMS, MOST_PLAN_BYTES, plan_bytes)
        self.reads: Cache[tuple, Read] = Cache(MOST_PROGRAMS, READ_BYTES * MOST_PROGRAMS, lambda _: READ_BYTES)
        self.shape_erased: Cache[tuple, ShapeErased] = Cache(MOST_SHAPE_ERASED)
        self.places: Cache[tuple, Places] = Cache(MOST_SHAPE_ERASED, MOST_PLACES_BYTES, lambda places: places.nbytes)
        self.situations: Cache[tuple, Answer] = Cache(MOST_PROGRAMS, MOST_SITUATION_BYTES, answer_bytes)


class Record:
    """The journal's one record: the program that a thread runs with the lock held, for those who interrupt it and for
    those who come after an exception has ended it (`interruption.py`).

    Attributes:
        home: the function that wrote it, and takes it away when it ends.
        device: where the program runs.
        flush: the program, None where storages are told of all at once.
        complete: runs what was begun to its end, None where that is pending work, which any flush does.
        exclusive: no other program can run before it is over.
        begun: the calls that overwrite memory, once they may be made; None where that is one call, or none.
    """

    __slots__ = ("begun", "complete", "device", "exclusive", "flush", "home")

    def __init__(self, home: CodeType, device: Device, flush: Flush | None = None,
                 complete: Callable[[], object] | None = None, exclusive: bool = False):
        self.home, self.device, self.flush, self.complete, self.exclusive = home, device, flush, complete, exclusive
        self.begun: Begun | None = None

    @property
    def half_done(self) -> bool:
        """Whether one of the calls that overwrite memory has failed, and nobody has looked at what that means."""
        return self.begun is not None and self.begun.made > 0


class Begun:
    """The calls of a run that overwrite memory, and how far they got.

    Args:
        compiled: the plan.
        memories: those that it runs over.
        calls: the calls (`Compiled.start`).
        told: what storages are told when these are made.
    """

    __slots__ = ("_calls", "_compiled", "_memories", "_told", "left")

    def __init__(self, compiled: Compiled, memories: Sequence[Memory], calls: Sequence[Callable[[], object]],
                 told: Sequence[Change]):
        self._compiled, self._memories, self._calls, self._told = compiled, memories, calls, told
        self.left = iter(calls)

    @property
    def made(self) -> int:
        """How many were made before the one that failed; -1 if none was tried."""
        return len(self._calls) - length_hint(self.left) - 1

    @property
    def as_over(self) -> list[Change] | None:
        """The changes by which the run counts as over, where one of the calls has failed behind others that had
        overwritten memory: its storages are told, and the executor owes the rest. None where nothing was overwritten.
        """
        owing = self._compiled.owing(self._memories, self._calls, self.made) if self.made > 0 else None
        return None if owing is None else [(owing,), *self._told]


class EngineState:
    """All that the engine remembers. It is read and written with the lock held.

    Attributes:
        plans: the plans there are.
        usages: key of a captured program → what became of the values that its last run saved for a backward.
        last: the plan that ran last.
        observers: are told of every plan that is made.
        ran: how many programs have run.
        record: what runs, or was ended by an exception; None between two programs.
        cuts: where a long program is cut (`limits.py`).
        sizes: reads of sizes since the last flush (`short_read.py`).
        looks: of Python's collector at the youngest generation, as it counted them when the last flush ended.
        looks_between: how many of these there were since the flush before.
    """

    __slots__ = ("cuts", "last", "looks", "looks_between", "observers", "plans", "ran", "record", "sizes", "usages")

    def __init__(self) -> None:
        self.plans = Plans()
        self.usages: Cache[tuple, Usage] = Cache(MOST_PROGRAMS)
        self.last: Compiled | None = None
        self.observers: list[Callable[[Compiled], None]] = []
        self.ran = 0
        self.record: Record | None = None
        self.cuts = Cuts()
        self.sizes = self.looks = self.looks_between = 0


engine_state: Final = EngineState()
"""The process's one engine."""

MEMOS["plans"] = lambda: MemoFigures(
    len(engine_state.plans.programs), engine_state.plans.programs.nbytes, MOST_PLAN_BYTES)
MEMOS["places of slices"] = lambda: MemoFigures(
    len(engine_state.plans.places), engine_state.plans.places.nbytes, MOST_PLACES_BYTES)
MEMOS["situations"] = lambda: MemoFigures(
    len(engine_state.plans.situations), engine_state.plans.situations.nbytes, MOST_SITUATION_BYTES)
MEMOS["short reads"] = lambda: MemoFigures(
    len(engine_state.plans.reads), engine_state.plans.reads.nbytes, READ_BYTES * MOST_PROGRAMS)


def reset() -> None:
    """Forget all plans and what was learned of programs, as a new process would know none.

    Tensors keep their contents, and what is recorded is still computed when it is read; plans on disk stay.

    >>> import genesis
    >>> from genesis import engine
    >>> x = genesis.ones(2) * 3
    >>> engine.reset()
    >>> x.tolist()
    [3.0, 3.0]
    """
    with lock:
        engine_state.plans = Plans()
        engine_state.usages.clear()
        engine_state.last = None
        engine_state.cuts = Cuts()
        set_numbers_apart(False)
