"""Where a program's time and memory go: kernels beside what the machine could do, lines, passes of the compiler.

In goes a running program, out come a table, a trace that Perfetto shows, and rows for scripts, with torch's interface.

    hooks ─ what executors, passes and allocations tell ─▶ Recorder ─▶ costs ─▶ averages ─▶ table, trace

Nothing is paid while no profile is on: then the functions that tell are not in the program's way (`hooks`).
"""

from genesis.ir.suggest import suggesting
from genesis.profiler.profile import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from genesis.profiler.recorder import record_function

__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "supported_activities",
           "tensorboard_trace_handler"]

__getattr__ = suggesting(__name__)
