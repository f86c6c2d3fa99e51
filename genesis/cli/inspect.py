"""Views of a compiled program as plain rows: the one place here that knows the engine's objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from genesis.ir.graph import Graph, rewrite_nodes, topological
from genesis.ir.node import make
from genesis.ir.types import Device, TensorType, tensor_type
from genesis.runtime.plan import Launch

if TYPE_CHECKING:
    from genesis.codegen.base import Backend
    from genesis.codegen.cuda.source import KernelSource
    from genesis.passes.groups import Schedule
    from genesis.passes.memory.plan_memory import MemoryPlan
    from genesis.passes.pipeline import Passed, PassReport, Work

_NOT_WORK = frozenset({"leaf", "movement", "control"})  # op kinds that cost a kernel nothing


@dataclass(frozen=True)
class KernelRow:
    """One kind of kernel of a step.

    Attributes:
        name: what it computes, in short.
        kind: the group's kind (`passes.groups.Group.kind`).
        count: how many kernels of a step are like this.
        ops: what was fused, operands before users.
        lines: the user's lines that it comes from.
        reason: why these ops are together.
    """

    name: str
    kind: str
    count: int
    ops: tuple[str, ...]
    lines: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class StepBox:
    """One box in the picture of a step: kernels that run one after the other for the same line.

    Attributes:
        phase: "forward", "backward" or "update".
        line: the user's line (lines, if the kernels were fused from several), "" if unknown.
        kernels: their names.
        reasons: why each is a kernel, every reason once.
        sources: positions of the boxes that it reads from.
    """

    phase: str
    line: str
    kernels: tuple[str, ...]
    reasons: tuple[str, ...]
    sources: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A compiled program, for a backend that it need not have run on.

    Attributes:
        backend: what its plan is for.
        works: the program after each pass, by the name of the stage (`passes.pipeline.Work`).
        reports: what each pass did, in order.
        schedule: its groups, or those of them that are asked for.
        memory: where its values are.
        ran: whether this is how it ran.
        fixed_sizes: why the plan serves no other batch size, or None.
        made: what the kernel of a group (by its `id`) was made with as it ran, where there was a choice.
    """

    backend: Backend
    works: Mapping[str, Work]
    reports: tuple[PassReport, ...]
    schedule: Schedule
    memory: MemoryPlan
    ran: bool
    fixed_sizes: str | None = None
    made: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The device type that it is for."""
        return self.backend.name

    @property
    def captured(self) -> Graph:
        """The program as it was recorded."""
        return self.works["capture"].graph

    @property
    def is_calls(self) -> bool:
        """Whether every group is one op: nothing was fused, so there is little to see."""
        return all(group.kind in ("call", "view") for group in self.schedule.groups)


def last_step() -> Program:
    """The program that the engine ran last."""
    from genesis import engine
    return program_of(engine.last_plan())


def program_of(compiled: Any) -> Program:
    """What the engine compiled (`compiler.Compiled`), for the backend that ran it."""
    found = _program(compiled.backend, compiled.passed, ran=True)
    launches = [step for step in compiled.plan.steps if isinstance(step, Launch)]
    groups = [group for group in found.schedule.groups if group.kind not in ("collective", "joined")]
    made = {id(group): launch.choices for group, launch in zip(groups, launches, strict=False)}
    return replace(found, fixed_sizes=compiled.fixed_sizes, made=made if len(groups) == len(launches) else {})


def program_for(compiled: Any, target: str) -> Program:
    """The same program for another backend: its passes run again, nothing is launched.

    Args:
        target: as `backends.backend_named` takes it.
    """
    return compiled_for(compiled.stages["capture"], target)


def compiled_for(captured: Graph, target: str) -> Program:
    """A captured program as a backend would get it, up to its code.

    Raises:
        RuntimeError: the backend has no lowering for some op.
    """
    from genesis.engine.backends import backend_named
    from genesis.passes.pipeline import run_passes
    backend = backend_named(target)
    return _program(backend, run_passes(on_device(captured, Device(backend.name)), backend), ran=False)


def _program(backend: Backend, passed: Passed, ran: bool) -> Program:
    return Program(backend, passed.works, passed.reports, passed.schedule, passed.memory, ran)


def on_device(graph: Graph, device: Device) -> Graph:
    """The same graph with all its values on one device. Numbers stay where they are, on the host."""
    def moved(value: Any) -> Any:
        if isinstance(value, Device):
            return device
        if isinstance(value, TensorType):
            return value if value.weak else tensor_type(value.shape, value.dtype, device)
        return tuple(map(moved, value)) if isinstance(value, tuple) else value

    new = rewrite_nodes(graph.nodes, lambda node: make(node.op, node.inputs, moved(node.attrs), node.source))
    return Graph(tuple(new[x] for x in graph.inputs), tuple(new[x] for x in graph.outputs),
                 tuple((new[state], new[value]) for state, value in graph.updates), graph.numbers)


def kernels_of(program: Program) -> list[tuple[Any, Any]]:
    """(group, its `codegen.source.KernelSource`) for all groups but views; None for it where groups are calls."""
    groups = [group for group in program.schedule.groups if not group.runs_nothing]
    graph = program.schedule.graph
    settled = frozenset(graph.inputs).difference(target for target, _ in graph.updates)
    return [(group, program.backend.kernel_source(group, settled)) for group in groups]


def made_as(program: Program, group: Any, kernel: KernelSource) -> tuple[str, ...]:
    """What a kernel was made with where there was a choice, and who said so: as it ran, or as it would be made."""
    return program.made.get(id(group), kernel.choices)


def name_of(group: Any) -> str:
    """The name of the kernel of this group."""
    if group.kind in ("call", "view"):
        return label_of(group)
    from genesis.codegen.cuda.naming import kernel_name
    return kernel_name(group)


def kernel_rows(groups: Iterable[Any]) -> list[KernelRow]:
    """The kernels of a schedule, equal ones counted together, in the order of their first run.

    Views are left out: they move nothing and launch nothing.
    """
    rows: dict[tuple, KernelRow] = {}
    for group in groups:
        if group.runs_nothing:
            continue
        ops, lines = work_of(group), lines_of(group)
        key = (group.kind, ops, lines)
        if key in rows:
            rows[key] = replace(rows[key], count=rows[key].count + 1)
        else:
            rows[key] = KernelRow(name_of(group), group.kind, 1, ops, lines, group.reason)
    return list(rows.values())


def step_boxes(schedule: Any) -> list[StepBox]:
    """The kernels of a step as boxes, in the order in which they run.

    Neighbours from the same line share a box. Arrows go through views to what the view is of. A
    kernel that comes from no line (some sums of gradients) joins the box before it.
    """
    phase_of = _phases(schedule)
    boxes: list[_OpenBox] = []
    made_by: dict[Any, frozenset[int]] = {}
    for group in schedule.groups:
        sources = frozenset[int]().union(*(made_by.get(x, ()) for x in group.inputs))
        if group.runs_nothing:
            made_by.update(dict.fromkeys(group.outputs, sources))
            continue
        lines, phase = lines_of(group), phase_of(group)
        line = ", ".join(lines) if lines else boxes[-1].line if boxes and boxes[-1].phase == phase else ""
        if not boxes or (boxes[-1].phase, boxes[-1].line) != (phase, line):
            boxes.append(_OpenBox(phase, line))
        boxes[-1].add(name_of(group), group.reason, sources)
        made_by.update(dict.fromkeys(group.outputs, frozenset({len(boxes) - 1})))
    return [StepBox(box.phase, box.line, tuple(box.kernels), tuple(dict.fromkeys(box.reasons)),
                    tuple(sorted(box.sources - {position}))) for position, box in enumerate(boxes)]


class _OpenBox:
    """A box that still grows."""

    def __init__(self, phase: str, line: str):
        self.phase, self.line = phase, line
        self.kernels: list[str] = []
        self.reasons: list[str] = []
        self.sources: set[int] = set()

    def add(self, name: str, reason: str, sources: frozenset[int]) -> None:
        self.kernels.append(name)
        self.reasons.append(reason)
        self.sources |= sources


def counted(names: Sequence[str]) -> str:
    """The names in order, repeated ones with their number.

    >>> counted(("mul", "add", "mul"))
    'mul×2 add'
    """
    return " ".join(f"{name}×{names.count(name)}" if names.count(name) > 1 else name for name in dict.fromkeys(names))


def work_of(group: Any) -> tuple[str, ...]:
    """Names of the ops of a group that do work; of all, if none does."""
    return (tuple(node.op.name for node in group.nodes if node.op.kind not in _NOT_WORK)
            or tuple(node.op.name for node in group.nodes))


def lines_of(group: Any) -> tuple[str, ...]:
    """The user's lines that a group comes from, each once, in order."""
    nodes = [node for node in group.nodes if node.op.kind not in _NOT_WORK] or group.nodes
    return tuple(dict.fromkeys(str(node.source) for node in nodes if node.source is not None))


def label_of(group: Any, most: int = 3) -> str:
    """A short name: the distinct ops, the first few of them."""
    names = list(dict.fromkeys(work_of(group)))
    more = f" +{len(names) - most}" if len(names) > most else ""
    return " ".join(names[:most]) + more


def _phases(schedule: Any) -> Callable[[Any], str]:
    """A function that tells the phase of a group of a training step.

    Forward is what the loss, the first scalar output, is computed from. Backward has the lines of
    forward, since a derivative carries the line of what it differentiates; the optimizer has its own.
    """
    losses = [node for node in schedule.graph.outputs if node.type.shape == () and node.type.dtype.kind == "float"]
    forward = frozenset(topological(losses[:1])) or frozenset(schedule.graph.nodes)
    forward_lines = {str(node.source) for node in forward if node.source is not None}

    def phase(group: Any) -> str:
        if any(node in forward for node in group.outputs):
            return "forward"
        lines = lines_of(group)
        return "update" if lines and forward_lines.isdisjoint(lines) else "backward"
    return phase
