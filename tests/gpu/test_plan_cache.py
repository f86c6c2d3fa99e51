"""Plans on disk: the same script starts without compiling, with the same bits; what is damaged is made again."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import config, engine
from genesis.codegen.cuda import compile as compile_cuda
from genesis.codegen.cuda import lower
from genesis.codegen.cuda.gpu_model import MODELS, GpuModel
from genesis.codegen.cuda.source import KernelSource
from genesis.engine import plans
from genesis.engine.backends import FakeCUDABackend, backend_named
from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.plan import KernelImage
from tests.gpu.compare import array, numbers, same
from tests.gpu.test_shadow_weights import train

ROOT = Path(__file__).resolve().parents[2]


class Compiler:
    """Stands in for Triton on the host driver: an entry of the kernel cache without a binary.

    Attributes:
        made: names of the kernels that were compiled.
    """

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, sources: Sequence[KernelSource], gpu: GpuModel) -> list[KernelImage]:
        images, store = [], KernelCache()
        for source in sources:
            key = compile_cuda.key_of(source, gpu)
            meta = {"name": source.name, "num_warps": source.num_warps, "shared_bytes": 0,
                    "source": compile_cuda.text_of(source)}
            if store.get(key) is None:
                self.made.append(source.name)
                store.put(key, b"", meta)
            kept = store.name(key) if store.get(key) is not None else ""
            images.append(KernelImage(source.name, b"", source.num_warps, 0, meta["source"], kept))
        return images


@pytest.fixture
def compiler(host_cuda: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Compiler]:
    """A cache of its own, and what compiles into it."""
    monkeypatch.setenv(plans.VARIABLE, "1")
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path))
    made = Compiler()
    monkeypatch.setattr(FakeCUDABackend, "compile", lambda backend, sources: made(sources, backend.gpu))
    yield made


def new_process() -> None:
    """Forget what a new process would not know; write what an ending one writes."""
    plans._save_all()
    engine.reset()


def run(size: int) -> tuple[str, np.ndarray]:
    """(where the plan comes from, the result) of a small program with a reduction."""
    x = genesis.tensor(numbers(size, 6, seed=size), device="cuda")
    y = F.softmax(x * 2.5, -1) + x.mean(0)
    return engine_origin(y), array(y)


def engine_origin(y: Any) -> str:
    genesis.eval(y)
    return engine.last_plan().origin


def test_the_second_process_reads_the_plan(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    origin, first = run(7)
    assert origin == "compiled" and compiler.made
    new_process()
    monkeypatch.setattr(lower, "emit", None)  # code generation would fail
    origin, again = run(7)
    assert origin == "disk"
    np.testing.assert_array_equal(first, again)


def test_a_step_that_keeps_copies_of_its_weights(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(keep=True)
    new_process()
    monkeypatch.setattr(lower, "emit", None)
    again = train(keep=True)
    found = engine.last_plan()
    assert found.origin == "disk" and len(found.plan.kept) == 2 and len(found.plan.refresh.steps) == 1
    assert first == again


def test_a_plan_from_disk_says_how_it_is_made(compiler: Compiler) -> None:
    run(7)
    new_process()
    assert run(7)[0] == "disk"
    found = engine.last_plan()
    assert found.graph.inputs[0].shape == (7, 6) and any("softmax" in step.label for step in found.plan.steps)
    assert [len(group.nodes) > 1 for group in found.schedule.groups]


def test_other_sizes_are_read_too_and_have_the_same_bits(compiler: Compiler) -> None:
    found = [run(size) for size in (7, 5, 9)]
    assert [origin for origin, _ in found] == ["compiled", "other size", "other size"]
    new_process()
    compiler.made.clear()
    again = [run(size) for size in (7, 5, 9)]
    assert [origin for origin, _ in again] == ["disk", "disk", "other size"]  # the second's is the template
    assert not compiler.made
    for (_, one), (_, other) in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_size_that_no_process_has_seen_needs_no_kernel(compiler: Compiler) -> None:
    run(7)
    new_process()
    compiler.made.clear()
    assert [run(size)[0] for size in (7, 5, 8)] == ["disk", "disk", "other size"]
    assert not compiler.made


def test_what_another_process_ran_first_does_not_show(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block sizes follow from a size's class, not from the first size of a process."""
    monkeypatch.setenv(plans.VARIABLE, "0")
    alone = run(5)[1]
    monkeypatch.setenv(plans.VARIABLE, "1")
    engine.reset()
    run(13)
    run(5)
    new_process()
    origin, again = run(5)
    assert origin == "disk"
    np.testing.assert_array_equal(again, alone)


