"""How a profile is told what runs: while it is on, a few functions of executors and of the compiler are others.

They do the same and tell the `Recorder`; when the profile ends the program has its own again, so that nobody pays
for profiles that are off. A GPU's graph is launched step by step meanwhile, an event between two steps: what each
takes inside of a graph is then seen, without their overlap. Writes that end a CPU's plan stay calls into C, and the
clock that is read between them is one too, so that an exception finds what it finds without a profile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

from genesis.profiler.costs import bytes_of_step, flops_by_step
from genesis.profiler.recorder import Kernel, Recorder, now
from genesis.runtime.plan import Call, Collective, Launch

Replaced = list[tuple[Any, str, Any]]
"""(owner, name, what it was)."""


class Hooks:
    """The replaced functions of one profile."""

    def __init__(self, recorder: Recorder, cpu: bool, cuda: bool):
        self.recorder = recorder
        self._cpu, self._cuda = cpu, cuda
        self._replaced: Replaced = []
        self._compiled: dict[int, Any] = {}  # by the id of its plan, which it keeps alive
        self._flops: dict[int, dict[int, tuple[int, bool]]] = {}
        self.products: set[str] = set()
        self._gaps: dict[int, int] = {}  # of each GPU, in nanoseconds

    def install(self) -> None:
        """Begin."""
        from genesis.engine import plans
        from genesis.engine.compilation import Compiled
        from genesis.passes import pipeline
        self._replace(Compiled, "start", self._plan_run)
        self._replace(Compiled, "run", self._plan_run)
        self._replace(plans, "find", self._found)
        self._replace(pipeline, "run_passes", self._passes)
        if self._cpu:
            self._install_cpu()
        if self._cuda:
            self._install_cuda()

    def remove(self) -> None:
        """End: all functions are the program's own."""
        while self._replaced:
            owner, name, original = self._replaced.pop()
            setattr(owner, name, original)

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = vars(owner)[name]
        self._replaced.append((owner, name, original))
        setattr(owner, name, make(original))

    # The engine and the compiler

    def _plan_run(self, original: Any) -> Any:
        def run(compiled: Any, memories: Any, numbers: Any) -> Any:
            begin = now()
            self._compiled[id(compiled.plan)] = compiled
            try:
                return original(compiled, memories, numbers)
            finally:
                self.recorder.span("plan", f"plan of {len(compiled.plan.steps)} steps", begin)
        return run

    def _found(self, original: Any) -> Any:
        def find(*args: Any) -> Any:
            begin = now()
            compiled = original(*args)
            how = "compile" if compiled.origin == "compiled" else f"plan from {compiled.origin}"
            self.recorder.span("compile", how, begin)
            return compiled
        return find

    def _passes(self, original: Any) -> Any:
        def run_passes(*args: Any, **options: Any) -> Any:
            begin = now()
            passed = original(*args, **options)
            at = begin
            for report in passed.reports:  # they follow each other; what is between them is not shown
                nanoseconds = int(report.seconds * 1e9)
                self.recorder.spans.append(_span("pass", report.name, at, nanoseconds))
                at += nanoseconds
            return passed
        return run_passes

    def flops(self, plan: Any, number: int) -> int:
        """Operations of a step, as far as they are known. Those of products are noted by name."""
        if id(plan) not in self._flops:
            compiled = self._compiled.get(id(plan))
            self._flops[id(plan)] = {} if compiled is None else flops_by_step(compiled)
        found, product = self._flops[id(plan)].get(number, (0, False))
        if product:
            step = plan.steps[number]
            self.products.add(name_and_line(step)[0])
        return found

    # The CPU

    def _install_cpu(self) -> None:
        from genesis.runtime.cpu.executor import CPUExecutor
        from genesis.runtime.cpu.one_call import OneCall
        from genesis.runtime.cpu.storage import CPUStorage
        self._replace(CPUExecutor, "call_all", self._calls)
        self._replace(CPUExecutor, "start", self._outputs)
        self._replace(OneCall, "run", self._one_call)
        self._replace(CPUStorage, "__init__", self._host_memory)

    def _calls(self, original: Any) -> Any:
        def call_all(executor: Any, bound: Any, registers: Any) -> Any:
            numbers = {(call.args, call.outs): at for at, call in enumerate(executor.plan.steps)}
            steps = [(self._timed(function, rest[3], executor.plan, numbers[rest[0], rest[1]]), *rest)
                     for function, *rest in bound.steps]
            return original(executor, SimpleNamespace(steps=steps, straight=None), registers)
        return call_all

    def _timed(self, function: Any, kind: str, plan: Any, number: int) -> Any:
        def call(*args: Any, **attributes: Any) -> Any:
            begin = now()
            found = function(*args, **attributes)
            end = now()
            if kind == "late":
                return self._timed_writes(found, plan, number, _tensor_bytes(args))
            if kind != "number":
                self._kernel(plan, number, begin, end, _tensor_bytes((args, found)))
            return found
        return call

    def _timed_writes(self, writes: Sequence[Any], plan: Any, number: int, nbytes: int) -> list[Any]:
        """The writes between two looks at the clock; all of them are calls into C."""
        stamps: list[int] = []
        look = partial(next, map(stamps.append, iter(now, None)))

        def tell() -> None:
            if len(stamps) == 2:
                self._kernel(plan, number, stamps[0], stamps[1], nbytes)
        self.recorder.pending.append(tell)
        return [look, *writes, look]

    def _kernel(self, plan: Any, number: int, begin: int, end: int, nbytes: int) -> None:
        name, line = name_and_line(plan.steps[number])
        self.recorder.kernels.append(Kernel(name, line, begin, end - begin, nbytes, 0, "cpu"))
        kernel = self.recorder.kernels[-1]
        self.recorder.pending.append(lambda: setattr(kernel, "flops", self.flops(plan, number)))

    def _outputs(self, original: Any) -> Any:
        def start(executor: Any, inputs: Any, numbers: Any) -> Any:
            from genesis.runtime.cpu.executor import arena
            found = original(executor, inputs, numbers)
            if self.recorder.wants_memory:
                lines = {index: name_and_line(call)[1] for call in executor.plan.steps for index in call.outs}
                for (index, type), memory in zip(executor.outputs, found[0], strict=True):
                    self.recorder.holds(memory, type.nbytes, "cpu", lines.get(index))
                self.recorder.scratch("cpu", arena.storage.nbytes)
            return found
        return start

    def _one_call(self, original: Any) -> Any:
        def run(executor: Any, inputs: Any, numbers: Any) -> Any:
            begin = now()
            found = original(executor, inputs, numbers)
            end = now()
            self._kernel(executor.plan, 0, begin, end, sum(x.nbytes for x in (*inputs, *found)))
            for memory in found:
                self.recorder.holds(memory, memory.nbytes, "cpu", name_and_line(executor.plan.steps[0])[1])
            return found
        return run

    def _host_memory(self, original: Any) -> Any:
        def init(memory: Any, nbytes: int) -> None:
            original(memory, nbytes)
            from sys import _getframe
            if _getframe(1).f_code.co_name not in ("reserve", "aside"):  # the plans' own memory is told of by them
                self.recorder.holds(memory, nbytes, "cpu")
        return init

    # GPUs

    def _install_cuda(self) -> None:
        from genesis.runtime.cuda.bound_plan import BoundPlan
        from genesis.runtime.cuda.storage import CUDAStorage
        self._replace(BoundPlan, "launched_last", self._launched_last)
        self._replace(BoundPlan, "graph_launch", lambda original: lambda bound, stream: bound.launched_last(stream))
        self._replace(CUDAStorage, "__init__", self._device_memory)

    def _launched_last(self, original: Any) -> Any:
        def launched_last(bound: Any, stream: Any, blocking: bool = False) -> Any:
            from genesis.runtime.cuda.cuda_python_driver import driver
            steps, gpu = bound.steps, driver()
            if not steps.steps:
                return original(bound, stream, blocking=blocking)
            if steps.device.index not in self._gaps:
                self._gaps[steps.device.index] = gap_between_events(gpu, stream, steps.device)
            clock = self._clock(gpu, stream, steps.device.index)
            *events, pause = (gpu.create_event(True) for _ in range(len(steps.steps) + 2))

            first = steps.first_left

            def paused() -> None:
                gpu.record_event(pause, stream)
                hold_back(gpu, stream, len(steps.steps) - first, steps.device)
            if first:
                hold_back(gpu, stream, first, steps.device)
            told = original(bound, stream, [gpu.record_call(event, stream) for event in events], paused, blocking)
            self.recorder.pending.append(partial(self._launches, steps, gpu, clock, events, pause))
            return told
        return launched_last

    def _clock(self, gpu: Any, stream: Any, device: int) -> tuple[int, Any]:
        """A moment of the host's clock, and an event of the GPU's that happens then."""
        event = gpu.create_event(True)
        gpu.synchronize_stream(stream)
        gpu.record_event(event, stream)
        gpu.synchronize_event(event)
        return now(), event

    def _launches(self, steps: Any, gpu: Any, clock: tuple[int, Any], events: Sequence[Any], pause: Any) -> None:
        """Tell of the steps between these events, once they happened. At the pause the last step is started that
        overwrites nothing: what the host does until it starts the next one is no part of it."""
        from genesis.runtime.cuda.driver import DriverError
        gpu.use(steps.device.index)
        gpu.synchronize_event(events[-1])
        zero, origin = clock
        try:
            times = [int(gpu.elapsed_ms(origin, event) * 1e6) for event in events]
        except DriverError as error:
            if error.status != "CUDA_ERROR_INVALID_HANDLE":
                raise
            return  # CUDA refused one of the launches, and the events behind it came to nothing
        ends = times[1:]
        if steps.first_overwriting:
            ends[steps.first_overwriting - 1] = int(gpu.elapsed_ms(origin, pause) * 1e6)
        where = {id(step): at for at, step in enumerate(steps.plan.steps)}
        gap = self._gaps[steps.device.index]
        for step, begin, end in zip(steps.steps, times, ends, strict=False):
            name, line = name_and_line(step)
            self.recorder.kernels.append(Kernel(
                name, line, zero + begin, max(end - begin - gap, 0), bytes_of_step(step),
                self.flops(steps.plan, where[id(step)]), str(steps.device)))

    def _device_memory(self, original: Any) -> Any:
        def init(memory: Any, nbytes: int, device: Any, source: Any = None) -> None:
            original(memory, nbytes, device, source)
            if source == OWN:
                return
            self.recorder.holds(memory, nbytes, str(device), None if source is None else str(source))
        return init


