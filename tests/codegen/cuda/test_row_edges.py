"""Rows of 16-bit values that begin anywhere: read in vectors, stored to the last element and no further."""

from __future__ import annotations

from typing import Any

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.worker import compiled_by_triton
from genesis.ir import Graph
from genesis.ir.ops import composite
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.types import bfloat16, float16, float32, int64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import an_input, check, inputs


def softmax(x: Any) -> tuple[Any, ...]:
    return (composite.softmax(x, axis=1),)


def entropy(x: Any) -> tuple[Any, ...]:
    targets = an_input(1, x.shape[:1], int64)
    return composite.cross_entropy(x, targets), composite.cross_entropy_backward(an_input(2, x.shape[:1]), x, targets)


def extremes(x: Any) -> tuple[Any, ...]:
    return composite.log_softmax(x, axis=1), r.min(x, axes=(1,)), r.argmax(x, axis=1)


def operands_of(program: Any, x: Any) -> list[Any]:
    return [x, an_input(1, x.shape[:1], int64), an_input(2, x.shape[:1])] if program is entropy else [x]


@pytest.mark.parametrize("program", [softmax, entropy, extremes])
@pytest.mark.parametrize("columns", [1001, 1021, 2050, 4098, 16389, 20001])
def test_what_the_interpreter_computes_of_them(program: Any, columns: int) -> None:
    x, = inputs((3, columns), dtype=bfloat16)
    check(operands_of(program, x), *program(x))


@pytest.mark.parametrize("columns", [1003, 17003])
def test_float16_and_what_is_computed_of_two_operands(columns: int) -> None:
    x, y = inputs((4, columns), (4, columns), dtype=float16)
    check([x, y], p.mul(composite.softmax(x, axis=1), y), r.sum(p.mul(x, y), axes=(1,)))


def text(columns: int, dtype: Any = bfloat16) -> Any:
    x, = inputs((64, columns), dtype=dtype)
    group, = fuse(decomposed(Graph((x,), softmax(x)))).groups
    return emit(group)


@pytest.mark.parametrize("columns", [1001, 50257])
def test_they_are_read_in_whole_vectors(columns: int) -> None:
    ptx = compiled_by_triton(text(columns).key_parts(), 90).asm["ptx"]
    loads = [line for line in ptx.splitlines() if "ld.global" in line]
    vectors = [line for line in loads if ".v4" in line]
    assert len(loads) - len(vectors) == 8 * len(vectors), "each element once more, for the edges"
    assert any("st.global" in line and ".v4" in line for line in ptx.splitlines())


def test_where_rows_begin_with_a_vector_or_fill_their_block_nothing_is_shifted() -> None:
    assert "shift" in text(1001).source
    assert "shift" not in text(1008).source
    assert "shift" not in text(1023).source, "the vector before the row would be one too many for the block"
    assert "shift" not in text(1001, float32).source, "lanes fill lines of memory with one value each"
