"""What a profile collects while it is on."""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from genesis.ir.source import here
from genesis.profiler.events import Event
from genesis.runtime.own_threads import OwnThread

F = TypeVar("F", bound=Callable[..., Any])

UNKNOWN: Final = "(no line is known)"
SCRATCH: Final = "(scratch memory of plans)"

now: Final = time.perf_counter_ns


@dataclass
class Kernel(Event):
    """One run of a kernel: of a call of the CPU's, of a launch or copy of a GPU's.

    Attributes:
        name: the op or the kernel.
        line: the user's, "" if it is not known.
        start, duration: in nanoseconds of the host's clock.
        bytes: read and written, as its operands and results are large.
        flops: floating-point operations.
        device: that it ran on.
    """

    name: str
    line: str
    start: int
    duration: int
    bytes: int
    flops: int
    device: str


@dataclass(frozen=True)
class Span(Event):
    """What the host did meanwhile: a `record_function`, a step, a plan's run, a compilation or one of its passes."""

    kind: str
    name: str
    start: int
    duration: int
    thread: int
    device: ClassVar[str] = ""  # type: ignore[misc]


@dataclass
class Memory:
    """Bytes that are held, on one kind of device.

    Attributes:
        timeline: (nanoseconds, bytes) at each change.
        peak: the most of them.
        at_peak: the user's line → bytes that it held then.
    """

    held: int = 0
    timeline: list[tuple[int, int]] = field(default_factory=list)
    peak: int = 0
    at_peak: Counter[str] = field(default_factory=Counter)
    by_line: Counter[str] = field(default_factory=Counter)

    def change(self, line: str, nbytes: int) -> None:
        """Note that a line holds so many bytes more, or less."""
        self.held += nbytes
        self.by_line[line] += nbytes
        self.timeline.append((now(), self.held))
        if self.held > self.peak:
            self.peak, self.at_peak = self.held, Counter(self.by_line)


class Recorder:
    """The collection of one profile, or of one cycle of its schedule.

    Attributes:
        kernels, spans: in the order in which they ended.
        memory: device type → what is held.
        lines: user's line → nanoseconds that the host was seen there.
        pending: functions that add what is known only later; each is called once.
    """

    active: ClassVar[Recorder | None] = None

    def __init__(self, memory: bool, lines: bool):
        self.kernels: list[Kernel] = []
        self.spans: list[Span] = []
        self.memory: dict[str, Memory] = {}
        self.lines: Counter[str] = Counter()
        self.pending: list[Callable[[], None]] = []
        self.start, self.end = now(), 0
        self.wants_memory, self.wants_lines = memory, lines
        self._scratch: dict[str, int] = {}

    def span(self, kind: str, name: str, start: int) -> None:
        """Note what began then and ends now."""
        self.spans.append(Span(kind, name, start, now() - start, threading.get_ident()))

    def holds(self, memory: Any, nbytes: int, device: str, line: str | None = None) -> None:
        """Note memory that is held until the object dies."""
        if not self.wants_memory or not nbytes:
            return
        line = line or user_line()
        found = self.memory.setdefault(device, Memory())
        found.change(line, nbytes)
        weakref.finalize(memory, found.change, line, -nbytes).atexit = False

    def scratch(self, device: str, nbytes: int) -> None:
        """Note the size of the memory that plans share."""
        if self.wants_memory and nbytes != self._scratch.get(device, 0):
            self.memory.setdefault(device, Memory()).change(SCRATCH, nbytes - self._scratch.get(device, 0))
            self._scratch[device] = nbytes

    def finish(self) -> None:
        """Add what is known only now. Waits for GPUs."""
        while self.pending:
            self.pending.pop(0)()
        self.end = self.end or now()


def user_line() -> str:
    """The user's line that runs now."""
    found = here()
    return UNKNOWN if found is None else str(found)


class record_function:
    """A part of a program with a name: a context, or a decorator. Without a profile it does nothing.

    >>> with record_function("loading"):
    ...     pass
    >>> @record_function("forward")
    ... def forward(x):
    ...     return x
    >>> forward(3)
    3
    """

    def __init__(self, name: str, args: str | None = None):
        self.name = name if args is None else f"{name} {args}"
        self._starts: list[int] = []

    def __enter__(self) -> record_function:
        self._starts.append(now())
        return self

    def __exit__(self, *_: object) -> None:
        start = self._starts.pop()
        if Recorder.active is not None:
            Recorder.active.span("user", self.name, start)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> Any:
            with record_function(self.name):
                return function(*args, **options)
        return called  # type: ignore[return-value]


class Sampler:
    """Looks every millisecond which of the user's lines a thread is at, and adds the time since the last look to it.

    Time inside of Genesis counts for the line that called it: recording, compiling, launching and waiting.
    """

    INTERVAL: Final = 0.001

    def __init__(self, recorder: Recorder, thread: int):
        self._recorder, self._thread = recorder, thread
        self._over = threading.Event()
        self._looker = OwnThread(target=self._look, name="genesis-profiler", daemon=True)

    def start(self) -> None:
        self._looker.start()

    def stop(self) -> None:
        """End; at once."""
        self._over.set()
        self._looker.join()

    def _look(self) -> None:
        last = now()
        while not self._over.wait(self.INTERVAL):
            frame = sys._current_frames().get(self._thread)
            time_now = now()
            if frame is not None:
                self._recorder.lines[line_of_frame(frame)] += time_now - last
            last = time_now


def line_of_frame(frame: Any) -> str:
    """The innermost line of the user's in a stack. Lines of installed packages and of Python's own count as the user's
    where there are no others."""
    from genesis.ir.source import Source, is_internal
    library = None
    while frame is not None:
        code = frame.f_code
        if not is_internal(code.co_filename):
            source = Source(code, max(frame.f_lasti, 0))
            if not _is_library(code.co_filename) and not _is_generated(frame):
                return str(source)
            library = library or source
        frame = frame.f_back
    return UNKNOWN if library is None else str(library)


def _is_generated(frame: Any) -> bool:
    """Whether the code is no line of a file: a dataclass's `__init__`, say. What `python -c` runs is the user's."""
    return frame.f_code.co_filename.startswith("<") and frame.f_globals.get("__name__") != "__main__"


def _is_library(filename: str) -> bool:
    return "site-packages" in filename or filename.startswith(("<frozen", sys.base_prefix))
