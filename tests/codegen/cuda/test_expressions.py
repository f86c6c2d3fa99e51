"""Index expressions as text: what a kernel computes is what the expression says."""

from __future__ import annotations

import random
import re
from ast import literal_eval

import genesis
from genesis.codegen.cuda.expressions import expression
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.nn import functional as F
from genesis.passes.fusion.index_map import Expr, add, constant, floordiv, mod_, variable
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
