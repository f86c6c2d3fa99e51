"""A fourth backend: arrays of numpy, a table of primitives; every other op is decomposed into these.

It is all that a backend takes: what it supports, how it groups and lowers, its executor, its memory. Nothing in
`genesis` knows of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from genesis.codegen.base import Backend
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.numbers import fold_numbers
from genesis.ir.ops import leaves
from genesis.ir.place import Place
from genesis.ir.types import Device, DType, TensorType
from genesis.passes.fusion.group_per_op import group_per_op
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.plan_memory import MemoryPlan
from genesis.runtime.plan import Call, Plan, Register

Ints = tuple[int, ...]


def _iota(shape: Ints, axis: int, dtype: DType, device: Device) -> np.ndarray:
    return np.indices(shape, sparse=True)[axis].astype(dtype.numpy)


def _region(starts: Ints, stops: Ints, steps: Ints) -> tuple[slice, ...]:
    return tuple(map(slice, starts, stops, steps))


def _pad(x: np.ndarray, low: Ints, high: Ints, value: Any) -> np.ndarray:
    return np.pad(x, tuple(zip(low, high, strict=True)), constant_values=value)


def _assign(base: np.ndarray, value: np.ndarray, starts: Ints, stops: Ints, steps: Ints) -> np.ndarray:
    result = base.copy()
    result[_region(starts, stops, steps)] = value
    return result


def _scatter_add(base: np.ndarray, index: np.ndarray, source: np.ndarray, axis: int) -> np.ndarray:
    result, places = base.copy(), list(np.indices(index.shape, sparse=True))
    places[axis] = index
    np.add.at(result, tuple(places), source[tuple(map(slice, index.shape))])
    return result


def _random_bits(seed: int, draw: int, shape: Ints, word: int, words: int, device: Device) -> np.ndarray:
    """Philox 4x32-10, as `genesis.ir.ops.random` says."""
    low = np.uint64(0xFFFFFFFF)
    number = np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(words) + np.uint64(word)
    count, thirty_two = number >> np.uint64(2), np.uint64(32)
    c0, c1 = count & low, count >> thirty_two
    c2, c3 = (np.full_like(c0, draw >> shift & 0xFFFFFFFF) for shift in (0, 32))
    for turn in range(10):
        k0, k1 = (np.uint64((seed >> shift & 0xFFFFFFFF) + turn * step & 0xFFFFFFFF)
                  for shift, step in ((0, 0x9E3779B9), (32, 0xBB67AE85)))
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = p1 >> thirty_two ^ c1 ^ k0, p1 & low, p0 >> thirty_two ^ c3 ^ k1, p0 & low
    words_of = np.stack([c0, c1, c2, c3])
    return words_of[number & np.uint64(3), np.arange(number.size)].astype(np.uint32).view(np.int32).reshape(shape)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])

LOWERINGS: dict[str, Callable[..., Any]] = {
    "const": lambda value, type: np.full(type.shape, value),
    "iota": _iota,
    "random_bits": _random_bits,
    "reshape": lambda x, shape: x.reshape(shape),
    "permute": lambda x, axes: x.transpose(axes),
    "expand": lambda x, shape: np.broadcast_to(x, shape),
    "slice": lambda x, starts, stops, steps: x[_region(starts, stops, steps)],
    "pad": _pad,
    "assign": _assign,
    "cast": lambda x, dtype: x.astype(dtype.numpy) if isinstance(x, np.ndarray) else x,
    "where": np.where,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "neg": np.negative,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "log": np.log, "cos": np.cos, "tanh": np.tanh,
    "ndtr": lambda x: _erfc(x.astype(np.float64) * -math.sqrt(0.5)) / 2,
    "maximum": np.maximum, "remainder": np.remainder,
    "bitwise_and": np.bitwise_and, "right_shift": np.right_shift, "left_shift": np.left_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "gt": np.greater, "ge": np.greater_equal,
    "sum": lambda x, axes, keepdims: x.sum(axes, x.dtype, keepdims=keepdims),
    "max": lambda x, axes, keepdims: x.max(axes, keepdims=keepdims),
    "matmul": np.matmul,
    "take": lambda x, index, axis: np.take(x, index, axis),
    "gather": lambda x, index, axis: np.take_along_axis(x, index, axis),
    "scatter_add": _scatter_add,
}


class Memory:
    """Memory of this backend: numpy's."""

    def __init__(self, nbytes: int):
        self.nbytes, self.bytes = nbytes, np.empty(nbytes, np.uint8)

    def copy_from_host(self, array: np.ndarray) -> None:
        self.bytes[:] = array.reshape(-1).view(np.uint8)

    def copy_to_host(self, array: np.ndarray) -> None:
        array.reshape(-1).view(np.uint8)[:] = self.bytes

    def clone(self) -> Memory:
        copy = Memory(self.nbytes)
        copy.bytes[:] = self.bytes
        return copy

    def show(self, type: TensorType, offset: int = 0) -> np.ndarray:
        return self.bytes[offset:offset + type.nbytes].view(type.dtype.numpy).reshape(type.shape)