@pytest.mark.parametrize("kind", ["plan", "kernel"])
@pytest.mark.parametrize("damage", [lambda text: text[:-3], lambda text: b"", lambda text: text.replace(b"1", b"2"),
                                    lambda text: text + b"x"], ids=["short", "empty", "changed", "long"])
def test_what_is_damaged_is_made_again(compiler: Compiler, tmp_path: Path, kind: str, damage: Any) -> None:
    _, first = run(7)
    kinds = ["plan", "template"] if kind == "plan" else [kind]
    for path in [path for kind in kinds for path in tmp_path.glob(f"*.{kind}")]:
        path.write_bytes(damage(path.read_bytes()))
    for expected in ("compiled", "disk"):
        new_process()
        origin, again = run(7)
        assert origin == expected
        np.testing.assert_array_equal(first, again)


def test_a_missing_kernel_is_compiled(compiler: Compiler, tmp_path: Path) -> None:
    run(7)
    KernelCache(tmp_path).clear()
    new_process()
    compiler.made.clear()
    assert run(7)[0] == "compiled" and compiler.made


def test_a_plan_of_another_gpu_is_not_read(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    run(7)
    new_process()
    monkeypatch.setattr(backend_named("cuda"), "gpu", MODELS["l4"])
    assert run(7)[0] == "compiled"
    new_process()
    assert run(7)[0] == "disk"


def test_plans_of_other_sizes_are_filled_in_with_the_same_settings(compiler: Compiler,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    run(7)
    assert run(9)[0] == "other size"
    monkeypatch.setattr(config, "fuse", False)
    assert run(5)[0] == "compiled"


def test_settings_are_part_of_a_plan(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    run(7)
    new_process()
    monkeypatch.setattr(config, "fuse", False)
    assert run(7)[0] == "compiled"


def test_switched_off(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(plans.VARIABLE, "0")
    run(7)
    new_process()
    assert run(7)[0] == "compiled" and not list(tmp_path.glob("*.plan"))


def test_an_edited_compiler_reads_no_old_plan(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    run(7)
    new_process()
    monkeypatch.setattr(plans, "_environment", lambda: ("edited",))
    assert run(7)[0] == "compiled"


def test_a_directory_that_others_write_to_is_not_trusted(compiler: Compiler, tmp_path: Path) -> None:
    run(7)
    new_process()
    tmp_path.chmod(0o777)
    for _ in range(2):  # nor is it mended: what others put there meanwhile would be trusted
        assert run(7)[0] == "compiled"
        new_process()
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o777


def test_a_training_step(compiler: Compiler) -> None:
    def train() -> list[Any]:
        genesis.manual_seed(0)
        model = genesis.nn.Linear(6, 3).to("cuda")
        optimizer = genesis.optim.AdamW(model.parameters(), lr=0.1)
        losses = []
        for size in (5, 7, 5):
            loss = (model(genesis.tensor(numbers(size, 6, seed=size), device="cuda")) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(array(loss))
        return [*losses, array(model.weight.detach())]

    first = train()
    new_process()
    compiler.made.clear()
    for one, other in zip(first, train(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not compiler.made


SCRIPT = """
import json, sys
import genesis
from genesis import engine
genesis.manual_seed(0)
model = genesis.nn.Sequential(genesis.nn.Linear(64, 128), genesis.nn.GELU(), genesis.nn.Linear(128, 8)).to("cuda")
optimizer = genesis.optim.AdamW(model.parameters(), lr=0.01)
losses, origins = [], []
for size in (48, 32, 48):
    x = genesis.randn(size, 64, device="cuda")
    genesis.eval(x)
    loss = (model(x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    origins.append(engine.last_plan().origin)
    losses.append(loss.item())
heavy = [name for name in ("triton", "torch", "networkx", "genesis.passes.fusion.fuse", "genesis.codegen.cuda.emit")
         if name in sys.modules]
print("RESULT " + json.dumps({"losses": losses, "origins": origins, "heavy": heavy}))
"""


@pytest.mark.gpu
def test_a_warm_process_imports_no_compiler(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT, timeout=240,
                              env={**os.environ, "GENESIS_CACHE_DIR": str(tmp_path), plans.VARIABLE: "1"})
        assert done.returncode == 0, done.stderr
        found.append(json.loads(next(x for x in done.stdout.splitlines() if x.startswith("RESULT ")).split(" ", 1)[1]))
    cold, warm = found
    assert cold["origins"] == ["compiled", "other size", "other size"] or cold["origins"][0] == "compiled"
    assert set(warm["origins"]) == {"disk"} and warm["heavy"] == [] and warm["losses"] == cold["losses"]


LOADING = """
import sys
from genesis.ir.types import Device
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.fake_cuda.driver import HostDriver
HostDriver.load_kernel = lambda self, image: image
cuda_python_driver.install(HostDriver(memory_bytes=1 << 24))
import genesis, numpy
from genesis.engine import plans
from genesis.engine.capture import capture
from genesis.engine.state import Cache
x = genesis.tensor(numpy.ones((7, 6), numpy.float32), device="cuda")
captured = capture([(x * 2.5).sum(0).storage.node])
found = plans.find(captured, Device("cuda"), Cache(1))
print(found.origin, [name for name in ("triton", "torch", "networkx", "genesis.passes.fusion.fuse",
                                       "genesis.codegen.cuda.emit") if name in sys.modules])
"""


def test_finding_a_plan_on_disk_imports_no_compiler(compiler: Compiler, tmp_path: Path) -> None:
    x = genesis.tensor(np.ones((7, 6), np.float32), device="cuda")
    same((x * 2.5).sum(0), np.full(6, 17.5, np.float32))
    plans._save_all()
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, cwd=ROOT, timeout=120,
                          env={**os.environ, "GENESIS_CACHE_DIR": str(tmp_path), plans.VARIABLE: "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "disk []"


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Both write the same plans and read each other's."""
    command = [sys.executable, "-c", WRITER]
    writers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={
        **os.environ, "GENESIS_CACHE_DIR": str(tmp_path), plans.VARIABLE: "1"}) for _ in range(2)]
    assert [writer.communicate()[0].strip() for writer in writers] == ["done", "done"]
    assert not list(tmp_path.glob("*.tmp")) and list(tmp_path.glob("*.plan"))


WRITER = """
import numpy
import genesis
from genesis import engine
from genesis.frontend.host_values import host_copy
from genesis.engine.backends import FakeCUDABackend, backend_named
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.gpu.test_plan_cache import Compiler
compiler = Compiler()
FakeCUDABackend.compile = lambda backend, sources: compiler(sources, backend.gpu)
FakeCUDABackend(HostDriver(memory_bytes=1 << 24)).__enter__()
for turn in range(4):
    engine.reset()
    for size in (3, 4, 5):
        x = genesis.tensor(numpy.ones((size, 6), numpy.float32), device="cuda")
        assert (host_copy((x * 2.5).sum(0)) == 2.5 * size).all()
print("done")
"""
