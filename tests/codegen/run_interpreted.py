"""Run kernels on the CPU: Triton's interpreter over torch tensors, numpy in place of libdevice."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.experimental.gluon  # noqa: F401  (checks what triton.jit makes when it is first imported)
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import JITFunction

from genesis.codegen.emit import emit
from genesis.codegen.source import KernelSource, TensorTable, define
from genesis.ir.node import Node
from genesis.ir.types import DType
from genesis.passes.groups import Group, Schedule
from genesis.passes.views import stored_as


def _vectorized(name: str) -> Any:
    import math
    return np.vectorize(getattr(math, name), otypes=[np.float64])


LIBDEVICE = {
    **{name: getattr(np, name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt",
        "floor", "ceil", "trunc", "rint", "fmod")},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "pow": np.power, "erf": _vectorized("erf"), "erfc": _vectorized("erfc"),
}


def _stand_in(function: Any) -> Any:
    """A numpy function as the interpreter's version of a libdevice one; computed in float64, rounded once."""
    def call(*args: Any, **_: Any) -> Any:
        args = tuple(a if isinstance(a, tl.tensor) else None for a in args)
        data = [a.handle.data.astype(np.float64) for a in args]
        dtype = args[0].dtype.scalar
        with np.errstate(all="ignore"):
            result = np.asarray(function(*data)).astype(args[0].handle.data.dtype)
        shape = args[0].type if len(args) == 1 else _wider(args)
        return tl.tensor(TensorHandle(result, dtype), shape)
    return call


def _wider(args: tuple[Any, ...]) -> Any:
    shape = np.broadcast_shapes(*(tuple(int(s) for s in a.shape) for a in args))
    return tl.block_type(args[0].dtype.scalar, list(shape)) if shape else args[0].dtype.scalar


@contextmanager
def interpreting() -> Iterator[None]:
    """`triton.jit` makes interpreted functions, and libdevice is numpy."""
    before = [(place, dict(vars(place))) for place in _PATCHED]
    triton.jit = InterpretedFunction
    for name, function in LIBDEVICE.items():
        setattr(libdevice, name, _stand_in(function))
    for name, function in _interpreted_library().items():
        for place in (tl, tl.standard):
            if hasattr(place, name):
                setattr(place, name, function)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        for place, names in before:
            for name, value in names.items():
                if vars(place).get(name) is not value:
                    setattr(place, name, value)


_PATCHED = (triton, libdevice, tl, tl.core, tl.math, tl.standard, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)
"""What interpreting changes. The interpreter restores some of it itself, not all, and a later compilation minds."""


@cache
def _interpreted_library() -> dict[str, Any]:
    """Triton's own functions written in Triton (`tl.sum`, `tl.zeros`, ...), made to be interpreted.

    Without TRITON_INTERPRET in the environment they were made for the compiler when triton was imported.
    """
    return {name: InterpretedFunction(value.fn) for name, value in vars(tl.standard).items()
            if isinstance(value, JITFunction)}


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
    with interpreting():
        function = define(kernel.source)[kernel.name]
        call = dict(zip(names, arguments, strict=True)) | dict(kernel.constexprs)
        function.run(**call, grid=kernel.grid, warmup=False)


def _argument(value: Any, memory: dict[Node, torch.Tensor]) -> Any:
    if isinstance(value, TensorTable):
        entries = [entry if isinstance(entry, int) else _memory(entry, memory).data_ptr() for entry in value.entries]
        return torch.tensor(entries, dtype=torch.int64)
    return value if isinstance(value, int) else _memory(value, memory)


def _memory(node: Node, memory: dict[Node, torch.Tensor]) -> torch.Tensor:
    return memory[node] if node in memory else memory[stored_as(node)]


def run_group(group: Group, memory: dict[Node, torch.Tensor], **limits: Any) -> None:
    """Interpret a group; its outputs are added to the memory."""
    for node in group.outputs:
        memory[node] = empty(node)
        memory.setdefault(stored_as(node), memory[node])
    for kernel in emit_all(group):
        run_source(kernel, memory, **limits)


def emit_all(group: Group) -> Sequence[KernelSource]:
    """The kernels of a group in order."""
    found = emit(group)
    return found if isinstance(found, tuple) else (found,)


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


@cache
def target() -> Any:
    """The GPU that cubins are compiled for without having one."""
    from triton.backends.compiler import GPUTarget
    return GPUTarget("cuda", 90, 32)


def compile_cubin(kernel: KernelSource) -> bytes:
    """The sm_90 binary of a kernel, to see that Triton takes the text."""
    from genesis.codegen.worker import compile_kernel
    return compile_kernel(kernel.key_parts())["cubin"]

