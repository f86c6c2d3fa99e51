"""Templates on disk: a process fills in plans of sizes that it never compiled, from what another one compiled."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import config, engine
from genesis.codegen.cuda import compile as compile_cuda
from genesis.codegen.cuda import lower
from genesis.codegen.cuda.source import KernelSource
from genesis.engine import plans
from genesis.engine.backends import FakeCUDABackend
from genesis.engine.symbolic.stored_template import template_from_json
from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.plan import KernelImage
from genesis.runtime.plan_cache import PlanCache
from tests.gpu.compare import array, numbers
from tests.gpu.test_plan_cache import ROOT, new_process, run
from tests.gpu.test_planted_plans import JUNK, read


class Compiler:
    """Keeps kernels as the interpreter takes them in the kernel cache, without a binary.

    Attributes:
        made: names of those that were compiled.
    """

    def __init__(self) -> None:
        self.made: list[str] = []
        self._plain = FakeCUDABackend.compile

    def __call__(self, backend: FakeCUDABackend, sources: Sequence[KernelSource]) -> list[KernelImage]:
        store, images = KernelCache(), []
        for source, image in zip(sources, self._plain(backend, sources), strict=True):
            key = compile_cuda.key_of(source, backend.gpu)
            if store.get(key) is None:
                self.made.append(source.name)
                store.put(key, b"", {"name": image.name, "num_warps": image.num_warps, "shared_bytes": 0,
                                     "source": image.source})
            images.append(replace(image, entry=store.name(key)))
        return images


@pytest.fixture
def compiler(host_cuda: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    """A cache of its own, and what compiles into it."""
    monkeypatch.setenv(plans.VARIABLE, "1")
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path))
    made = Compiler()
    monkeypatch.setattr(FakeCUDABackend, "compile", lambda backend, sources: made(backend, sources))
    return made


def attention(size: int) -> tuple[str, list[np.ndarray]]:
    """(where the plan comes from, results) of a program whose memory is planned for the size."""
    x = genesis.tensor(numbers(2, size, 4, seed=size), device="cuda")
    genesis.eval(x)
    y = F.softmax(x @ x.transpose(1, 2) * 0.5, -1) @ x
    z = y.cumsum(1) * y.amax(1, keepdim=True)
    genesis.eval(y, z)
    return engine.last_plan().origin, [array(y), array(z)]  # type: ignore[union-attr]


def cached(size: int) -> tuple[str, list[np.ndarray]]:
    """The same, of a row of a cache that is written and all rows up to it."""
    cache = genesis.tensor(numbers(1, 2, 24, 4, seed=1), device="cuda")
    genesis.eval(cache)
    cache[:, :, size:size + 1] = cache[:, :, :1] * 2
    y = F.scaled_dot_product_attention(cache[:, :, :1], cache[:, :, :size + 1], cache[:, :, :size + 1])
    genesis.eval(y, cache)
    return engine.last_plan().origin, [array(y), array(cache)]  # type: ignore[union-attr]


@pytest.mark.parametrize("program", [attention, cached])
def test_sizes_that_no_process_has_seen(compiler: Compiler, program: Callable[[int], Any],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the bits of a process that compiled for them, and code generation is not asked."""
    monkeypatch.setenv(plans.VARIABLE, "0")
    alone = {}
    for size in (7, 9, 13):
        engine.reset()
        alone[size] = program(size)[1]
    monkeypatch.setenv(plans.VARIABLE, "1")
    engine.reset()
    for size in (3, 11, 5):
        program(size)
    new_process()
    compiler.made.clear()
    monkeypatch.setattr(lower, "emit", None)  # code generation would fail
    for size, expected in (7, "disk"), (9, "other size"), (13, "other size"):
        origin, found = program(size)
        assert origin == expected
        for one, other in zip(found, alone[size], strict=True):
            np.testing.assert_array_equal(one, other)
    assert not compiler.made


def test_memory_is_planned_for_the_first_size_from_disk(compiler: Compiler) -> None:
    """It had the places of the size that another process made the template for: as much memory as that one's. What
    this process ran once keeps its places, so that smaller sizes share its graph."""
    def scratch(size: int) -> tuple[str, int]:
        return attention(size)[0], engine.last_plan().plan.arena_bytes  # type: ignore[union-attr]
    planned = {}
    for size in (115, 119, 123):
        engine.reset()
        planned[size] = scratch(size)[1]
    assert planned[115] < planned[119] < planned[123]
    for path in Path(os.environ["GENESIS_CACHE_DIR"]).iterdir():
        path.unlink()
    for first, others in (125, (121,)), (119, (123, 115, 125)):  # what the second process finds is made for 125
        new_process()
        assert attention(first)[0] == ("compiled" if first == 125 else "disk")
        found = {size: scratch(size) for size in others}
    assert found[123] == ("other size", planned[123]) and found[115][1] == planned[119]
    new_process()
    assert scratch(119) == ("disk", planned[119])


def test_a_template_for_each_side_of_a_guard(compiler: Compiler) -> None:
    """Rows of odd and of even lengths have kernels of their own: the one that fits is found behind the other."""
    for size in (101, 103, 102, 106):
        attention(size)
    for first, others in (90, (94, 98)), (99, (97, 95)):
        new_process()
        assert attention(first)[0] == "disk"
        assert [attention(size)[0] for size in others] == ["other size"] * 2


