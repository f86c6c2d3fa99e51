"""Compiling in worker processes, and lowering a schedule to launches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from genesis.codegen.cuda import compile as compile_cuda
from genesis.codegen.cuda.compile import CompilationFailed, compile_sources, key_of
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import MODELS
from genesis.codegen.cuda.lower import lower
from genesis.engine.backends import backend_named
from genesis.ir import OPS, Graph, literal
from genesis.ir.ops import leaves
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul
from genesis.passes.fusion.fuse import fuse
from genesis.passes.pipeline import run_passes
from genesis.runtime.cuda.kernel_cache import CachedKernel
from genesis.runtime.plan import KernelImage, Launch
from tests.codegen.cuda.programs import inputs

BROKEN = """import triton
@triton.jit
def exp(in0, out0, x_size, XBLOCK):
    nonsense()
"""


def kernels():
    x, y = inputs((64, 64), (64, 64))
    return [emit(group) for group in fuse(Graph((x, y), (p.exp(x), r.sum(matmul(x, y), axes=(1,))))).groups]


class Store(dict):
    """A kernel cache in memory."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default)

    def put(self, key: str, cubin: bytes, meta: dict[str, Any]) -> bool:
        self[key] = CachedKernel(cubin, meta)
        return True

    def name(self, key: str) -> str:
        return f"entry {len(key)}"


def test_workers_compile_each_kernel_once() -> None:
    sources, store = kernels(), Store()
    images = compile_sources([*sources, *sources], store)
    assert len(store) == len(sources) == 3
    assert [image.name for image in images] == [source.name for source in sources] * 2
    assert all(image.cubin[:4] == b"\x7fELF" for image in images)
    assert all("CONSTEXPRS = {" in image.source and image.entry.startswith("entry") for image in images)
    for key, entry in store.items():
        store[key] = replace(entry, cubin=b"from the store")
    assert {image.cubin for image in compile_sources(sources, store)} == {b"from the store"}


def test_the_key_is_the_same_in_every_process_and_tells_kernels_apart() -> None:
    first, second = kernels(), kernels()
    assert [key_of(s) for s in first] == [key_of(s) for s in second]
    assert len({key_of(s) for s in first} | {key_of(first[0], MODELS["b200"])}) == len(first) + 1


@pytest.mark.parametrize("change", [
    {"signature": {"in0": "*fp16", "out0": "*fp16", "x_size": "i32", "XBLOCK": "constexpr"}},
    {"name": "other"}, {"source": "other"}, {"constexprs": {"XBLOCK": 77}},
    {"aligned": ()}, {"num_warps": 16}, {"num_stages": 7}, {"flushes": True}], ids=lambda change: next(iter(change)))
def test_what_a_binary_depends_on_is_in_its_key(change: dict[str, Any]) -> None:
    source = kernels()[0]
    assert key_of(replace(source, **change)) != key_of(source)


@pytest.mark.parametrize("name, value", [("FORMAT", 77), ("ENABLE_FP_FUSION", True), ("version", lambda name: "0.0.1")])
def test_so_is_what_makes_it(monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    source = kernels()[0]
    before = key_of(source)
    monkeypatch.setattr(compile_cuda, name, value)
    assert key_of(source) != before


def test_a_kernel_that_triton_refuses_is_shown() -> None:
    broken = replace(kernels()[0], source=BROKEN)
    with pytest.raises(CompilationFailed, match="nonsense"):
        compile_sources([broken])


def uncompiled(sources):
    """Images without a binary."""
    return [KernelImage(source.name, b"", 4, 0, source.source) for source in sources]


def test_a_program_becomes_launches_over_planned_memory() -> None:
    x, y = inputs((8, 16), (8, 16))
    lr = leaves.scalar(index=0, type=literal(1.0).type)
    graph = Graph((x, y), (OPS["softmax"](x, axis=1), y), ((y, y - y * lr),), 1)
    _, schedule, memory, *_ = run_passes(graph, backend_named("h200"))
    steps = lower(schedule, memory, compile=uncompiled)
    launches = [step for step in steps if isinstance(step, Launch)]
    assert len(launches) == len(steps) == 2
    update = next(step for step in launches if step.kernel.name != "softmax_rows")
    places = [(arg.where, arg.index) for arg in update.args if not isinstance(arg, int)]
    assert ("output", 1) in places, "y is an output and updated: the kernel that updates it copies it out too"
    assert places.count(("input", 1)) == 2 and ("numbers", 0) in places, "y is updated where it lies"


def test_an_empty_result_launches_nothing() -> None:
    x, = inputs((0, 5))
    _, schedule, memory, *_ = run_passes(Graph((x,), (p.exp(x),)), backend_named("h200"))
    assert lower(schedule, memory, compile=lambda sources: []) == ()
