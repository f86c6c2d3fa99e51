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
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple, TypeAlias, cast

import torch

from genesis.ir.interrupting import of_computing
from genesis.ir.place import Place
from genesis.ir.types import TensorType, row_major
from genesis.runtime.contexts import leaving, uncollected
from genesis.runtime.cpu.failed_call import told
from genesis.runtime.cpu.number_tensors import CPU, operand_tensor
from genesis.runtime.cpu.storage import CPUStorage
from genesis.runtime.cpu.straight_line import MOST_CALLS, RUNS_BEFORE, StraightLine
from genesis.runtime.cpu.thread_modes import Without, any_on, without
from genesis.runtime.plan import Call, Direct, NumberTensor, Plan, Register

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
        try:
            self.storage, self.version = CPUStorage(0), next(self._versions)
            yield
        finally:
            self.storage, self.version = before


arena = _HostArena()


def torch_view(storage: CPUStorage, type: TensorType, offset: int = 0) -> torch.Tensor:
    """A row-major torch tensor of this type over a storage's memory, from byte `offset` on."""
    dtype = torch_dtype(type)
    if not type.numel:
        return torch.empty(type.shape, dtype=dtype, device=CPU)
    return torch.frombuffer(storage.bytes, dtype=dtype, count=type.numel, offset=offset).view(type.shape)


