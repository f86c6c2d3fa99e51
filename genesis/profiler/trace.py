"""A trace in Chrome's format, which Perfetto reads: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genesis.profiler.recorder import Recorder


def write_trace(recorder: Recorder, path: Path, metadata: Mapping[str, Any]) -> None:
    """Write what was recorded to a file, packed where its name ends with .gz; and what was told beside it."""
    text = json.dumps({**metadata, "schemaVersion": 1, "displayTimeUnit": "ms",
                       "traceEvents": events_of(recorder)}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def _process_name() -> str:
    """Traces of ranks that are put together have a row for each."""
    from genesis import distributed as dist
    return f"genesis, rank {dist.get_rank()}" if dist.is_initialized() and dist.get_world_size() > 1 else "genesis"


def events_of(recorder: Recorder) -> list[dict[str, Any]]:
    """The events: the host's spans by thread, kernels by device, and counters of held memory. Times in microseconds."""
    process, devices = os.getpid(), sorted({kernel.device for kernel in recorder.kernels})
    rows = {device: 1_000_000 + at for at, device in enumerate(devices)}

    def at(nanoseconds: int) -> float:
        return (nanoseconds - recorder.start) / 1e3
    found: list[dict[str, Any]] = [{"ph": "M", "pid": process, "tid": 0, "name": "process_name",
                                    "args": {"name": _process_name()}}]
    found += [{"ph": "M", "pid": process, "tid": row, "name": "thread_name", "args": {"name": f"kernels on {device}"}}
              for device, row in rows.items()]
    found += [{"ph": "X", "pid": process, "tid": span.thread % 1_000_000, "cat": span.kind, "name": span.name,
               "ts": at(span.start), "dur": span.duration / 1e3} for span in recorder.spans]
    found += [{"ph": "X", "pid": process, "tid": rows[kernel.device], "cat": "kernel", "name": kernel.name,
               "ts": at(kernel.start), "dur": kernel.duration / 1e3,
               "args": {"line": kernel.line, "bytes": kernel.bytes, "flops": kernel.flops}}
              for kernel in recorder.kernels]
    found += [{"ph": "C", "pid": process, "name": f"memory on {device}", "ts": at(when), "args": {"bytes": held}}
              for device, memory in recorder.memory.items() for when, held in memory.timeline]
    return found
