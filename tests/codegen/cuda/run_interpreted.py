"""Run kernels on the CPU: Triton's interpreter over torch tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import Exchange, From, KernelSource, MatrixMap, TensorTable
from genesis.ir.node import Node
from genesis.ir.types import DType
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group, Schedule
from genesis.runtime.fake_cuda.accesses import Accesses, watch
from genesis.runtime.fake_cuda.interpreter import interpreting, load_source


def torch_dtype(dtype: DType) -> torch.dtype:
    """torch's dtype of the same name."""
    return getattr(torch, dtype.name)


def empty(node: Node) -> torch.Tensor:
    """Memory for a value, poisoned so that an element nobody writes is seen."""
    shape, dtype = node.shape, torch_dtype(node.dtype)
    if dtype is torch.bool:
        return torch.ones(shape, dtype=torch.uint8).mul_(1).to(torch.bool)
    return torch.full(shape, float("nan") if dtype.is_floating_point else 77, dtype=dtype)


def run_source(kernel: KernelSource, memory: dict[Node, torch.Tensor], most_programs: int = 64) -> None:
    """Interpret one kernel over the memory of its arguments."""
    programs = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
    if not programs:
        return
    assert programs <= most_programs, f"{kernel.name} wants {programs} programs: make the test smaller"
    arguments = [_argument(value, memory) for value in kernel.args]
    names = [name for name, kind in kernel.signature.items() if kind != "constexpr"]
    spans = [(x.data_ptr(), x.data_ptr() + x.numel() * x.element_size())
             for x in (*(getattr(x, "base", x) for x in arguments), *memory.values())
             if isinstance(x, torch.Tensor) and x.numel()]
    function = getattr(load_source(kernel.readable), kernel.name)
    with interpreting():
        watch(Accesses(spans, programs))
        call = dict(zip(names, arguments, strict=True)) | dict(kernel.constexprs)
        function.run(**call, grid=kernel.grid, warmup=False)


def _argument(value: Any, memory: dict[Node, torch.Tensor]) -> Any:
    if isinstance(value, TensorTable):
        entries = [entry if isinstance(entry, int) else _memory(entry, memory).data_ptr() for entry in value.entries]
        return torch.tensor(entries, dtype=torch.int64)
    if isinstance(value, MatrixMap):
        from triton.tools.tensor_descriptor import TensorDescriptor
        base = _memory(value.node, memory).reshape(-1)[value.start:]
        return TensorDescriptor(base, [*(n for n, _ in value.outer), *value.shape],
                                [*(n for _, n in value.outer), value.stride, 1], list(value.block))
    if isinstance(value, Exchange):
        return torch.zeros(value.type.shape, dtype=torch_dtype(value.type.dtype))
    if isinstance(value, From):
        return _memory(value.node, memory).reshape(-1)[value.start:]
    return value if isinstance(value, int) else _memory(value, memory)


def _memory(node: Node, memory: dict[Node, torch.Tensor]) -> torch.Tensor:
    return memory[node] if node in memory else memory[stored_as(node)]


def run_group(group: Group, memory: dict[Node, torch.Tensor], **limits: Any) -> None:
    """Interpret a group; its outputs are added to the memory. A slice is in that of the whole, poisoned as well."""
    if group.kind == "joined":
        return
    for node in group.outputs:
        found = group.slice_of(node)
        whole = node if found is None else found.whole
        if found is None or whole not in memory:
            memory[whole] = empty(whole)
            memory.setdefault(stored_as(whole), memory[whole])
        memory[node] = memory[whole]
    for node, origin in group.starts_from:
        memory[node].view(-1).copy_(_memory(origin, memory).reshape(-1))
    run_source(emit(group), memory, **limits)


def run_schedule(schedule: Schedule, inputs: Sequence[torch.Tensor], numbers: Sequence[Any] = (),
                 **limits: Any) -> list[torch.Tensor]:
    """Interpret all groups in order and return the graph's roots."""
    memory: dict[Node, torch.Tensor] = {}
    for node in schedule.graph.nodes:
        if node.op.name == "input":
            memory[node] = inputs[node["index"]].contiguous().clone()
        elif node.op.name == "scalar":
            memory[node] = torch.tensor([numbers[node["index"]]], dtype=torch_dtype(node.dtype))
    for group in schedule.groups:
        for node in group.inputs:
            assert stored_as(node) in memory, f"group {group.reason} reads {node} before it is written"
        run_group(group, memory, **limits)
    return [_memory(node, memory) for node in schedule.graph.roots]


def compile_cubin(kernel: KernelSource, architecture: int = 90) -> bytes:
    """The binary of a kernel, to see that Triton takes the text."""
    from genesis.codegen.cuda.worker import compile_kernel
    return compile_kernel(kernel.key_parts(), architecture)["cubin"]


def check_what_is_not_finite(sums: Callable[[int, int], Schedule]) -> None:
    """Infinities and NaN stay in their sums, and zeros that are added leave -0.0 as it was.

    Args:
        sums: (sums of a line, positions) → the program that adds to a line of float32.
    """
    inf, nan, rows, count = math.inf, math.nan, 300, 600
    index, added = torch.arange(count)[None] % rows, torch.ones(1, count)
    base = torch.zeros(1, rows)
    base[0, 7], base[0, 9], base[0, 11] = -0.0, inf, nan
    for place, first, second in ((0, inf, 1), (1, inf, inf), (2, -inf, 5), (3, inf, -inf), (4, nan, 1), (5, inf, nan),
                                 (6, -inf, -inf), (7, 0.0, -0.0), (8, 3e38, 3e38), (9, -inf, 1), (10, -3e38, -3e38)):
        added[0, place], added[0, place + rows] = first, second
    found, = run_schedule(sums(rows, count), [base, index, added])
    torch.testing.assert_close(found, base.scatter_add(1, index, added), rtol=0, atol=0, equal_nan=True)
    assert torch.signbit(found[0, 7])