class NumpyExecutor:
    """Runs calls over memory that is looked up by place."""

    def __init__(self, plan: Plan):
        self.plan, self.arena = plan, Memory(plan.arena_bytes)

    def run(self, memories: Sequence[Memory], numbers: Sequence[bool | int | float]) -> list[Memory]:
        outputs = [Memory(type.nbytes) for type in self.plan.outputs]
        values = {"input": memories, "output": outputs, "arena": [self.arena]}

        def start(register: Register) -> Any:
            if not isinstance(register, Place):
                return register
            if register.where == "numbers":
                return numbers[register.index]
            return values[register.where][register.index].show(register.type, register.offset)
        registers = [start(register) for register in self.plan.registers]
        with np.errstate(all="ignore"):
            for call in self.plan.steps:
                assert isinstance(call, Call)
                result = call.function(*[registers[i] for i in call.args], **call.attributes)
                at, = call.outs
                if call.kind == "number":
                    registers[at] = result
                else:
                    np.copyto(registers[at], result, casting="unsafe")
        return outputs


class NumpyBackend(Backend):
    """Arrays of numpy, an op at a time."""

    def __init__(self, name: str = "numpy"):
        self.name = name

    def supports(self, node: Node) -> bool:
        return node.op.name in LOWERINGS or (type(node.type) is not tuple and node.type.weak)

    def group(self, graph: Graph) -> Schedule:
        return group_per_op(graph, lambda node: False, self.name)

    def may_overwrite(self, group: Group, output: Node, operand: Node) -> bool:
        return False

    def lower(self, schedule: Schedule, memory: MemoryPlan) -> tuple[tuple[Call, ...], tuple[Register, ...]]:
        starts: list[Register] = []
        calls: list[Call] = []
        numbers: dict[Node, int] = {}

        def register(start: Register) -> int:
            starts.append(start)
            return len(starts) - 1

        def number(node: Node) -> int:
            if node not in numbers:
                if node.op is leaves.const:
                    numbers[node] = register(node["value"])
                elif node.op is leaves.scalar:
                    numbers[node] = register(Place("numbers", node["index"], 0, node.type))
                else:
                    args = tuple(map(number, node.inputs))
                    numbers[node] = register(None)
                    calls.append(Call(partial(fold_numbers, node.op), args, (numbers[node],), "number",
                                      node.attributes, node.op.name))
            return numbers[node]

        def copy(source: Place, target: Place) -> None:
            calls.append(Call(np.asarray, (register(source),), (register(target),), "out"))

        for source, target in memory.before:
            copy(source, target)
        for at, group in enumerate(schedule.groups):
            node = group.nodes[0]
            args = tuple(number(x) if x.type.weak else register(memory.places[x]) for x in node.inputs)
            calls.append(Call(LOWERINGS[node.op.name], args, (register(memory.places[node]),), "out", node.attributes,
                              node.op.name))
            for when, value, place in memory.copies:
                if when == at:
                    copy(memory.places[value], place)
        for source, target in memory.after:
            copy(source, target)
        return tuple(calls), tuple(starts)

    def executor(self, plan: Plan) -> NumpyExecutor:
        return NumpyExecutor(plan)

    def allocate(self, nbytes: int, device: Device) -> Memory:
        return Memory(nbytes)

    def device_count(self) -> int:
        return 1
