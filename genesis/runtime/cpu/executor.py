"""Runs a CPU plan: torch calls over planned memory.

Tensors over the arena are made once, when the executor is; views of inputs that did not change since
the last run are kept, as long as somebody else keeps the inputs: a plan in the cache holds no memory.
What remains for a run is the list of calls that compute. An output is memory that torch allocated: before
the first call, or by the call that makes it. Calls that overwrite inputs are not made but handed back, ready: whoever
runs the plan makes them at once, when all else is done (`engine/running.py`).
"""

from __future__ import annotations

import atexit
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple, TypeAlias

import torch

from genesis.ir.place import Place
from genesis.ir.types import TensorType
from genesis.runtime.cpu.failed_call import told
from genesis.runtime.cpu.storage import CPUStorage
from genesis.runtime.cpu.straight_line import MOST_CALLS, RUNS_BEFORE, StraightLine
from genesis.runtime.plan import Call, Plan

atexit.register(gc.collect)  # torch ends a process whose last collection finds a finalizer that computes with tensors


class _HostArena:
    """Scratch memory that all CPU plans share; `version` grows whenever it moves."""

    def __init__(self) -> None:
        self.storage = CPUStorage(0)
        self._versions = count(1)
        self.version = 0

    def reserve(self, nbytes: int) -> None:
        """Make the arena hold at least this many bytes; when that fails it stays as large as it was."""
        if nbytes > self.storage.nbytes:
            self.storage = CPUStorage(nbytes)
            self.version = next(self._versions)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Inside, the arena is another piece of memory: a plan that was interrupted goes on with its own afterwards."""
        before = self.storage, self.version
        self.storage, self.version = CPUStorage(0), next(self._versions)
        try:
            yield
        finally:
            self.storage, self.version = before


arena = _HostArena()


def torch_view(storage: CPUStorage, type: TensorType, offset: int = 0) -> torch.Tensor:
    """A row-major torch tensor of this type over a storage's memory, from byte `offset` on."""
    dtype = torch_dtype(type)
    if not type.numel:
        return torch.empty(type.shape, dtype=dtype)
    return torch.frombuffer(storage.bytes, dtype=dtype, count=type.numel, offset=offset).view(type.shape)


def tensor_over(memory: CPUStorage, type: TensorType) -> torch.Tensor:
    """The torch tensor that shows all of a memory; the memory keeps it for the next call."""
    if memory.shown is not type:
        shown = torch_view(memory, type)
        memory.shown = None  # first: between the two that follow an exception may come
        memory.tensor = shown
        memory.shown = type
    return memory.tensor


def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A torch tensor over fresh memory for an output; its contents are undefined.

    Raises:
        MemoryError: the host has no such block.
    """
    try:
        return torch.empty(shape, dtype=dtype)
    except RuntimeError as error:
        raise MemoryError(str(error)) from None


def owned(result: torch.Tensor, type: TensorType, operands: Sequence[object]) -> torch.Tensor:
    """A call's result as an output: the result itself if it is row-major and alone in its memory, else a copy."""
    memory = result.untyped_storage()
    at = memory.data_ptr()
    if (memory.nbytes() == type.nbytes and result.is_contiguous() and result.shape == type.shape
            and result.dtype is torch_dtype(type)
            and not any(x.untyped_storage().data_ptr() == at for x in operands if isinstance(x, torch.Tensor))):
        return result
    return allocate(type.shape, torch_dtype(type)).copy_(result)


def torch_dtype(type: TensorType) -> torch.dtype:
    """The dtype of a tensor of this type."""
    return getattr(torch, type.dtype.name)


Value: TypeAlias = "torch.Tensor | bool | int | float | None"
"""What a register holds while a plan runs."""

PreparedCall = tuple[Callable, tuple[int, ...], tuple[int, ...], dict[str, object], str, tuple[int, ...]]
"""(function, registers of its operands, of its results, attributes, kind, registers that no later call reads)."""


class Started(NamedTuple):
    """A plan that has computed all but what overwrites its inputs.

    Attributes:
        outputs: the memories of its outputs; what is written to last is not there yet.
        writes: the calls into C that are left, to be made in order, each once, and with nothing between that could
            raise or look at the memory. None of them fails.
    """

    outputs: list[CPUStorage]
    writes: list[Callable[[], object]]


