"""Kernels of drawn programs are what a GPU takes: they compile, have room, and are launched as they were compiled.

    pytest tests/codegen/cuda/test_drawn_programs.py -m sweep    # 180 programs, each new kind of kernel compiled
"""

from __future__ import annotations

import re

import pytest

import genesis
from genesis.codegen.cuda.source import KernelSource
from genesis.ir.sym_int import value_of
from tests.codegen.cuda.drawn_programs import FAMILIES, draw
from tests.codegen.cuda.gpus import GPUS
from tests.codegen.cuda.idle_gpu import Kept, compiles_for

PARTS = 12
"""Tests that the programs of the sweep are shared by, each with one of every family."""

MOST_STACK = 8192
"""Bytes of a thread in memory: more was a kernel whose blocks are too large, fewer occur where many operands meet."""


def kernels_of(numbers: range) -> list[KernelSource]:
    """The kernels of the programs of these numbers, each planned and launched on a GPU that does nothing."""
    with Kept() as backend:
        for number in numbers:
            genesis.engine.reset()
            draw(number)
    return [source for source in backend.sources if all(value_of(n) for n in source.grid)]


def unlike(sources: list[KernelSource], seen: set[object]) -> list[KernelSource]:
    """Those whose text is new, numbers and names apart; `seen` are added to."""
    found = []
    for source in sources:
        text = re.sub(r"#.*", "", source.source.partition(f"def {source.name}(")[2])
        key = (re.sub(r"\d+", "", text), tuple(source.signature.values()), source.num_warps)
        if key not in seen:
            seen.add(key)
            found.append(source)
    return found


def test_programs_of_every_family_are_launched_as_they_are_compiled() -> None:
    sources = kernels_of(range(2 * len(FAMILIES)))
    assert len(unlike(sources, set())) > 2 * len(FAMILIES)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_of_drawn_programs_compile(part: int) -> None:
    first = 1000 + part * len(FAMILIES)
    for source in unlike(kernels_of(range(first, first + len(FAMILIES))), set()):
        assert compiles_for(source, GPUS[90]).stack <= MOST_STACK, source.name
