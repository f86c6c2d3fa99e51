"""Random programs (`random_programs.py`): fused, unfused and on the CPU they agree with torch in float64.

    pytest tests/gpu/test_random_programs.py -m sweep            # a thousand in the interpreter
    pytest tests/gpu/test_random_programs.py -m "gpu and sweep"  # three hundred on a GPU
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, note, settings

import genesis
from tests.gpu.conftest import CudaUnderTest
from tests.gpu.random_programs import Known, Program, programs

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None,
         "report_multiple_bugs": False}


def inputs_of(program: Program) -> list[torch.Tensor]:
    """Data for the inputs: small integers where they are exact."""
    random = np.random.default_rng(len(program.steps) + 7 * len(program.inputs))
    found = []
    for known in program.inputs:
        data = random.integers(-4, 5, known.shape) if known.exact else random.uniform(-2, 2, known.shape)
        found.append(torch.from_numpy(np.asarray(data, np.float64)).to(getattr(torch, known.dtype)))
    return found


def to_genesis(x: torch.Tensor, device: str) -> Any:
    wide = genesis.tensor(x.float().numpy(), device=device)
    return wide.to(getattr(genesis, str(x.dtype).removeprefix("torch.")))


def check(program: Program, device: str, fuse: bool) -> None:
    """Run the program in Genesis and compare with torch in float64."""
    data = inputs_of(program)
    wanted = program.run(torch, [x.double() for x in data])
    genesis.config.fuse = fuse
    try:
        found = program.run(genesis, [to_genesis(x, device) for x in data])
        genesis.eval(*found)
    finally:
        genesis.config.fuse = True
    for at, want, got in zip(program.asked, wanted, found, strict=True):
        known: Known = program.values[at]
        assert tuple(got.shape) == tuple(want.shape) == known.shape, f"%{at}"
        assert got.dtype.name == known.dtype, f"%{at} is {got.dtype}"
        error = np.abs(got.double().cpu().numpy() - want.double().numpy())
        assert not error.size or error.max() <= known.error, f"%{at} is off by {error.max():.3g} > {known.error:.3g}"


def agree(cuda: CudaUnderTest, count: int) -> None:
    """Draw that many programs and check each, fused and not."""
    @settings(max_examples=count, **QUIET)
    @given(programs())
    def each(program: Program) -> None:
        note(str(program))
        check(program, "cuda", True)
        check(program, "cuda", False)
        if not cuda.real:
            check(program, "cpu", True)
    each()


def test_a_few_programs(cuda: CudaUnderTest) -> None:
    agree(cuda, 40)


@pytest.mark.sweep
def test_many_programs(cuda: CudaUnderTest) -> None:
    agree(cuda, 300 if cuda.real else 1000)
