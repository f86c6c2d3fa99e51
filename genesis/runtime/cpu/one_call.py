"""Runs a CPU plan of one call that allocates its results: most reads of an eager-looking program.

Such a plan binds nothing and keeps nothing between runs. After a large op the interpreter is cache-cold, so a run costs
what its number of Python statements costs (`benchmarks/host_time.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genesis.ir.place import Place
from genesis.ir.types import TensorType
from genesis.runtime.cpu.executor import Started, owned, tensor_over, torch_dtype
from genesis.runtime.cpu.failed_call import told
from genesis.runtime.cpu.storage import CPUStorage
from genesis.runtime.plan import Call, Plan, Register


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
        self._outs = (None,) * len(call.outs)
        self._operands = [_operand(plan.registers[i]) for i in call.args]
        self._function, self._attributes = call.function, call.attributes
        self._results = [(type, torch_dtype(type)) for type in plan.outputs]
        self._only = self._results[0] if len(self._results) == 1 else None

    def start(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float]) -> Started:
        """Run the plan, which overwrites nothing."""
        return Started(self.run(inputs, numbers), [])

    def run(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float]) -> list[CPUStorage]:
        """Run the plan over these memories; returns the outputs'."""
        if torch.is_inference_mode_enabled():  # nothing may write later to a tensor that torch makes in that mode
            with torch.inference_mode(False):
                return self.run(inputs, numbers)
        operands = [tensor_over(inputs[x], type) if type is not None else numbers[x] if is_number else x
                    for x, type, is_number in self._operands]
        try:
            made = self._function(self._outs, *operands, **self._attributes)
        except (IndexError, RuntimeError) as error:
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


def _operand(start: Register) -> tuple[Any, TensorType | None, bool]:
    """How to look an operand up: (input, its type, False), (number, None, True) or (a literal, None, False)."""
    if not isinstance(start, Place):
        return start, None, False
    return (start.index, start.type, False) if start.where == "input" else (start.index, None, True)
