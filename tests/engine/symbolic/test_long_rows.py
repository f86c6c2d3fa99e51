"""Long rows whose length is an argument of their kernels: nothing that a number in the text would save is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import engine
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.engine.symbolic.idle import counting
from tests.gpu.compare import array, numbers
from tests.sweeping import by_default


def last_kernel(plan: Any) -> str:
    """The text of a plan's last kernel, without its helpers."""
    text = plan.plan.steps[-1].kernel.source
    return text[text.rindex("@triton.jit"):]


def texts(program: Any, *shapes: tuple[int, ...]) -> list[str]:
    """What is compiled for each shape, one after the other."""
    with counting() as backend:
        found = []
        for shape in shapes:
            x = genesis.zeros(*shape, device="cuda", dtype=genesis.bfloat16)
            genesis.eval(x)
            genesis.eval(program(x))
            found.append(last_kernel(backend.plans[-1]))
        return found


def softmax(x: Any) -> Any:
    return F.softmax(x, -1)


def test_a_square_has_its_row_in_the_text_until_it_is_seen_to_change() -> None:
    first, second = texts(softmax, (4096, 4096), (8192, 8192))
    assert "x * 4096" in first and "r_size" not in first
    assert "r_size" in second


@by_default("8192", "16384")
@pytest.mark.parametrize("length", [8192, 16384, 65536])
def test_a_row_that_fills_its_blocks_has_no_mask(length: int) -> None:
    assert "r_mask" not in texts(softmax, (2048, 3072), (2048, length))[1]


def test_rows_that_registers_hold_are_held_in_as_many_blocks_as_they_need() -> None:
    text = texts(softmax, (2048, 30000), (2048, 20000))[1]
    assert "tl.static_range(5)" in text and "r_mask = (r < r_size) | (chunk < 4)" in text


def test_an_eighth_of_the_block_bounds_the_row() -> None:
    text = texts(softmax, (2048, 3072), (2048, 5008))[1]
    assert "r_mask = (r < r_size) & (r < 5120)" in text, "5008 is in the fifth eighth of 8192"


def test_the_l2_is_asked_for_rows_of_any_length() -> None:
    assert "g_ask(in0 + tl.program_id(0).to(tl.int64) * size0" in texts(softmax, (8192, 3072), (8192, 5008))[1]


def test_multiples_of_8_are_known_to_be() -> None:
    """So 16-bit values are loaded eight at a time."""
    with counting() as backend:
        for length in (1016, 1000):
            x = genesis.zeros(64, length, device="cuda", dtype=genesis.bfloat16)
            genesis.eval(softmax(x) if genesis.eval(x) is None else None)
        assert any("'eights': ['r_size', 'size0']" in kernel for kernel in backend.kernels)


def norm(x: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:]), x.cumsum(-1)


def broadcast(x: Any) -> Any:
    return F.gelu(x * x[0] + x[:, :1]) * 2, F.log_softmax(x, -1).amin(-1)


@by_default("bfloat16-softmax", "bfloat16-broadcast")
@pytest.mark.parametrize("program", [softmax, norm, broadcast], ids=lambda program: program.__name__)
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.sweep), "bfloat16"])
def test_values_whatever_came_before(program: Any, dtype: str) -> None:
    tolerance = {"float32": 2e-5, "bfloat16": 2 ** -6}[dtype]  # sums of 20000 terms; a few roundings
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)):
        engine.reset()
        for length in (1000, 5001, 5000, 16385, 20000):
            data = numbers(2, length).astype(np.float32)
            results = []
            for device in ("cuda", "cpu"):
                found = program(genesis.tensor(data, device=device).to(getattr(genesis, dtype)))
                results.append([array(y.float()) for y in (found if isinstance(found, tuple) else (found,))])
            for ours, wanted in zip(*results, strict=True):
                np.testing.assert_allclose(ours, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())
