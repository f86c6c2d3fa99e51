"""Elements of long rows by one index, from rows in shared memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.codegen.cuda.emit import emit
from genesis.engine.backends import FakeCUDABackend, backend_named
from genesis.ir import Graph
from genesis.ir.node import Node, literal
from genesis.ir.ops.indexing import take
from genesis.ir.ops.pointwise import exp
from genesis.ir.ops.row_number import in_range, report
from genesis.ir.ops.row_takes import taken_in_rows
from genesis.ir.types import dtype_named, int64
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import Launch
from tests.codegen.cuda.programs import an_input
from tests.codegen.cuda.run_interpreted import compile_cubin, run_source
from tests.sweeping import by_default


def taken(shape: tuple[int, ...], count: int, dtype: str = "bfloat16", checked: bool = True,
          returned: bool = True) -> Schedule:
    """The program that takes elements of rows."""
    x, index = an_input(0, shape, dtype_named(dtype)), an_input(1, (count,), int64)
    wanted = index if not checked else in_range(index, size=shape[-1], dim=len(shape) - 1, negative=True, ignored=None,
                                                name="take", line="")
    found = take(x, wanted, axis=len(shape) - 1)
    return run_passes(Graph((x, index), (found if returned else exp(found),)), backend_named("h200"))[1]


def names(schedule: Schedule) -> list[str]:
    return [emit(group).name for group in schedule.groups]


def run(schedule: Schedule, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The result of its one kernel, and what was told of an index outside."""
    group, = schedule.groups
    kernel, word = emit(group), torch.zeros(1, dtype=torch.int64)
    found = torch.full((*x.shape[:-1], *index.shape), float("nan"), dtype=x.dtype)
    reports = [a for a in kernel.args if isinstance(a, Node) and a.op is report]
    first, second = schedule.graph.inputs
    run_source(kernel, {first: x, second: index, group.outputs[0]: found, literal(0): word,
                        **{told: torch.tensor([word.data_ptr(), 100_000]) for told in reports}}, 400)
    return found, int(word) - 100_000 if int(word) else 0


@by_default("shape0-*", "shape1-*-True", "*-float16-False", "shape3-*-True", "shape4-*-False", "shape5-*-True",
            "shape6-*-False")
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(("shape", "count", "dtype"), [
    ((2, 133, 1032), 1500, "bfloat16"), ((265, 1024), 300, "float32"), ((270, 8192), 1024, "float16"),
    ((141, 1531), 1100, "bfloat16"), ((133, 5003), 700, "float32"),
    ((67, 16_383), 4100, "float32"), ((66, 30_000), 5000, "bfloat16")])
def test_elements_are_those_of_their_rows(shape: tuple[int, ...], count: int, dtype: str, checked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(getattr(torch, dtype))
    index = torch.randint(-shape[-1] if checked else 0, shape[-1], (count,), generator=generator)
    schedule = taken(shape, count, dtype, checked)
    assert names(schedule) == ["taken_in_rows"]
    found, told = run(schedule, x, index)
    assert torch.equal(found, x[..., index]) and not told


def test_elements_of_other_sizes_are_taken_where_they_lie() -> None:
    """As in the op's own samples, which no pass has chosen."""
    gpu, index = backend_named("h200"), an_input(1, (5,), int64)
    for name, shares in (("bool", False), ("int8", False), ("float64", False), ("float32", True), ("float16", True)):
        assert gpu.supports(taken_in_rows(index, an_input(0, (3, 16), dtype_named(name)))) is shares
    assert not gpu.supports(taken_in_rows(index, an_input(0, (3, 16_385), dtype_named("float32"))))


def test_an_index_outside_is_told() -> None:
    index = torch.arange(300)
    index[280] = 1040
    _, told = run(taken((265, 1032), 300), torch.zeros(265, 1032, dtype=torch.bfloat16), index)
    assert told == 1040


def test_other_rows_are_read_where_they_lie() -> None:
    """Few rows, short rows, rows of which little is read, long ones, and what is computed with."""
    for shape, count in (((60, 8192), 2048), ((300, 512), 2048), ((300, 8192), 64), ((300, 33_000), 9000)):
        assert names(taken(shape, count)) == ["in_range_take"]
    assert "taken_in_rows" not in names(taken((300, 8192), 2048, returned=False))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_it_compiles_for_a_gpu(dtype: str) -> None:
    kernel = emit(taken((13, 120, 4096), 2048, dtype).groups[0])
    assert kernel.grid == (780, 1, 1) and compile_cubin(kernel)


def test_plans_of_open_sizes_take_elements_in_rows() -> None:
    """Sizes are arguments: other rows of the class have the same kernel, and its vectors end where theirs do."""
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 28)):
        for rows, length, count in ((300, 1024, 500), (271, 1008, 500), (264, 1016, 400)):
            x, index = np.random.default_rng(rows).standard_normal((rows, length)).astype(np.float32), np.arange(count)
            index = index * 7 % length
            table, at = genesis.tensor(x, device="cuda"), genesis.tensor(index, device="cuda")
            found = table.index_select(1, at)
            genesis.eval(found)
            plan = engine.last_plan()
            assert plan is not None and [step.label for step in plan.plan.steps if isinstance(step, Launch)] == [
                "taken_in_rows"]
            np.testing.assert_array_equal(found.cpu().numpy(), x[:, index])
