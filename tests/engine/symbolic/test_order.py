"""Which bits a size gets does not depend on what ran before it: orders of sizes, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import hashlib, json, sys
import numpy as np
import genesis
import genesis.nn.functional as F
from genesis import nn
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver

def run(size, columns):
    genesis.manual_seed(0)
    layer = nn.Linear(6, 5).to("cuda")
    x = np.random.default_rng(size).standard_normal((3, size, 6), np.float32)
    x = genesis.tensor(x, device="cuda")
    genesis.eval(x)
    y = F.softmax(layer(x) * 1.3, 1)
    loss = (y * y.mean(1, keepdim=True)).sum() + y[:, 1:].std() + x.cumsum(1).mean()
    loss.backward()
    results = y, loss, layer.weight.grad, layer.bias.grad
    return hashlib.sha256(b"".join(genesis.Tensor.numpy(z.detach().cpu()).tobytes() for z in results)).hexdigest()

with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)):
    print(json.dumps({size: run(size, 6) for size in json.loads(sys.argv[1])}))
"""


def bits(sizes: list[int], cache: Path) -> dict[str, str]:
    """Size → a digest of what a training step of it gives, in a new process with a cache of its own."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(sizes)], capture_output=True, text=True, cwd=ROOT,
                          timeout=300, env={**os.environ, "GENESIS_CACHE_DIR": str(cache), "GENESIS_PLAN_CACHE": "1",
                                            "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_orders_of_lengths_give_the_same_bits(tmp_path: Path) -> None:
    one = bits([5, 33], tmp_path / "one")
    other = bits([33, 40, 5], tmp_path / "other")
    assert {size: other[size] for size in one} == one


@pytest.mark.sweep
@pytest.mark.parametrize("size", [2, 9, 16, 31, 47, 64, 65])
def test_a_length_alone_gives_the_bits_that_it_has_among_others(tmp_path: Path, size: int) -> None:
    alone = bits([size], tmp_path / "alone")
    among = bits([3, 50, 21, 32, size + 1, size], tmp_path / "among")
    assert alone[str(size)] == among[str(size)]
