"""No kernel is assembled with packed sums of 16 bits, of which ptxas loses constants."""

from __future__ import annotations

import doctest
import re

import pytest

import genesis
import genesis.nn.functional as F
from genesis.codegen.cuda import expressions, packed_words
from genesis.codegen.cuda.worker import compiled_by_triton
from tests.codegen.cuda.idle_gpu import Kept
from tests.codegen.cuda.machine_code import instructions


def test_the_example() -> None:
    assert doctest.testmod(packed_words).attempted == 1
    assert doctest.testmod(packed_words).failed == 0


def test_only_packed_sums_are_taken_apart() -> None:
    others = "add.s16 %rs1, %rs2, %rs3; max.s16x2 %r1, %r2, %r3; add.s32 %r4, %r5, %r6; add.rn.f16x2 %r7, %r8, %r9;"
    assert packed_words.taken_apart(others) == others
    assert "x2" not in packed_words.taken_apart("add.u16x2 %r12,%r3,%r4;")


def test_the_image_gradient_of_a_convolution_with_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its windows' bounds are sums of 16-bit numbers: on an H200 the gradient was that of other bounds. Quotients of
    remainders are written as they were then: of remainders of quotients LLVM packs no sum."""
    monkeypatch.setattr(expressions, "_quotient_first", lambda atom, reciprocals: None)
    with Kept() as gpu:
        x = genesis.randn(2, 1, 8, 8, dtype=genesis.float64, device="cuda", requires_grad=True)
        weight = genesis.randn(4, 1, 3, 3, dtype=genesis.float64, device="cuda")
        gradient, = genesis.autograd.grad(F.conv2d(x, weight, stride=2, padding=1).sum(), x)
        genesis.eval(gradient)
        compiled = [compiled_by_triton(source.key_parts(), 90) for source in gpu.sources]
    packed = [x for x in compiled if "add.s16x2" in x.asm["ptx"]]
    assert packed, "LLVM packs no sum here: another kernel has to show it"
    for kernel in packed:
        lines = [line for _, line in instructions(kernel.asm["cubin"])]
        assert len(lines) > 50
        assert not [line for line in lines if re.search(r"\b\w+\.16x2\b", line)]
