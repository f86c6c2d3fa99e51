"""Sources of a plan: the template of another batch size, the disk, or the compiler."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from genesis.config import config
from genesis.engine.backends import backend_of
from genesis.engine.capture import Captured, build_graph
from genesis.engine.compilation import Compiled, compile_graph, ready
from genesis.engine.state import Cache
from genesis.engine.symbolic.shape_erased_key import NotWritable, shape_erased_key
from genesis.engine.symbolic.symbolic_batch import NoBatchSize, SymbolicProgram, batch_size
from genesis.engine.uncollected import uncollected
from genesis.frontend.state import state
from genesis.ir.errors import Overwritten
from genesis.ir.sym_int import Trace
from genesis.ir.types import Device
from genesis.runtime.disk_store import default_directory
from genesis.runtime.plan import Launch, Plan
from genesis.runtime.plan_cache import PlanCache

if TYPE_CHECKING:
    from genesis.engine.symbolic.plan_template import PlanTemplate

VARIABLE: Final = "GENESIS_PLAN_CACHE"
"""Environment variable: 0 keeps plans off the disk."""

MAKING_FOLDERS: Final = ("ir", "passes", "codegen", "runtime", "engine")
MAKING_MODULES: Final = ("config.py",)
"""Folders and files whose code decides which plan a program gets. The rest of Genesis decides which program it is, and
that is part of a plan's name on disk anyway."""

MOST_UNSAVED: Final = 64
"""Plans of other sizes that are written when the process ends; writing one takes longer than filling it in."""


def find(captured: Captured, device: Device, templates: Cache[tuple, list[Any]]) -> Compiled:
    """The plan of a captured program that has none in this process.

    Python's collector stays out: compiling makes objects by the hundred thousand, reading a plan by the ten thousand,
    which it would look at again and again. What is garbage by then has no cycles, or is collected afterwards.

    Args:
        templates: what later programs of the same shape-erased key are served from (`Plans.templates`); grows.

    Raises:
        CompilationFailed, Overwritten, ...: what compiling raises.
    """
    with uncollected:
        return _find(captured, device, templates)


def _find(captured: Captured, device: Device, templates: Cache[tuple, list[Any]]) -> Compiled:
    start = perf_counter()
    key = _shape_erased(captured, device)
    if key is None:
        return compile_graph(build_graph(captured), device)
    erased, numbers = key
    name = (device, backend_of(device).gpu, config.key(), erased)
    kept: list[PlanTemplate | _Read] | None = templates.get(name)
    if kept is None:
        kept = templates.add(name, [])
    stored = _stored()
    for source in kept:
        if isinstance(source, _Read):
            plan = None if stored is None else stored.get(_name(erased, numbers, device, source.numbers))
            if plan is not None:
                return _from_disk(plan, start, captured)
        else:
            plan = source.plan(numbers)
            if plan is not None:
                _save_later(erased, numbers, source, device)
                return ready(plan, start, "other size", source.program_of(numbers))
    if stored is not None:
        plan = stored.get(_name(erased, numbers, device, numbers))
        if plan is not None:
            kept.append(_Read(numbers))
            return _from_disk(plan, start, captured)
    return _made(captured, device, erased, numbers, kept)


def _shape_erased(captured: Captured, device: Device) -> tuple[tuple, list[Any]] | None:
    """The shape-erased key and the numbers of a program whose plan may serve others, or be kept; else None."""
    if not backend_of(device).keeps_plans:
        return None
    try:
        return shape_erased_key(captured.key)
    except NotWritable:
        return None


def _from_disk(plan: Plan, start: float, captured: Captured) -> Compiled:
    graph = build_graph(captured)  # for those who ask for the stages; later the captured nodes are gone
    return ready(plan, start, "disk", lambda: graph)


@dataclass(frozen=True)
class _Read:
    """Stands for a plan that was read from disk, and for the template that it was filled in from, which this process
    does not have: plans of other sizes may be on disk too."""

    numbers: list[Any]


def _made(captured: Captured, device: Device, erased: tuple, numbers: list[Any],
          kept: list[PlanTemplate | _Read]) -> Compiled:
    """Compile. A size whose template was tuned for another one, which an earlier process ran first, gets that template
    again: its results have the same bits whether plans come from disk or not."""
    start = perf_counter()
    for read in [source for source in kept if isinstance(source, _Read)]:
        try:
            template = _template(captured, device, erased, read.numbers)
        except NoBatchSize:
            break
        plan = template.plan(numbers)
        if plan is not None:
            kept[kept.index(read)] = template
            _save_later(erased, numbers, template, device)
            return ready(plan, start, "compiled", template.program_of(numbers))
    try:
        template = _template(captured, device, erased, numbers)
        plan = template.plan(numbers)
        if plan is None:
            raise NoBatchSize("its own sizes are at odds with what its kernels were made for")
        kept.append(template)
        found = ready(plan, start, "compiled", template.program_of(numbers))
    except NoBatchSize as refusal:
        logging.getLogger("genesis").debug("sizes stay numbers: %s", refusal)
        found = compile_graph(build_graph(captured), device)
        found.fixed_sizes = str(refusal)
    _save(erased, numbers, found.plan, numbers)
    return found


