"""How float32 products are rounded on a GPU: torch's switches, and the kernels that follow them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import genesis
from genesis import engine
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import KernelSource
from genesis.ir import Graph
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.types import bfloat16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.runtime.plan import Launch
from tests.codegen.cuda.programs import inputs
from tests.codegen.cuda.run_interpreted import compile_cubin
from tests.codegen.cuda.test_streamed_matmul import check
from tests.engine.symbolic.idle import Counting

ROUNDINGS = ("ieee", "tf32", "bf16x3")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The setting as it was."""
    before = genesis.config.float32_products
    yield
    genesis.config.float32_products = before


def kernel(size: int = 4096) -> KernelSource:
    """That of a float32 product."""
    a, b = inputs((size, size), (size, size), dtype=float32)
    return emit(fuse(Graph((a, b), (matmul(a, b),))).groups[0])


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_a_kernel_rounds_as_the_setting_says(rounding: str) -> None:
    genesis.config.float32_products = rounding
    source = kernel()
    assert f'input_precision="{rounding}"' in source.readable and compile_cubin(source)
    assert ("tl.dot_fma" in source.source) == (rounding == "ieee")


def test_products_of_low_precision_have_no_rounding() -> None:
    genesis.config.float32_products = "tf32"
    a, b = inputs((64, 64), (64, 64), dtype=bfloat16)
    assert "input_precision" not in emit(fuse(Graph((a, b), (matmul(a, b),))).groups[0]).source


def test_plans_of_other_roundings_are_others() -> None:
    keys = set()
    for rounding in ROUNDINGS:
        genesis.config.float32_products = rounding
        keys.add(genesis.config.key())
    assert len(keys) == 3


@pytest.mark.parametrize("word, rounding", [("highest", "ieee"), ("high", "tf32"), ("medium", "tf32")])
def test_torchs_words(word: str, rounding: str) -> None:
    genesis.set_float32_matmul_precision(word)
    assert genesis.config.float32_products == rounding and genesis.get_float32_matmul_precision() == word
    assert genesis.backends.cuda.matmul.allow_tf32 == (rounding == "tf32")


def test_torchs_flag() -> None:
    for library in (torch, genesis):
        before = library.backends.cuda.matmul.allow_tf32
        library.backends.cuda.matmul.allow_tf32 = True
        assert library.get_float32_matmul_precision() == "high"
        library.backends.cuda.matmul.allow_tf32 = False
        assert library.get_float32_matmul_precision() == "highest" and not before


def test_torchs_newer_flag() -> None:
    genesis.backends.cuda.matmul.fp32_precision = "tf32"
    assert genesis.backends.cuda.matmul.allow_tf32
    genesis.backends.cuda.matmul.fp32_precision = "none"
    assert genesis.config.float32_products == "ieee"


def test_no_other_words() -> None:
    with pytest.raises(ValueError, match="float32_products is one of ieee, tf32, bf16x3, not 'fast'"):
        genesis.config.float32_products = "fast"
    with pytest.raises(RuntimeError, match="'lowest' is not one of"):
        genesis.set_float32_matmul_precision("lowest")


def test_products_in_tf32_are_streamed_where_sums_run_along_the_memory() -> None:
    genesis.config.float32_products = "tf32"
    a, b = inputs((264, 136), (400, 136), dtype=float32)
    assert check((a, b), matmul(a, swap_last(b))).name == "streamed_matmul"
    a, b = inputs((256, 128), (128, 256), dtype=float32)
    assert check((a, b), matmul(a, b)).name == "matmul"


def test_a_streamed_product_in_tf32_compiles_for_hopper() -> None:
    genesis.config.float32_products = "tf32"
    a, b = inputs((4096, 4096), (4096, 4096), dtype=float32)
    source = emit(fuse(Graph((a, b), (matmul(a, swap_last(b)),))).groups[0])
    assert source.name == "streamed_matmul" and compile_cubin(source)


def test_a_program_in_tf32_has_copies_of_what_lies_across() -> None:
    genesis.config.float32_products = "tf32"
    with Counting():
        x, w = (genesis.ones(4096, 4096, device="cuda") for _ in range(2))
        genesis.eval(x, w)
        genesis.eval(x @ w.T)
        assert _kernels() == ["streamed_matmul"]
        genesis.eval(x @ w)
        assert _kernels() == ["permute", "streamed_matmul"]


def _kernels() -> list[str]:
    """Those of the last program."""
    plan = engine.last_plan()
    assert plan is not None
    return [step.kernel.name for step in plan.plan.steps if isinstance(step, Launch)]
