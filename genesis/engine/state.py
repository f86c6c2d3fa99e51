"""All that the engine remembers from one flush to the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from genesis.frontend.state import lock

if TYPE_CHECKING:
    from genesis.engine.compilation import Compiled
    from genesis.engine.preparation import Flush
    from genesis.engine.saved_values import Usage
    from genesis.frontend.threads import Job
    from genesis.ir.types import Device

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MOST_PROGRAMS: Final = 4096
"""Programs of which something is remembered. A training run has dozens; one whose sizes never come again, as many as
it has steps, and would fill the memory. A plan on the CPU takes about 10 kB, one on a GPU its kernels' code."""

MOST_TEMPLATES: Final = 512
"""Programs apart from their sizes: far fewer, and larger, as each keeps its graph."""


class Cache(dict[Key, Value]):
    """A dictionary of at most `most` entries: when it is full, the oldest quarter goes.

    >>> squares = Cache(4)
    >>> for i in range(5):
    ...     _ = squares.add(i, i * i)
    >>> squares
    {1: 1, 2: 4, 3: 9, 4: 16}
    """

    __slots__ = ("most",)

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def add(self, key: Key, value: Value) -> Value:
        """Remember a value; returns it."""
        if len(self) >= self.most:
            for old in list(islice(self, max(1, self.most // 4))):
                del self[old]
        self[key] = value
        return value


class Plans:
    """The plans that this process has, by what asks for them.

    Attributes:
        programs: (device, settings, key of a captured program) → its plan.
        reads: (settings, key of a short read) → the plan that the first such read got as a program.
        templates: (device, its model, settings, key without sizes) → what plans of other sizes are made from:
            templates, and notes of plans that were read from disk (`plans.py`).
    """

    __slots__ = ("programs", "reads", "templates")

    def __init__(self) -> None:
        self.programs: Cache[tuple, Compiled] = Cache(MOST_PROGRAMS)
        self.reads: Cache[tuple, Compiled] = Cache(MOST_PROGRAMS)
        self.templates: Cache[tuple, list[Any]] = Cache(MOST_TEMPLATES)


class Execution:
    """The program that a thread runs with the lock held, for those who interrupt it (`interruption.py`).

    Attributes:
        device: where it runs.
        overwrites: memory that others see, or its backend can be interrupted by nothing.
        flush: the program, None where what runs tells the storages itself.
        job: runs it, if that is a thread of its own.
    """

    __slots__ = ("device", "flush", "job", "overwrites")

    def __init__(self, device: Device, overwrites: bool, flush: Flush | None = None):
        self.device, self.overwrites, self.flush = device, overwrites, flush
        self.job: Job | None = None


class EngineState:
    """All that the engine remembers. It is read and written with the lock held.

    Attributes:
        plans: the plans there are.
        usages: key of a captured program → what became of the values that its last run saved for a backward.
        last: the plan that ran last.
        observers: are told of every plan that is made.
        ran: how many programs have run.
        asker: the thread that asked for what is being computed, 0 for none.
        executing: what runs; not None where a signal handler or a finalizer looks that interrupts it.
    """

    __slots__ = ("asker", "executing", "last", "observers", "plans", "ran", "usages")

    def __init__(self) -> None:
        self.plans = Plans()
        self.usages: Cache[tuple, Usage] = Cache(MOST_PROGRAMS)
        self.last: Compiled | None = None
        self.observers: list[Callable[[Compiled], None]] = []
        self.ran = 0
        self.asker = 0
        self.executing: Execution | None = None


engine_state: Final = EngineState()
"""The process's one engine."""


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