_SHAPE_ERRORS: Final = (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError)
"""What ops say of shapes that do not fit, and what Python says of a symbol where it needs a number."""


def _template(captured: Captured, device: Device, erased: tuple, base: list[Any]) -> PlanTemplate:
    """Compile with a symbolic batch size.

    Args:
        base: the numbers of the program whose sizes block sizes are to suit.

    Raises:
        NoBatchSize: there is no batch, or some pass needs its size. Under GENESIS_VERIFY=1 the pass' error is raised.
    """
    from genesis.engine.symbolic.plan_template import PlanTemplate
    trace, program, numbers = _traced(captured, erased, base)
    try:
        return PlanTemplate(program.graph, numbers, base, trace, device)
    except Overwritten:
        raise
    except _SHAPE_ERRORS as error:
        from genesis.passes.pipeline import verifying
        if verifying():
            raise
        raise NoBatchSize(f"a pass needs them ({type(error).__name__}: {error})") from error


def _traced(captured: Captured, erased: tuple, base: list[Any]) -> tuple[Trace, SymbolicProgram, list[Any]]:
    """The program over a symbol for its batch size, and the numbers and symbols that its key leaves out."""
    fixed = _fixed_inputs(captured)
    trace = Trace(B=batch_size(captured.memory_types, fixed))
    symbol = trace.symbol("B")
    try:
        program = SymbolicProgram(captured, symbol, fixed)
    except Overwritten:
        raise
    except _SHAPE_ERRORS as error:  # a wrong guess
        raise NoBatchSize(f"dimension 0 of its data is no batch ({type(error).__name__}: {error})") from error
    same, numbers = shape_erased_key(program.key)
    size = next((value for x, value in zip(numbers, base, strict=False) if x is symbol), None)
    if same != erased or size is None:
        raise NoBatchSize("what it computes depends on them")
    trace.set_values(B=size)
    return trace, program, numbers


def _fixed_inputs(captured: Captured) -> set[int]:
    """Positions of the inputs that are no data: parameters, and what the program overwrites."""
    updated = {cell for cell, _ in captured.updates}
    parameters = {tensor.storage for held in state.watched.valuerefs() if (tensor := held()) is not None}
    return {i for i, cell in enumerate(captured.cells)
            if cell in updated or (cell.owner is not None and cell.owner() in parameters)}


# The disk

_unsaved: deque[tuple[tuple, list[Any], PlanTemplate, Device]] = deque(maxlen=MOST_UNSAVED)


def _save_later(erased: tuple, numbers: list[Any], template: PlanTemplate, device: Device) -> None:
    if _stored() is not None:
        _unsaved.append((erased, numbers, template, device))


@atexit.register
def _save_all() -> None:
    stored = _stored()
    while _unsaved and stored is not None:
        erased, numbers, template, device = _unsaved.popleft()
        if not stored.has(_name(erased, numbers, device, template.numbers)):
            plan = template.plan(numbers, tight=True)
            if plan is not None:
                _save(erased, numbers, plan, template.numbers)


def _save(erased: tuple, numbers: list[Any], plan: Plan, base: list[Any]) -> None:
    """Write a plan if its kernels are on disk."""
    stored = _stored()
    steps = (*plan.steps, *(plan.refresh.steps if plan.refresh is not None else ()))
    if stored is not None and all(step.kernel.entry for step in steps if isinstance(step, Launch)):
        from genesis.codegen.cuda.plan_writer import write_form
        stored.put(_name(erased, numbers, plan.device, base), write_form(plan, numbers, None, ())[0])


def _stored() -> PlanCache | None:
    return None if os.environ.get(VARIABLE) == "0" else _cache_in(default_directory())


@cache
def _cache_in(directory: Path) -> PlanCache:
    return PlanCache(directory)


def _name(erased: tuple, numbers: list[Any], device: Device, base: list[Any]) -> str:
    """All that a plan depends on, as text. `base`: the numbers of the program that its template was compiled for."""
    return repr((erased, numbers, base, config.key(), backend_of(device).gpu, *_environment()))


@cache
def _environment() -> tuple[Any, ...]:
    """The versions of all that makes plans."""
    return (_installed("triton"), _sources())


def _installed(package: str) -> str:
    """A package's version by the name of its metadata; `importlib.metadata` takes longer to import."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(f"{package}-") and name.endswith(".dist-info"):
                return name[len(package) + 1:-len(".dist-info")]
    return "unknown"


def _sources() -> tuple[tuple[str, int, int], ...]:
    """Size and time of the files that make plans: those of an edited compiler are others."""
    root = os.path.dirname(os.path.dirname(__file__))
    found = []
    for folder, folders, names in os.walk(root):
        if folder == root:
            folders[:], names = list(MAKING_FOLDERS), list(MAKING_MODULES)
        for name in sorted(names):
            if name.endswith(".py"):
                stat = os.stat(os.path.join(folder, name))
                found.append((os.path.join(folder[len(root):], name), stat.st_size, stat.st_mtime_ns))
    return tuple(found)
