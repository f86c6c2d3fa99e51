"""Runs a CPU plan: torch calls over planned memory.

Tensors over the arena are made once, when the executor is; views of inputs that did not change since
the last run are kept, as long as somebody else keeps the inputs: a plan in the cache holds no memory.
What remains for a run is the list of calls that compute.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from genesis.ir.place import Place
from genesis.ir.types import TensorType
from genesis.runtime.cpu_storage import CPUStorage
from genesis.runtime.plan import Call, Plan


class _Arena:
    """Scratch memory that all CPU plans share; `version` says when it moved."""

    def __init__(self) -> None:
        self.storage = CPUStorage(0)
        self.version = 0

    def reserve(self, nbytes: int) -> None:
        """Make it at least this big, without shrinking it when that fails."""
        if nbytes > self.storage.nbytes:
            self.storage = CPUStorage(nbytes)
            self.version += 1


arena = _Arena()


def torch_view(storage: CPUStorage, type: TensorType, offset: int = 0) -> torch.Tensor:
    """A row-major torch tensor over a storage's memory."""
    dtype = getattr(torch, type.dtype.name)
    if not type.numel:
        return torch.empty(type.shape, dtype=dtype)
    return torch.frombuffer(storage.bytes, dtype=dtype, count=type.numel, offset=offset).view(type.shape)


class CPUExecutor:
    """A plan ready to run."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._arena_version = -1
        self._inputs: list[Callable[[], Any]] = [lambda: None] * len(plan.registers)
        self._registers: list[Any] = [None] * len(plan.registers)
        self._at: dict[str, list[tuple[int, Place]]] = {"input": [], "output": [], "arena": [], "numbers": []}
        for index, start in enumerate(plan.registers):
            if isinstance(start, Place):
                self._at[start.where].append((index, start))
            else:
                self._registers[index] = start
        self._steps: list[tuple] = []
        self._rebinds: list[tuple[frozenset[int], Call]] = []

    def run(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float]) -> list[CPUStorage]:
        """Run over these memories; returns the outputs'. All memory is reserved before the first call."""
        outputs = [CPUStorage(type.nbytes) for type in self.plan.outputs]
        arena.reserve(self.plan.arena_bytes)
        registers = self._registers
        with torch.no_grad():
            changed = self._bind(inputs)
            for index, place in self._at["output"]:
                registers[index] = torch_view(outputs[place.index], place.type)
            for index, place in self._at["numbers"]:
                registers[index] = numbers[place.index]
            if self._arena_version != arena.version:
                self._prepare()
            elif changed:
                for depends, call in self._rebinds:
                    if not depends.isdisjoint(changed):
                        registers[call.outs[0]] = call.function(registers[call.args[0]], **call.attributes)
            for function, args, outs, attributes, kind, frees in self._steps:
                operands = [registers[i] for i in args]
                if kind == "out":
                    function([registers[i] for i in outs], *operands, **attributes)
                else:
                    result = function(*operands, **attributes)
                    if type(result) is tuple:
                        for i, part in zip(outs, result, strict=False):
                            registers[i] = part
                    else:
                        registers[outs[0]] = result
                for i in frees:
                    registers[i] = None
            for index, _ in self._at["output"]:
                registers[index] = None
        return outputs

    def _bind(self, inputs: Sequence[CPUStorage]) -> set[int]:
        """Tensors over the inputs' memory; returns the registers of those that are others than last time."""
        changed = set()
        bound = self._inputs
        for index, place in self._at["input"]:
            memory = inputs[place.index]
            if bound[index]() is not memory:
                self._registers[index] = torch_view(memory, place.type)
                bound[index] = weakref.ref(memory, self._forgets(index))
                changed.add(index)
        return changed

    def _forgets(self, index: int) -> Callable[[Any], None]:
        """Called when the memory that an input register shows is dropped: let go of it and of its views."""
        def forget(_: Any) -> None:
            self._registers[index] = None
            for depends, call in self._rebinds:
                if index in depends:
                    self._registers[call.outs[0]] = None
        return forget

    def _prepare(self) -> None:
        """Make the tensors over the arena, run the views that only depend on them or on inputs, and
        list the calls that are left."""
        registers = self._registers
        for index, place in self._at["arena"]:
            registers[index] = torch_view(arena.storage, place.type, place.offset)
        sources: dict[int, frozenset[int]] = {index: frozenset() for index, _ in self._at["arena"]}
        sources.update({index: frozenset([index]) for index, _ in self._at["input"]})
        made: set[int] = set()
        remaining: list[Call] = []
        self._rebinds = []
        for call in self.plan.steps:
            assert isinstance(call, Call)
            if call.kind == "view" and call.args[0] in sources and not self._copies(call):
                depends = sources[call.outs[0]] = sources[call.args[0]]
                registers[call.outs[0]] = call.function(registers[call.args[0]], **call.attributes)
                if depends:
                    self._rebinds.append((depends, call))
            else:
                remaining.append(call)
                if call.kind != "out":
                    made.update(call.outs)
        last = {index: at for at, call in enumerate(remaining) for index in (*call.args, *call.outs)}
        self._steps = []
        for at, call in enumerate(remaining):
            frees = tuple(i for i in dict.fromkeys((*call.args, *call.outs)) if i in made and last[i] == at)
            kind = "out" if call.kind == "out" else "value"
            self._steps.append((call.function, call.args, call.outs, call.attributes, kind, frees))
        self._arena_version = arena.version

    def _copies(self, call: Call) -> bool:
        """True for a reshape whose operand's strides allow no view: it must run every time."""
        operand = self._registers[call.args[0]]
        result = call.function(operand, **call.attributes)
        return result.untyped_storage().data_ptr() != operand.untyped_storage().data_ptr()
