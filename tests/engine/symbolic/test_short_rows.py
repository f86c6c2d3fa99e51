"""Short rows whose length is an argument of their kernels: they are packed as those of a number in the text are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import engine
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import Launch
from tests.engine.symbolic.idle import counting
from tests.gpu.compare import array, numbers


def batch_norm(x: Any) -> Any:
    return F.batch_norm(x, None, None, x[0, :, 0, 0], x[1, :, 1, 1], training=True)


def test_the_second_batch_norm_of_a_process_is_packed() -> None:
    """After images of 64 × 64 those of 7 × 7 have their sizes as arguments."""
    with counting() as backend:
        for shape in ((2, 64, 64, 64), (516, 256, 7, 7)):
            x = genesis.zeros(*shape, device="cuda")
            genesis.eval(x)
            genesis.eval(batch_norm(x))
        *_, rows, last = [step.kernel.source for step in backend.plans[-1].plan.steps if isinstance(step, Launch)]
    assert "row_near = tl.umulhi" in last and "'XBLOCK': 32, 'RBLOCK': 64" in last
    assert "'RBLOCK': 256" in rows, "196 parts of a channel, of which there are up to 256 between powers of two"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_values_whatever_came_before(dtype: str) -> None:
    """Areas of 9 to 225 after each other, and rows of 8 to 15 beside each other."""
    tolerance = {"float32": 2e-5, "float16": 2 ** -8}[dtype]  # sums of 675 terms; a few roundings
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)):
        engine.reset()
        for height, width in ((5, 5), (3, 3), (7, 7), (9, 13), (15, 15), (11, 8), (13, 3)):
            data = numbers(3, 5, height, width).astype(np.float32)
            results = []
            for device in ("cuda", "cpu"):
                x = genesis.tensor(data, device=device).to(getattr(genesis, dtype))
                results.append([array(y.float()) for y in (batch_norm(x), x * x[:, :, :1] - x[:1, :1, :, :1])])
            for ours, wanted in zip(*results, strict=True):
                np.testing.assert_allclose(ours, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())
