"""`profile`: torch's interface to a recorder, with a schedule of when it is on."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from genesis.ir.errors import failure
from genesis.profiler.averages import Averages, averages_of
from genesis.profiler.events import Events
from genesis.profiler.hooks import Hooks
from genesis.profiler.recorder import UNKNOWN, Kernel, Recorder, Sampler, Span, now
from genesis.profiler.trace import write_trace

if TYPE_CHECKING:
    from genesis.profiler.ranks import RankRow


class ProfilerActivity(Enum):
    """What is told of: runs of kernels on the host, and on GPUs."""

    CPU = 0
    CUDA = 1


class ProfilerAction(Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The activities that this machine has."""
    from genesis import cuda
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_available() else [])}


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """What a profile does at each step: after `skip_first` steps, cycles of `wait` steps without, `warmup` steps that
    are forgotten and `active` ones that are told of; `repeat` cycles, or for ever. With `skip_first_wait` the first
    cycle begins with its warmup.

    Raises:
        ValueError: a number is negative, or `active` is not positive.

    >>> when = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [when(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError(f"schedule: wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, "
                         f"skip_first={skip_first}: none may be negative, and active must be positive")
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        number, at = divmod(step - skip_first + (wait if skip_first_wait else 0), cycle)
        if (repeat and number >= repeat) or at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE
    return action


STACK_METRICS: Final = ("self_cpu_time_total", "self_device_time_total", "self_cuda_time_total")
"""What `export_stacks` tells."""


class profile:
    """Where the time of what runs inside goes. A context; or `start()` and `stop()`.

    Args:
        activities: `ProfilerActivity.CPU`, `.CUDA`; all that the machine has by default.
        schedule: a function from a step's number to a `ProfilerAction`; steps are counted by `step()`. Without, all is
            told of.
        on_trace_ready: is called with the profile when a cycle of the schedule ends, or the profile.
        record_shapes, with_flops, with_modules: taken for torch's sake: bytes and operations are always there.
        profile_memory: follow what is held, and which lines hold the peak.
        with_stack: look every millisecond at which of the user's lines the host is.

    Raises:
        RuntimeError: another profile is on.

    >>> import genesis
    >>> x = genesis.ones(64, 64)
    >>> with profile() as p:
    ...     y = (x @ x).sum().item()
    >>> "matmul" in p.key_averages().table()
    True
    """

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None,
                 schedule: Callable[[int], ProfilerAction] | None = None,
                 on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False):
        self.activities = set(activities) if activities is not None else supported_activities()
        if not self.activities or not all(isinstance(x, ProfilerActivity) for x in self.activities):
            raise ValueError(f"profile: activities={activities!r} are no activities; ProfilerActivity.CPU or .CUDA")
        self._schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready, self.profile_memory, self.with_stack = on_trace_ready, profile_memory, with_stack
        self.step_num = 0
        self._metadata: dict[str, Any] = {}
        self._action = ProfilerAction.NONE
        self._recorder: Recorder | None = None
        self._hooks: Hooks | None = None
        self._sampler: Sampler | None = None
        self._step_began = 0
        self._running = False

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, at step 0."""
        if Recorder.active is not None or self._running:
            raise failure("profile", "another profile is on", hint="leave it first, or stop() it")
        self._running = True
        self._enter(self._schedule(0))

    def stop(self) -> None:
        """End; what was recorded is told."""
        if not self._running:
            return
        self._running = False
        recording = self._action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        self._leave()
        if recording and self.on_trace_ready is not None:
            self.on_trace_ready(self)
        self._action = ProfilerAction.NONE

    def step(self) -> None:
        """The next step begins."""
        if not self._running:
            raise failure("profile.step", "the profile is not on", hint="call it inside of the context")
        if self._recorder is not None and self._action is not ProfilerAction.WARMUP:
            self._recorder.span("step", f"ProfilerStep#{self.step_num}", self._step_began)
        self.step_num += 1
        before, after = self._action, self._schedule(self.step_num)
        self._step_began = now()
        if before is ProfilerAction.RECORD_AND_SAVE or (before is not after and after is not
                                                        ProfilerAction.RECORD_AND_SAVE):
            self._leave()
            if before is ProfilerAction.RECORD_AND_SAVE and self.on_trace_ready is not None:
                self.on_trace_ready(self)
            self._enter(after)
        self._action = after

    def _enter(self, action: ProfilerAction) -> None:
        self._action, self._step_began = action, now()
        if action is ProfilerAction.NONE:
            return
        self._recorder = Recorder(self.profile_memory, self.with_stack)
        self._hooks = Hooks(self._recorder, ProfilerActivity.CPU in self.activities,
                            ProfilerActivity.CUDA in self.activities)
        self._hooks.install()
        Recorder.active = self._recorder
        if self.with_stack:
            self._sampler = Sampler(self._recorder, threading.get_ident())
            self._sampler.start()

    def _leave(self) -> None:
        """Stop to record; what is there stays to be asked for."""
        if self._hooks is None or self._recorder is None or Recorder.active is not self._recorder:
            return
        Recorder.active = None
        self._recorder.end = now()
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None
        self._hooks.remove()
        self._recorder.finish()

    # What was recorded

    def _recorded(self) -> tuple[Recorder, Hooks]:
        if self._recorder is None or self._hooks is None:
            raise failure("profile", "nothing was recorded yet", hint="run something inside of the context first")
        self._recorder.finish()
        return self._recorder, self._hooks

    def events(self) -> Events:
        """All that was recorded, in the order in which it began."""
        recorder, _ = self._recorded()
        return Events(sorted([*recorder.kernels, *recorder.spans], key=lambda event: event.start), self.key_averages)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> Averages:
        """A row for each kernel: calls, times, bytes, operations, share, and the fraction of the roofline.

        Args:
            group_by_input_shape, group_by_overload_name: taken for torch's sake.
            group_by_stack_n: more than 0 tells kernels of different lines apart.
        """
        recorder, hooks = self._recorded()
        return averages_of(recorder, hooks.products, by_line=group_by_stack_n > 0)

    def print_stats(self, sort_by: str = "device_time_total", row_limit: int = 40) -> None:
        """Print the report: kernels, lines, compilation, memory."""
        print(self.report(sort_by, row_limit))

    def report(self, sort_by: str = "device_time_total", row_limit: int = 40) -> str:
        """Kernels, and as far as they were asked for the lines, the passes of the compiler, and what held the peak."""
        from genesis.profiler.report import report
        recorder, _ = self._recorded()
        return report(recorder, self.key_averages(group_by_stack_n=1), sort_by, row_limit)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write the time of each kernel under the user's line that it comes from, as tools for flame graphs read it:
        `line;kernel microseconds`.

        Args:
            path: the file.
            metric: "self_cpu_time_total", "self_device_time_total" or "self_cuda_time_total".

        Raises:
            ValueError: there is no such metric.
        """
        if metric not in STACK_METRICS:
            raise ValueError(f"export_stacks: metric={metric!r} is none of {', '.join(STACK_METRICS)}")
        recorder, hooks = self._recorded()
        rows = [row for row in averages_of(recorder, hooks.products, by_line=True) if row.device]
        Path(path).write_text("".join(
            f"{row.line.replace(';', ',') or UNKNOWN};{row.key} {time}\n" for row in rows
            if (time := round(getattr(row, metric)))), encoding="utf-8")

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that Perfetto and chrome://tracing show; packed, where the name ends with .gz."""
        recorder, _ = self._recorded()
        write_trace(recorder, Path(path), self._metadata)

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text beside the events of the traces that are written."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put the value of a JSON text beside the events of the traces that are written.

        Raises:
            ValueError: it is no JSON.
        """
        self._metadata[key] = json.loads(value)

    def rank_rows(self, process_group: Any = None) -> list[RankRow]:
        """What each rank did: its time, that of its kernels, that of its collectives with waiting; all ranks call this.

        Args:
            process_group: the ranks; None for all of the run.

        Raises:
            ValueError: there is no run.
        """
        from genesis import distributed as dist
        from genesis.profiler.ranks import gathered, row_of
        recorder, _ = self._recorded()
        return gathered(row_of(recorder, dist.get_rank()), process_group)

    def rank_table(self, process_group: Any = None) -> str:
        """`rank_rows` as text, a row a rank; all ranks call this."""
        from genesis.profiler.ranks import table
        return table(self.rank_rows(process_group))

    @property
    def memory_timeline(self) -> dict[str, list[tuple[float, int]]]:
        """Device → (seconds since the start, bytes that are held), with `profile_memory=True`."""
        recorder, _ = self._recorded()
        return {device: [((at - recorder.start) / 1e9, held) for at, held in memory.timeline]
                for device, memory in recorder.memory.items()}


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable[
        [profile], None]:
    """What `on_trace_ready` takes to write a file for each cycle, named as TensorBoard's plugin expects."""
    def handle(finished: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        finished.export_chrome_trace(folder / f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}")
    return handle


__all__ = ["Kernel", "ProfilerAction", "ProfilerActivity", "Span", "profile", "schedule", "supported_activities",
           "tensorboard_trace_handler"]