OWN: Final = "(profiler)"
"""What holds memory of a profile's own, which is no part of the program's."""

HELD_BACK_BYTES: Final = 256 << 20
"""Memory that is filled to keep the GPU busy; an H200 takes about 0.1 ms for it."""

LAUNCHES_MEANWHILE: Final = 5
"""Steps that the host starts, with their events, in the time of one fill."""


def gap_between_events(gpu: Any, stream: Any, device: Any) -> int:
    """Nanoseconds from an event to the next with nothing between, which a kernel's time is measured with (1,250 on an
    H200); 0 where the GPU cannot be kept busy meanwhile, so that it would be the host's time."""
    events = [gpu.create_event(True) for _ in range(10)]
    held = hold_back(gpu, stream, len(events), device)
    for event in events:
        gpu.record_event(event, stream)
    gpu.synchronize_event(events[-1])
    return min(int(gpu.elapsed_ms(*pair) * 1e6) for pair in pairwise(events)) if held else 0


def hold_back(gpu: Any, stream: Any, steps: int, device: Any) -> bool:
    """Give the GPU something to do while the host starts so many steps: an event after a short kernel would tell how
    long the host takes to start the next. Where memory is short nothing is done.

    Returns:
        Whether it has something to do.
    """
    if not steps:
        return False
    from genesis.runtime.cuda.memory_pool import pool_of
    from genesis.runtime.cuda.storage import CUDAStorage
    free, total = gpu.mem_get_info()
    if total < 64 * HELD_BACK_BYTES or free < 8 * HELD_BACK_BYTES:
        return False
    peak = pool_of(device.index).peak
    memory = CUDAStorage(HELD_BACK_BYTES, device, OWN)
    for _ in range(1 + steps // LAUNCHES_MEANWHILE):
        gpu.fill(memory.ptr, 0, HELD_BACK_BYTES, stream)
    del memory
    pool_of(device.index).peak = peak
    return True


def name_and_line(step: Any) -> tuple[str, str]:
    """The name of what a step computes, and the user's line that recorded it."""
    if isinstance(step, Launch):
        _, _, line = step.origin.partition(" at ")
        return step.label or step.kernel.name, line
    if isinstance(step, Call):
        name, _, line = step.label.partition("  # ")
        return name or "call", line
    if isinstance(step, Collective):
        return step.op, step.origin
    return step.label, ""


def _span(kind: str, name: str, start: int, duration: int) -> Any:
    import threading

    from genesis.profiler.recorder import Span
    return Span(kind, name, start, duration, threading.get_ident())


def _tensor_bytes(values: Any) -> int:
    """Bytes of the tensors of torch's in nested tuples and lists, each once."""
    seen: dict[int, int] = {}

    def look(value: Any) -> None:
        if isinstance(value, (tuple, list)):
            for part in value:
                look(part)
        elif hasattr(value, "nbytes"):
            seen[id(value)] = value.nbytes
    look(values)
    return sum(seen.values())


__all__ = ["Hooks", "gap_between_events", "hold_back", "name_and_line"]
