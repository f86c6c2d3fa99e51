"""Runs a CPU plan of one call that allocates its results: most reads of an eager-looking program.

Such a plan binds nothing and keeps nothing between runs. After a large op the interpreter is cache-cold, so a run costs
what its number of Python statements costs (`benchmarks/host_time.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from genesis.ir.interrupting import of_computing
from genesis.ir.place import Place
from genesis.ir.types import TensorType
from genesis.runtime.cpu.executor import Started, first_value, owned, tensor_over, torch_dtype
from genesis.runtime.cpu.failed_call import told
from genesis.runtime.cpu.number_tensors import operand_tensor
from genesis.runtime.cpu.storage import CPUStorage
from genesis.runtime.cpu.thread_modes import Without, any_on
from genesis.runtime.plan import Call, NumberTensor, Plan


def is_one_call(plan: Plan) -> bool:
    """Whether one call makes all of the plan's outputs, in order, from inputs and numbers."""
    if len(plan.steps) != 1:
        return False
    call, = plan.steps
    if not isinstance(call, Call) or call.kind != "made":
        return False
    made = [plan.registers[i] for i in call.outs]
    return [x.index for x in made if isinstance(x, Place)] == list(range(len(plan.outputs)))


class OneCall:
    """A plan of one call that is ready to run."""

    def __init__(self, plan: Plan):
        self.plan = plan
        call, = plan.steps
        assert isinstance(call, Call)
        registers = list(enumerate([plan.registers[i] for i in call.args]))
        self._operands = [first_value(x) for _, x in registers]
        places = [(at, x) for at, x in registers if isinstance(x, Place)]
        self._inputs = [(at, x.index, x.type) for at, x in places if x.where == "input"]
        self._numbers = [(at, x.index) for at, x in places if x.where == "numbers"]
        self._number_tensors = [(at, x.value.index, getattr(torch, x.dtype.name)) for at, x in registers
                                if isinstance(x, NumberTensor) and isinstance(x.value, Place)]
        self._call: Callable[..., Any] = partial(call.function, (None,) * len(call.outs), **call.attributes)
        self._after: Sequence[object] = ()
        direct = call.direct_as("made")
        if direct is not None:
            self._call, self._after = direct.function, direct.arguments(call.attributes)
        self._results = [(type, torch_dtype(type)) for type in plan.outputs]
        self._only = self._results[0] if len(self._results) == 1 else None

    def start(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float]) -> Started:
        """Run the plan, which overwrites nothing."""
        return Started(self.run(inputs, numbers), [])

    def run(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float],
            apart: bool = False) -> list[CPUStorage]:
        """Run the plan over these memories; returns the outputs'. `apart`: torch's modes are left out already."""
        if not apart and any_on():
            with Without():
                return self.run(inputs, numbers, True)
        operands = self._operands.copy()
        for at, index, type in self._inputs:
            memory = inputs[index]
            operands[at] = memory.tensor if memory.shown is type else tensor_over(memory, type)
        for at, index in self._numbers:
            operands[at] = numbers[index]
        for at, index, dtype in self._number_tensors:
            operands[at] = operand_tensor(numbers[index], dtype)
        try:
            made = self._call(*operands, *self._after)
        except of_computing(IndexError, RuntimeError) as error:
            call, = self.plan.steps
            assert isinstance(call, Call)
            raise told(error, call, operands) from None
        if self._only is not None:
            return [_kept(made, *self._only, operands)]
        return [_kept(x, type, dtype, operands) for x, (type, dtype) in zip(made, self._results, strict=True)]


def _kept(made: torch.Tensor, type: TensorType, dtype: torch.dtype, operands: Sequence[object]) -> CPUStorage:
    """A storage over the memory of a result."""
    usual = made.dtype is dtype and made.is_contiguous()
    return CPUStorage.holding(made if usual else owned(made, type, operands), type)
