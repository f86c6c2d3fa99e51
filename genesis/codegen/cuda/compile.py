"""Kernel sources → binaries, each compiled once, in parallel in worker processes (`workers.py`)."""

from __future__ import annotations

import atexit
import base64
import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Final, Protocol

from genesis.codegen.cuda.gpu_model import H200, GpuModel
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import ENABLE_FP_FUSION, compile_kernel
from genesis.codegen.cuda.workers import TRIES, Used, WorkerDied, WorkerPool
from genesis.ir.interrupting import of_computing
from genesis.runtime.plan import KernelImage

FORMAT: Final = 4
"""Part of every key; raised when the same source would compile to something else."""

MOST_WORKERS: Final = 16
"""Processes that compile at one time, however many cores there are."""


class Cache(Protocol):
    """What `runtime.kernel_cache.KernelCache` is."""

    def get(self, key: str) -> Any:
        """An entry whose `image` is the kernel, or None."""

    def put(self, key: str, cubin: bytes, meta: dict[str, Any]) -> bool:
        """Write an entry; whether that worked."""

    def name(self, key: str) -> str:
        """What the entry of a key is called."""


class CompilationFailed(RuntimeError):
    """Triton refused a kernel: a defect of Genesis, shown with the kernel's text. Or no worker lived to compile it."""


def compile_sources(sources: Sequence[KernelSource], store: Cache | None = None,
                    gpu: GpuModel = H200) -> list[KernelImage]:
    """An image for each source, in order; equal sources share one.

    Args:
        store: binaries of earlier processes, looked up before Triton is imported anywhere.
        gpu: what the binaries run on.

    Raises:
        CompilationFailed: with Triton's message and the text of the kernel.
    """
    keys = [key_of(source, gpu) for source in sources]
    wanted = dict(zip(keys, sources, strict=True))
    found: dict[str, KernelImage] = {}
    for key, source in wanted.items():
        entry = store.get(key) if store is not None else None
        image = None if entry is None else entry.image(store.name(key), text_of(source))  # type: ignore[union-attr]
        if image is not None:
            found[key] = image
    missing = {key: source for key, source in wanted.items() if key not in found}
    for (key, source), answer in zip(missing.items(), _compile(missing.values(), gpu.architecture), strict=True):
        if "error" in answer:
            raise CompilationFailed(f"{source.name} does not compile\n{answer['error']}\n{source.source}")
        cubin, text = base64.b64decode(answer["cubin"]), text_of(source)
        meta = {name: answer[name] for name in ("name", "num_warps", "shared_bytes", "maps")}
        kept = store is not None and store.put(key, cubin, {**meta, "source": text})
        name = store.name(key) if store is not None and kept else ""
        found[key] = KernelImage(meta["name"], cubin, meta["num_warps"], meta["shared_bytes"], text, name,
                                  tuple(map(tuple, meta["maps"])))
    return [found[key] for key in keys]


def key_of(source: KernelSource, gpu: GpuModel = H200) -> str:
    """All that a binary depends on, as text."""
    return json.dumps({**source.key_parts(), "architecture": gpu.architecture, "fp_fusion": ENABLE_FP_FUSION,
                       "triton": version("triton"), "format": FORMAT})


def text_of(source: KernelSource) -> str:
    """A kernel's text and the values of its constants, for people and for the host driver."""
    return f"{source.source}\n\nCONSTEXPRS = {source.constexprs!r}\n"


def _compile(sources: Iterable[KernelSource], architecture: int) -> list[dict[str, Any]]:
    """The workers' answers, in order."""
    requests = [{"architecture": architecture, **source.key_parts()} for source in sources]
    if not requests:
        return []
    if _most == 1:
        return list(map(_answer_here, requests))
    pool = _workers()
    count = min(len(requests), pool.most)
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(partial(_answer, pool), requests))


def _answer(pool: WorkerPool, request: dict[str, Any]) -> dict[str, Any]:
    """A worker's answer; where none comes, {"error"} that says why."""
    try:
        return pool.ask(request)
    except (WorkerDied, OSError) as error:
        return {"error": f"{error}\n  try: again with more memory; this kernel was given to {TRIES} workers"}


_most: int | None = None
"""How many processes compile where `compile_with` has said it."""


def compile_with(most: int) -> None:
    """Compile kernels with at most so many processes from now on; 1: in this one, one kernel after another. To be
    called before anything is compiled."""
    global _most
    _most = most


def used_by_workers() -> Used:
    """Processor time and memory of the processes that compile for this one."""
    return Used() if _most == 1 else _workers().used


def _answer_here(request: dict[str, Any]) -> dict[str, Any]:
    """What a worker would answer."""
    try:
        found = compile_kernel(request, request["architecture"])
    except of_computing(Exception) as error:  # whatever Triton raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}
    return {**found, "cubin": base64.b64encode(found["cubin"]).decode()}


@cache
def _workers() -> WorkerPool:
    pool = WorkerPool(_most or min(os.cpu_count() or 1, MOST_WORKERS))
    atexit.register(pool.close)
    return pool