class CPUExecutor:
    """A CPU plan that is ready to run.

    What a run works with is bound to memory (`_Bound`) and belongs to that run alone: it takes it from the executor and
    gives it back at its end. A run that is interrupted, at whatever point, gives nothing back, and the next one binds
    anew; so does one that begins while another is in the middle.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.at: dict[str, list[tuple[int, Place]]] = {"input": [], "output": [], "arena": [], "numbers": []}
        for index, start in enumerate(plan.registers):
            if isinstance(start, Place):
                self.at[start.where].append((index, start))
        made = {index for call in plan.steps if isinstance(call, Call) and call.kind in ("fresh", "made")
                for index in call.outs}
        self.outputs = [(index, place.type) for index, place in sorted(self.at["output"], key=lambda x: x[1].index)]
        self.adopted = {index: (type, torch_dtype(type)) for index, type in self.outputs if index in made}
        self.reserved = [(index, type.shape, torch_dtype(type)) for index, type in self.outputs if index not in made]
        self._free: list[_Bound] = []

    def run(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float]) -> list[CPUStorage]:
        """Run the plan over these memories; returns the outputs'."""
        outputs, writes = self.start(inputs, numbers)
        for write in writes:
            write()
        return outputs

    def start(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float]) -> Started:
        """Run all of the plan but what overwrites inputs. Outputs that no call allocates are allocated first."""
        if torch.is_inference_mode_enabled():  # nothing may write later to a tensor that torch makes in that mode
            with torch.inference_mode(False):
                return self.start(inputs, numbers)
        try:
            bound = self._free.pop()
        except IndexError:
            bound = _Bound(self)
        registers = bound.registers
        for index, shape, dtype in self.reserved:
            registers[index] = allocate(shape, dtype)
        if self.plan.arena_bytes:
            arena.reserve(self.plan.arena_bytes)
        changed = bound.bind(inputs)
        for index, place in self.at["numbers"]:
            registers[index] = numbers[place.index]
        if bound.arena_version != arena.version:
            bound.prepare()
        elif changed:
            bound.rebind(changed)
        bound.runs += 1
        if bound.runs == RUNS_BEFORE:
            bound.write_out()
        writes = self._call_all(bound, registers)
        outputs = []
        for index, kept in self.outputs:
            outputs.append(CPUStorage.holding(registers[index], kept))
            registers[index] = None
        self._free.append(bound)
        return Started(outputs, writes)

    def _call_all(self, bound: _Bound, registers: list[Value]) -> list[Callable[[], object]]:
        """Make the calls; returns what the last ones have made ready to be called."""
        straight = bound.straight
        if straight is not None:
            try:
                return straight.run(registers, [])
            except (IndexError, RuntimeError) as error:
                _, args, outs, *_ = straight.failed(error.__traceback__)
                raise told(error, self._call_of(args, outs), [registers[i] for i in args]) from None
        args, outs = (), ()
        operands: list[Value] = []
        writes: list[Callable[[], object]] = []
        try:
            for function, args, outs, attributes, kind, frees in bound.steps:
                operands = [registers[i] for i in args]
                if kind == "out":
                    function([registers[i] for i in outs], *operands, **attributes)
                elif kind == "late":
                    writes += function([registers[i] for i in outs], *operands, **attributes)
                elif kind == "made":
                    result = function((None,) * len(outs), *operands, **attributes)
                    for i, part in zip(outs, result if isinstance(result, tuple) else (result,), strict=True):
                        wanted, dtype = self.adopted[i]
                        usual = part.dtype is dtype and part.is_contiguous()
                        registers[i] = part if usual else owned(part, wanted, operands)
                else:
                    result = function(*operands, **attributes)
                    for i, part in zip(outs, result if type(result) is tuple else (result,), strict=False):
                        registers[i] = owned(part, self.adopted[i][0], operands) if i in self.adopted else part
                for i in frees:
                    registers[i] = None
        except (IndexError, RuntimeError) as error:
            raise told(error, self._call_of(args, outs), operands) from None
        return writes

    def _call_of(self, args: tuple[int, ...], outs: tuple[int, ...]) -> Call:
        """The plan's call with these operands and results."""
        return next(call for call in self.plan.steps
                    if isinstance(call, Call) and call.args == args and call.outs == outs)