def test_a_training_step(compiler: Compiler) -> None:
    def train(*sizes: int) -> tuple[list[str], list[np.ndarray]]:
        genesis.manual_seed(0)
        model = genesis.nn.Sequential(genesis.nn.Linear(6, 8), genesis.nn.GELU(), genesis.nn.Linear(8, 3)).to("cuda")
        optimizer = genesis.optim.AdamW(model.parameters(), lr=0.1)
        origins, losses = [], []
        for size in sizes:
            loss = model(genesis.tensor(numbers(size, 6, seed=size), device="cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            origins.append(engine.last_plan().origin)  # type: ignore[union-attr]
            losses.append(array(loss))
        return origins, [*losses, *(array(p.detach()) for p in model.parameters())]
    engine.reset()
    expected = train(9, 5, 11, 6)[1]
    train(7, 4)
    for path in Path(os.environ["GENESIS_CACHE_DIR"]).glob("*.plan"):
        path.unlink()
    new_process()
    origins, found = train(9, 5, 11, 6)
    assert origins[0] == "disk" and set(origins) == {"disk", "other size"}
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_settings_and_a_parameter_in_the_place_of_data(compiler: Compiler,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    run(7)
    new_process()
    monkeypatch.setattr(config, "fuse", False)
    assert run(5)[0] == "compiled"
    monkeypatch.setattr(config, "fuse", True)
    x = genesis.nn.Parameter(genesis.tensor(numbers(5, 6, seed=5), device="cuda"))
    genesis.eval(x)
    with genesis.no_grad():
        y = F.softmax(x * 2.5, -1) + x.mean(0)
        genesis.eval(y)
    assert engine.last_plan().origin == "compiled"  # type: ignore[union-attr]


def test_sizes_that_stay_numbers_write_none(compiler: Compiler, tmp_path: Path) -> None:
    weight = genesis.nn.Parameter(genesis.ones(3, device="cuda"))
    genesis.eval(weight)
    written = set(tmp_path.glob("*.template"))
    genesis.eval((weight * 2).detach())
    assert set(tmp_path.glob("*.template")) == written


def plant(path: Path, key: str, meta: Any) -> None:
    """Write an undamaged entry that says this."""
    body = json.dumps({"key": key, "meta": meta}).encode() + b"\n"
    path.write_bytes(b"genesis-template-1 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def parts(x: Any) -> list[tuple[Any, Any]]:
    """All (container, key) of what a file says."""
    found: list[tuple[Any, Any]] = []
    for key, value in x.items() if isinstance(x, dict) else enumerate(x):
        found.append((x, key))
        if isinstance(value, dict | list):
            found += parts(value)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_in_a_file_is_no_template_or_a_sound_one(compiler: Compiler, tmp_path: Path,
                                                          seed: int) -> None:
    """Nothing raises, whatever stands for any part. What still is a template has a plan that is one."""
    attention(7)
    attention(9)
    cache, chance = PlanCache(tmp_path), random.Random(seed)
    path = max(tmp_path.glob("*.template"), key=lambda file: file.stat().st_size)
    key, meta = read(path)
    assert cache.get_template(key, template_from_json) is not None
    for _ in range(250):
        planted = copy.deepcopy(meta)
        container, at = chance.choice(parts(planted))
        container[at] = chance.choice(JUNK)
        plant(path, key, planted)
        found = cache.get_template(key, template_from_json)
        if found is not None:
            found.plan(meta["form"]["fixed"])
        assert found is not None or not path.exists()


@pytest.mark.parametrize("damage", [lambda text: text[:-3], lambda text: b"", lambda text: text.replace(b"1", b"2")])
def test_a_damaged_template_is_made_again(compiler: Compiler, tmp_path: Path, damage: Any) -> None:
    run(7)
    for path in tmp_path.glob("*.template"):
        path.write_bytes(damage(path.read_bytes()))
    new_process()
    assert run(5)[0] == "compiled"
    new_process()
    assert run(9)[0] == "disk"


FILLING = """
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
known = Cache(8)
for size in (5, 9):
    x = genesis.tensor(numpy.ones((size, 6), numpy.float32), device="cuda")
    found = plans.find(capture([(x * 2.5).sum(0).storage.node]), Device("cuda"), known)
    print(found.origin, [name for name in ("triton", "torch", "networkx", "genesis.passes.pipeline",
                                           "genesis.codegen.cuda.emit") if name in sys.modules])
"""


def test_filling_in_a_plan_imports_no_compiler(compiler: Compiler, tmp_path: Path) -> None:
    for size in (7, 4):
        x = genesis.tensor(np.ones((size, 6), np.float32), device="cuda")
        genesis.eval((x * 2.5).sum(0))
    done = subprocess.run([sys.executable, "-c", FILLING], capture_output=True, text=True, cwd=ROOT, timeout=120,
                          env={**os.environ, "GENESIS_CACHE_DIR": str(tmp_path), plans.VARIABLE: "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["disk []", "other size []"]