class _Views:
    """Tensors over a storage's memory, one for each type and offset, and all of a dtype views of one: that takes two
    thirds of the time of `torch_view`, and no second object each, which Python's collector would go through. Each value
    without elements has a tensor of its own: all of them may be at one offset at one time, and torch refuses to write
    to the very tensor that it reads."""

    def __init__(self, storage: CPUStorage):
        self._storage = storage
        self._whole: dict[torch.dtype, torch.Tensor] = {}
        self._of: dict[TensorType, _ViewsOfType] = {}

    def at(self, type: TensorType, offset: int) -> torch.Tensor:
        """The row-major tensor of this type from byte `offset` on, a multiple of its elements' size."""
        if not type.numel:
            return torch.empty(type.shape, dtype=torch_dtype(type), device=CPU)
        views = self._of.get(type)
        if views is None:
            views = self._of[type] = self._views_of(type)
        found = views.made.get(offset)
        if found is None:
            found = views.made[offset] = views.whole.as_strided(
                type.shape, views.strides, offset // type.dtype.itemsize)
        return found

    def _views_of(self, type: TensorType) -> _ViewsOfType:
        dtype = torch_dtype(type)
        whole = self._whole.get(dtype)
        if whole is None:
            count = self._storage.nbytes // type.dtype.itemsize
            whole = self._whole[dtype] = torch.frombuffer(self._storage.bytes, dtype=dtype, count=count)
        return _ViewsOfType(whole, row_major(type.shape), {})


class _ViewsOfType(NamedTuple):
    """The tensors of one type over a storage's memory: those that were `made`, by their offsets."""

    whole: torch.Tensor
    strides: tuple[int, ...]
    made: dict[int, torch.Tensor]


def tensor_over(memory: CPUStorage, type: TensorType) -> torch.Tensor:
    """The torch tensor that shows all of a memory; the memory keeps it for the next call."""
    if memory.shown is not type:
        shown = torch_view(memory, type)
        memory.shown = None  # first: between the two that follow an exception may come
        memory.tensor = shown
        memory.shown = type
    return memory.tensor


def allocate(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A torch tensor over fresh memory for an output; its contents are undefined.

    Told its strides, torch takes half the time (0.6 µs for 1.2 of `torch.empty`).

    Raises:
        MemoryError: the host has no such block.
    """
    try:
        return torch.empty_strided(shape, strides, dtype=dtype, device=CPU)
    except of_computing(RuntimeError) as error:
        raise MemoryError(str(error)) from None


def owned(result: torch.Tensor, type: TensorType, operands: Sequence[object]) -> torch.Tensor:
    """A call's result as an output: the result itself if it is row-major and alone in its memory, else a copy."""
    memory = result.untyped_storage()
    at = memory.data_ptr()
    if (memory.nbytes() == type.nbytes and result.is_contiguous() and result.shape == type.shape
            and result.dtype is torch_dtype(type)
            and not any(x.untyped_storage().data_ptr() == at for x in operands if isinstance(x, torch.Tensor))):
        return result
    return allocate(type.shape, row_major(type.shape), torch_dtype(type)).copy_(result)


def first_value(register: Register) -> Value:
    """What a register holds before its plan runs."""
    if isinstance(register, NumberTensor):
        return None if isinstance(register.value, Place) else operand_tensor(
            register.value, getattr(torch, register.dtype.name))
    return None if isinstance(register, Place) else register


def torch_dtype(type: TensorType) -> torch.dtype:
    """The dtype of a tensor of this type."""
    return getattr(torch, type.dtype.name)


Value: TypeAlias = "torch.Tensor | bool | int | float | None"
"""What a register holds while a plan runs."""

PreparedCall = tuple[Callable, tuple[int, ...], tuple[int, ...], Mapping[str, object], str, tuple[int, ...]]
"""(function, registers of its operands, of its results, attributes, kind, registers that no later call reads)."""


_View = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""A view of an input: its register, sizes, strides and the element of the memory at which it begins."""


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
        at: dict[str, list[tuple[int, Place]]] = {"input": [], "output": [], "arena": [], "numbers": []}
        for index, start in enumerate(plan.registers):
            if isinstance(start, Place):
                at[start.where].append((index, start))
        self.in_arena = [index for index, _ in at["arena"]]
        self.numbers = [(index, place.index) for index, place in at["numbers"]]
        self.number_tensors = [(index, x.value.index, getattr(torch, x.dtype.name))
                               for index, x in enumerate(plan.registers)
                               if isinstance(x, NumberTensor) and isinstance(x.value, Place)]
        made = {index for call in plan.steps if isinstance(call, Call) and call.kind in ("fresh", "made")
                for index in call.outs}
        self.outputs = [(index, place.type) for index, place in sorted(at["output"], key=lambda x: x[1].index)]
        self.adopted = {index: (type, torch_dtype(type)) for index, type in self.outputs if index in made}
        self.reserved = [(index, type.shape, row_major(type.shape), torch_dtype(type))
                         for index, type in self.outputs if index not in made]
        self.inputs = [(index, place.index, place.type) for index, place in at["input"]]
        self._free: list[_Bound] = []

    def run(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float]) -> list[CPUStorage]:
        """Run the plan over these memories; returns the outputs'."""
        outputs, writes = self.start(inputs, numbers)
        for write in writes:
            write()
        return outputs

    def start(self, inputs: Sequence[CPUStorage], numbers: Sequence[bool | int | float],
              apart: bool = False) -> Started:
        """Run all of the plan but what overwrites inputs. Outputs that no call allocates are allocated first.

        `apart`: torch's modes are left out already.
        """
        if not apart and any_on():
            with Without():
                outputs, writes = self.start(inputs, numbers, True)
            return Started(outputs, without(writes))
        try:
            bound = self._free.pop()
        except of_computing(IndexError):
            bound = _Bound(self)
        registers = bound.registers
        for index, shape, strides, dtype in self.reserved:
            registers[index] = allocate(shape, strides, dtype)
        if self.plan.arena_bytes:
            arena.reserve(self.plan.arena_bytes)
        changed = bound.bind(inputs)
        for index, number in self.numbers:
            registers[index] = numbers[number]
        for index, number, dtype in self.number_tensors:
            registers[index] = operand_tensor(numbers[number], dtype)
        if bound.arena_version != arena.version:
            with uncollected:  # what stays with the plan: tens of thousands of objects where it has as many values
                bound.prepare(inputs)
        elif changed:
            bound.rebind(changed)
        bound.runs += 1
        if bound.runs == RUNS_BEFORE:
            bound.write_out()
        writes = self.call_all(bound, registers)
        outputs = []
        for index, kept in self.outputs:
            outputs.append(CPUStorage.holding(registers[index], kept))
            registers[index] = None
        for index in bound.of_one_run:
            registers[index] = None
        self._free.append(bound)
        return Started(outputs, writes)

    def call_all(self, bound: _Bound, registers: list[Value]) -> list[Callable[[], object]]:
        """Make the calls; returns what the last ones have made ready to be called."""
        straight = bound.straight
        if straight is not None:
            try:
                return straight.run(registers, [])
            except of_computing(IndexError, RuntimeError) as error:
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
        except of_computing(IndexError, RuntimeError) as error:
            raise told(error, self._call_of(args, outs), operands) from None
        return writes

    def _call_of(self, args: tuple[int, ...], outs: tuple[int, ...]) -> Call:
        """The plan's call with these operands and results."""
        return next(call for call in self.plan.steps
                    if isinstance(call, Call) and call.args == args and call.outs == outs)


class _Bound:
    """What one run at a time works with: the registers, and the calls over them.

    Attributes:
        registers: the plan's values; those over the arena, and inputs with their views, stay from run to run.
        steps: the calls that a run makes. Those from the first on that overwrites an input are only made ready.
        arena_version: the version of the arena that the registers are over.
        runs: how often these calls were made.
        straight: the calls as one function; None before they were made a few times.
        of_one_run: the registers of inputs and their views that each run binds anew: of inputs without views, and of
            those that were other memory in two runs one after the other.
    """

    def __init__(self, executor: CPUExecutor):
        self.executor = executor
        self.runs = 0
        self.straight: StraightLine | None = None
        self.registers: list[Value] = list(map(first_value, executor.plan.registers))
        self.steps: list[PreparedCall] = []
        self._direct: list[Direct | None] = []
        self.arena_version = -1
        self._unviewed = executor.inputs
        self._viewed: list[tuple[int, int, TensorType]] = []
        self._moving: list[tuple[int, int, TensorType]] = []
        self._inputs: dict[int, Callable[[], object]] = {}
        self._views: dict[int, list[_View]] = {}
        self._changed_in: dict[int, int] = {}
        self._bindings = 0
        self._moves: set[int] = set()
        self.of_one_run = [index for index, _, _ in executor.inputs]

    def bind(self, inputs: Sequence[CPUStorage]) -> list[int]:
        """Make tensors over the inputs' memories; returns the registers with views whose memory is not that of the last
        run."""
        registers = self.registers
        self._bindings += 1
        for index, number, type in self._unviewed:
            memory = inputs[number]
            registers[index] = memory.tensor if memory.shown is type else tensor_over(memory, type)
        for index, number, type in self._moving:
            memory = inputs[number]
            registers[index] = memory.tensor if memory.shown is type else tensor_over(memory, type)
            self._view(index)
        return [index for index, number, type in self._viewed
                if self._inputs[index]() is not inputs[number] and self._keep(index, inputs[number], type)]

    def _keep(self, index: int, memory: CPUStorage, type: TensorType) -> bool:
        """Bind an input for as long as somebody else keeps its memory."""
        # The reference comes first: the callback of the one that it replaces forgets the old memory.
        self._inputs[index] = weakref.ref(memory, self._forgets(index))
        self.registers[index] = tensor_over(memory, type)
        return True

    def rebind(self, changed: list[int]) -> None:
        """Make the views of inputs whose memory changed. One that did so in the last run, too, is bound anew by each
        run from now on: to note who keeps a memory takes longer than a view of it."""
        moves = []
        for index in changed:
            self._view(index)
            if self._changed_in.get(index) == self._bindings - 1:
                moves.append(index)
            self._changed_in[index] = self._bindings
        if moves:
            for index in moves:
                del self._inputs[index]
            self._moves.update(moves)
            self._sort_inputs()

    def _view(self, index: int) -> None:
        """Make the views of an input, each in one call, however it came to be: all inputs are row-major."""
        registers = self.registers
        memory = cast("torch.Tensor", registers[index])
        for view, size, stride, offset in self._views[index]:
            registers[view] = memory.as_strided(size, stride, offset)

    def _sort_inputs(self) -> None:
        """Say of each input whether a run binds it, or finds it as the last one left it."""
        inputs, views = self.executor.inputs, self._views
        self._unviewed = [x for x in inputs if x[0] not in views]
        self._viewed = [x for x in inputs if x[0] in views and x[0] not in self._moves]
        self._moving = [x for x in inputs if x[0] in views and x[0] in self._moves]
        self.of_one_run = [index for index, _, _ in self._unviewed]
        for index, _, _ in self._moving:
            self.of_one_run += [index, *[view for view, *_ in views[index]]]

    def _forgets(self, index: int) -> Callable[..., object]:
        """The callback for when an input's memory is dropped: its register and those of its views let go of it. It is
        one of C: an interrupt in a callback is printed and forgotten."""
        put = self.registers.__setitem__
        return leaving(*((put, at, None) for at in (index, *(view for view, *_ in self._views[index]))))

    def prepare(self, inputs: Sequence[CPUStorage]) -> None:
        """Make the tensors over the arena, run the views that only depend on them or on the inputs, and list the calls
        that are left."""
        registers, executor, scratch = self.registers, self.executor, _Views(arena.storage)
        for index in executor.in_arena:
            place = cast("Place", executor.plan.registers[index])
            registers[index] = scratch.at(place.type, place.offset)  # values that follow each other there share one
        source: dict[int, int | None] = dict.fromkeys(executor.in_arena)
        source.update({index: index for index, _, _ in executor.inputs})
        remaining: list[Call] = []
        views: dict[int, list[int]] = {}
        for call in executor.plan.steps:
            assert isinstance(call, Call)
            if call.kind == "view" and call.args[0] in source and not self._copies(call):
                of = source[call.outs[0]] = source[call.args[0]]
                registers[call.outs[0]] = call.function(registers[call.args[0]], **call.attributes)
                if of is not None:
                    views.setdefault(of, []).append(call.outs[0])
            else:
                remaining.append(call)
        self._list(remaining)
        self._note_views(views, {index for call in remaining for index in call.args})
        self._sort_inputs()
        for index, number, type in self._viewed:
            self._keep(index, inputs[number], type)
        self.arena_version = arena.version
        self.runs, self.straight = 0, None

    def _note_views(self, views: dict[int, list[int]], read: Container[int]) -> None:
        """Note how those views of inputs lie in memory that calls read; the others were a step on the way."""
        self._views = {}
        for index, found in views.items():
            for i in found:
                view = cast("torch.Tensor", self.registers[i])
                if i in read:
                    self._views.setdefault(index, []).append((i, view.shape, view.stride(), view.storage_offset()))
                else:
                    self.registers[i] = None

    def _list(self, calls: Sequence[Call]) -> None:
        """List the calls that a run makes, with the registers that no later one reads."""
        adopted = self.executor.adopted
        made = {i for call in calls if call.kind != "out" for i in call.outs if i not in adopted}
        last = {index: at for at, call in enumerate(calls) for index in (*call.args, *call.outs)}
        given = {index for index, _, _ in self.executor.inputs}
        late, self.steps, self._direct = False, [], []
        for number, call in enumerate(calls):
            used = (*call.args, *call.outs)
            frees = () if made.isdisjoint(used) else tuple(
                [i for i in dict.fromkeys(used) if i in made and last[i] == number])
            late = late or (call.kind == "out" and not given.isdisjoint(call.outs))
            function, kind = call.function, call.kind
            if late and kind == "out":
                assert call.late is not None, f"{call.label} stands after what overwrites memory"
                function, kind = call.late, "late"
            self.steps.append((function, call.args, call.outs, call.attributes, kind, frees))
            self._direct.append(call.direct_as(kind))

    def write_out(self) -> None:
        """Make one function of the calls."""
        if len(self.steps) <= MOST_CALLS:
            self.straight = StraightLine(self.steps, self.executor.adopted, owned, self._direct)

    def _copies(self, call: Call) -> bool:
        """True for a reshape whose operand's strides allow no view: it must run every time."""
        operand = self.registers[call.args[0]]
        assert isinstance(operand, torch.Tensor)
        result = call.function(operand, **call.attributes)
        return bool(result.untyped_storage().data_ptr() != operand.untyped_storage().data_ptr())