class _Bound:
    """What one run at a time works with: the registers, and the calls over them.

    Attributes:
        registers: the plan's values; those over the arena and over inputs stay from run to run.
        steps: the calls that a run makes. Those from the first on that overwrites an input are only made ready.
        arena_version: the version of the arena that the registers are over.
        runs: how often these calls were made.
        straight: the calls as one function; None before they were made a few times.
    """

    def __init__(self, executor: CPUExecutor):
        self.executor = executor
        self.runs = 0
        self.straight: StraightLine | None = None
        self.registers: list[Value] = [None if isinstance(x, Place) else x for x in executor.plan.registers]
        self.steps: list[PreparedCall] = []
        self.arena_version = -1
        self._inputs: list[Callable[[], object]] = [lambda: None] * len(self.registers)
        self._rebinds: list[tuple[frozenset[int], Call]] = []
        self._views: dict[int, list[int]] = {}

    def bind(self, inputs: Sequence[CPUStorage]) -> set[int]:
        """Make tensors over the inputs' memories; returns the registers whose memory is not that of the last run."""
        changed = set()
        bound = self._inputs
        for index, place in self.executor.at["input"]:
            memory = inputs[place.index]
            if bound[index]() is not memory:
                # The reference comes first: the callback of the one that it replaces forgets the old memory.
                bound[index] = weakref.ref(memory, self._forgets(index))
                self.registers[index] = tensor_over(memory, place.type)
                changed.add(index)
        return changed

    def rebind(self, changed: set[int]) -> None:
        """Make the views of inputs whose memory changed."""
        for depends, call in self._rebinds:
            if not depends.isdisjoint(changed):
                self.registers[call.outs[0]] = call.function(self.registers[call.args[0]], **call.attributes)

    def _forgets(self, index: int) -> Callable[[object], None]:
        """The callback for when an input's memory is dropped: its register and those of its views let go of it."""
        registers, views = self.registers, self._views

        def forget(_: object) -> None:
            registers[index] = None
            for view in views.get(index, ()):
                registers[view] = None
        return forget

    def prepare(self) -> None:
        """Make the tensors over the arena, run the views that only depend on them or on inputs, and
        list the calls that are left."""
        registers, at, adopted = self.registers, self.executor.at, self.executor.adopted
        for index, place in at["arena"]:
            registers[index] = torch_view(arena.storage, place.type, place.offset)
        sources: dict[int, frozenset[int]] = {index: frozenset() for index, _ in at["arena"]}
        sources.update({index: frozenset([index]) for index, _ in at["input"]})
        made: set[int] = set()
        remaining: list[Call] = []
        self._rebinds.clear()
        self._views.clear()
        for call in self.executor.plan.steps:
            assert isinstance(call, Call)
            if call.kind == "view" and call.args[0] in sources and not self._copies(call):
                depends = sources[call.outs[0]] = sources[call.args[0]]
                registers[call.outs[0]] = call.function(registers[call.args[0]], **call.attributes)
                if depends:
                    self._rebinds.append((depends, call))
                    for index in depends:
                        self._views.setdefault(index, []).append(call.outs[0])
            else:
                remaining.append(call)
                if call.kind != "out":
                    made.update(i for i in call.outs if i not in adopted)
        last = {index: at for at, call in enumerate(remaining) for index in (*call.args, *call.outs)}
        given = {index for index, _ in at["input"]}
        late, self.steps = False, []
        for number, call in enumerate(remaining):
            frees = tuple(i for i in dict.fromkeys((*call.args, *call.outs)) if i in made and last[i] == number)
            late = late or (call.kind == "out" and not given.isdisjoint(call.outs))
            function, kind = call.function, call.kind
            if late and kind == "out":
                assert call.late is not None, f"{call.label} stands after what overwrites memory"
                function, kind = call.late, "late"
            self.steps.append((function, call.args, call.outs, call.attributes, kind, frees))
        self.arena_version = arena.version
        self.runs, self.straight = 0, None

    def write_out(self) -> None:
        """Make one function of the calls."""
        if len(self.steps) <= MOST_CALLS:
            direct = {call.function: call.direct for call in self.executor.plan.steps
                      if isinstance(call, Call) and call.direct is not None}
            self.straight = StraightLine(self.steps, self.executor.adopted, owned, direct)

    def _copies(self, call: Call) -> bool:
        """True for a reshape whose operand's strides allow no view: it must run every time."""
        operand = self.registers[call.args[0]]
        assert isinstance(operand, torch.Tensor)
        result = call.function(operand, **call.attributes)
        return bool(result.untyped_storage().data_ptr() != operand.untyped_storage().data_ptr())
