"""Index expressions as text: what a kernel computes is what the expression says."""

from __future__ import annotations

import random
import re
from ast import literal_eval

import numpy as np
import pytest

import genesis
from genesis.codegen.cuda.expressions import expression
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.engine.backends import FakeCUDABackend
from genesis.ir.size_trace import Trace
from genesis.nn import functional as F
from genesis.passes.fusion.index_map import Expr, add, constant, floordiv, mod_, scale, variable
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.engine.symbolic.idle import counting


def _windows(rng: random.Random) -> tuple[Expr, dict[str, int]]:
    """A sum of a remainder and a quotient, as windows have it, and the sizes of its coordinates."""
    sizes = {"r": rng.randint(2, 40), "x": rng.randint(2, 4000)}
    tap, place = variable("r", sizes["r"]), mod_(variable("x", sizes["x"]), rng.randint(2, 500))
    start = add(floordiv(place, rng.randint(1, 9)), constant(rng.randint(-9, 9)))
    return add(mod_(tap, rng.randint(2, 7)), start), sizes


def test_quotients_and_remainders_of_windows() -> None:
    """Of negative numbers, too: they are rounded down."""
    rng, multiplied = random.Random(0), 0
    for _ in range(1000):
        (window, sizes), divisor = _windows(rng), rng.randint(2, 40)
        for number in (floordiv(window, divisor), mod_(window, divisor)):
            text = expression(number)
            multiplied += ">>" in text or "&" in text
            for _ in range(10):
                point = {name: rng.randrange(size) for name, size in sizes.items()}
                n = eval(expression(window), {}, point)
                assert eval(text, {}, point) == (n // divisor if number == floordiv(window, divisor) else n % divisor)
    assert multiplied > 500


def test_neighbours_stay_in_sight() -> None:
    """What is divided along a row stays a division: Triton sees in it which elements are neighbours."""
    x, r = variable("x", 4096), variable("r", 16)
    assert expression(mod_(x, 64)) == "(x % 64)"
    assert expression(mod_(add(r, floordiv(x, 64)), 8)) == "((r + (x // 64)) % 8)"


def test_a_quotient_of_a_remainder_is_a_remainder_of_a_quotient() -> None:
    """Of (x % 2000) // 400 Triton knows no neighbours: bfloat16 that lie in vectors came one by one (a maximum over 256
    of bf16[13, 256, 5, 400] in longer rows: 14.9 µs reckoned, 4.8 in vectors)."""
    x = variable("x", 26_000)
    assert expression(floordiv(mod_(x, 2000), 400)) == "((x // 400) % 5)"
    assert expression(floordiv(mod_(x, 2000), 300)) == "(((x % 2000)) // 300)"
    rng = random.Random(1)
    for _ in range(200):
        d, times, point = rng.randint(2, 60), rng.randint(2, 9), rng.randrange(26_000)
        assert eval(expression(floordiv(mod_(x, d * times), d)), {}, {"x": point}) == point % (d * times) // d


def test_columns_of_longer_rows_are_read_in_vectors() -> None:
    with counting() as gpu:
        x = genesis.ones(13, 64, 5, 408, dtype=genesis.bfloat16, device="cuda")
        genesis.eval(x)
        genesis.eval(x[..., :400].amax(1))
    kernel, = (kernel for kernel in gpu.kernels if "max_columns" in kernel)
    assert "// 400) % 5)" in kernel and "% 2000)) // 400" not in kernel


def test_no_pair_of_divisions_in_a_gradient_of_windows() -> None:
    """An assembler made a wrong program of divisions of pairs of 16-bit numbers."""
    with counting() as gpu:
        x = genesis.ones(2, 4, 6, 6, dtype=genesis.float64, device="cuda", requires_grad=True)
        w = genesis.ones(4, 1, 3, 3, dtype=genesis.float64, device="cuda")
        y = F.conv2d(x, w, None, (3, 2), groups=4)
        y.sum().backward()
        genesis.eval(x.grad)
    texts = [compiled_by_triton(literal_eval(key), 90).asm["ptx"] for key in gpu.kernels if "take" in key]
    assert texts and not any(re.search(r"s16x2|mul\.hi\.s16", text) for text in texts)


def test_reciprocals_are_exact() -> None:
    """The product with 2^32 / d, rounded up, is the quotient of all n with n·d < 2^32."""
    rng = random.Random(1)
    for d in (*range(3, 300), *(rng.randrange(300, 1 << 16) for _ in range(500))):
        reciprocal, most = (2**32 - 1) // d + 1, (2**32 - 1) // d
        assert reciprocal < 2**31
        for n in (0, d - 1, d, most, most - 1, most // d * d, most // d * d - 1, rng.randint(0, most)):
            assert n * reciprocal >> 32 == n // d


def divisions(text: str) -> int:
    """Divisions of integers of a text."""
    return len(re.findall(r"//|%", text))


def test_what_is_divided_by_an_argument_is_multiplied() -> None:
    with Trace(N=143, H=64) as trace:
        trace.literals = frozenset("H")
        n, h = trace.symbol("N"), trace.symbol("H")
        r = variable("r", n * h * 5)
        places = add(scale(mod_(r, n), 7), floordiv(r, n * h))
        text = expression(places, reciprocals=True)
        assert text.count("g_quotient(r, ") == 2 and divisions(text) == 1 and "// 64)" in text
        assert "g_quotient" not in expression(places)


def test_neighbours_along_multiples_of_8_stay_in_sight() -> None:
    with Trace(N=144, M=136) as trace:
        for size in (trace.symbol("N"), trace.symbol("N") * 3):
            assert "g_quotient" not in expression(mod_(variable("x", size * 10), size), reciprocals=True)


def test_what_32_bits_do_not_hold_is_divided() -> None:
    with Trace(N=143) as trace:
        n = trace.symbol("N")
        assert "g_quotient" in expression(mod_(variable("x", 16_000_000 // 255), n), reciprocals=True)
        assert "g_quotient" not in expression(mod_(variable("x", 1 << 30), n), reciprocals=True)
    with Trace(N=3) as trace:  # a class from 2 on, whose reciprocal has 32 bits
        assert "g_quotient" not in expression(mod_(variable("x", 1000), trace.symbol("N")), reciprocals=True)


@pytest.mark.parametrize("batches", [(7, 5, 9), (33, 47, 61), (67, 101)])
def test_permuted_batches_of_any_size(batches: tuple[int, ...]) -> None:
    """One kernel for each class, whose divisor is an argument."""
    rng = np.random.default_rng(0)
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20)):
        for batch in batches:
            values = rng.standard_normal((batch, 5, 3, 8)).astype(np.float32)
            for order in ((1, 0, 3, 2), (3, 1, 0, 2), (2, 3, 1, 0)):
                found = (genesis.tensor(values, device="cuda") * 2).permute(*order).contiguous()
                np.testing.assert_array_equal(found.cpu().numpy(), 2 * values.transpose(order))
