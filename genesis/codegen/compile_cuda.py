"""Kernel sources → binaries, each compiled once, in parallel in worker processes.

A worker is `python -m genesis.codegen.worker`: a process of our own that reads and writes JSON lines. It is
neither forked nor spawned by multiprocessing, because a user's script may have no `__main__` guard and its
process holds a CUDA context. Workers stay for the next compilation and end with this process.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from genesis.codegen.source import KernelSource
from genesis.codegen.worker import ARCHITECTURE, ENABLE_FP_FUSION
from genesis.runtime.plan import KernelImage

FORMAT: Final = 2
"""Part of every key; raised when the same source would compile to something else."""

MOST_WORKERS: Final = 16


class Cache(Protocol):
    """What `runtime.kernel_cache.KernelCache` is."""

    def get(self, key: str) -> Any:
        """An entry with `cubin` and `meta`, or None."""

    def put(self, key: str, cubin: bytes, meta: dict[str, Any]) -> bool:
        """Write an entry; whether that worked."""

    def name(self, key: str) -> str:
        """What the entry of a key is called."""


class CompilationFailed(RuntimeError):
    """Triton refused a kernel: a defect of Genesis, shown with the kernel's text."""


def compile_sources(sources: Sequence[KernelSource], store: Cache | None = None,
                    architecture: int = ARCHITECTURE) -> list[KernelImage]:
    """An image for each source, in order; equal sources share one.

    Args:
        store: binaries of earlier processes, looked up before Triton is imported anywhere.
        architecture: compute capability, 90 for 9.0.

    Raises:
        CompilationFailed: with Triton's message and the text of the kernel.
    """
    keys = [key_of(source, architecture) for source in sources]
    wanted = dict(zip(keys, sources, strict=True))
    found: dict[str, dict[str, Any]] = {}
    for key in wanted:
        entry = store.get(key) if store is not None else None
        if entry is not None:
            found[key] = {"cubin": entry.cubin, **entry.meta, "entry": store.name(key)}  # type: ignore[union-attr]
    missing = {key: source for key, source in wanted.items() if key not in found}
    for (key, source), answer in zip(missing.items(), _compile(missing.values(), architecture), strict=True):
        if "error" in answer:
            raise CompilationFailed(f"{source.name} does not compile\n{answer['error']}\n{source.source}")
        found[key] = {**answer, "cubin": base64.b64decode(answer["cubin"])}
        if store is not None:
            meta = {name: answer[name] for name in ("name", "num_warps", "shared_bytes")}
            if store.put(key, found[key]["cubin"], {**meta, "source": text_of(source)}):
                found[key]["entry"] = store.name(key)
    return [_image(found[key], wanted[key]) for key in keys]


def key_of(source: KernelSource, architecture: int = ARCHITECTURE) -> str:
    """All that a binary depends on, as text."""
    return json.dumps({**source.key_parts(), "architecture": architecture, "fp_fusion": ENABLE_FP_FUSION,
                       "triton": version("triton"), "format": FORMAT})


def _image(found: dict[str, Any], source: KernelSource) -> KernelImage:
    return KernelImage(found["name"], found["cubin"], found["num_warps"], found["shared_bytes"], text_of(source),
                       found.get("entry", ""))


def text_of(source: KernelSource) -> str:
    """A kernel's text and the values of its constants, for people and for the host driver."""
    return f"{source.source}\n\nCONSTEXPRS = {source.constexprs!r}\n"


def _compile(sources: Iterable[KernelSource], architecture: int) -> list[dict[str, Any]]:
    """The workers' answers, in order."""
    requests = [{"id": number, "architecture": architecture, **source.key_parts()}
                for number, source in enumerate(sources)]
    if not requests:
        return []
    pool = _workers()
    count = min(len(requests), pool.most)
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(pool.ask, requests))


class _Workers:
    """Processes that wait for kernels; started when first needed."""

    def __init__(self, most: int):
        self.most = most
        self._idle: SimpleQueue[subprocess.Popen] = SimpleQueue()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One kernel's answer, from an idle worker or a new one."""
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = self._start()
        assert worker.stdin is not None and worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
        except OSError:
            line = ""
        if not line:
            worker.kill()
            return {"error": f"the compile worker ended with status {worker.wait()}"}
        self._idle.put(worker)
        return json.loads(line)

    def _start(self) -> subprocess.Popen:
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
        return subprocess.Popen([sys.executable, "-m", "genesis.codegen.worker"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, env=environment)

    def close(self) -> None:
        """End the idle workers."""
        while not self._idle.empty():
            worker = self._idle.get()
            assert worker.stdin is not None
            worker.stdin.close()
            worker.wait()


@cache
def _workers() -> _Workers:
    pool = _Workers(min(os.cpu_count() or 1, MOST_WORKERS))
    atexit.register(pool.close)
    return pool
