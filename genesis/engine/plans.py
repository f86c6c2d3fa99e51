"""Where a plan comes from: a plan for another batch size, the disk, or the compiler."""

from __future__ import annotations

import atexit
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
from genesis.engine.symbolic.shape_erased_key import Unknown, structure_of
from genesis.engine.symbolic.symbolic_batch import NoLeadingSize, OpenProgram, leading_size
from genesis.engine.uncollected import uncollected
from genesis.frontend.state import state
from genesis.ir.errors import Overwritten
from genesis.ir.sym_int import Trace
from genesis.ir.types import Device
from genesis.runtime.disk_store import default_directory
from genesis.runtime.plan import Launch, Plan
from genesis.runtime.plan_cache import PlanCache

if TYPE_CHECKING:
    from genesis.engine.symbolic.plan_template import Family

VARIABLE: Final = "GENESIS_PLAN_CACHE"
"""Environment variable: 0 keeps plans off the disk."""

MAKING_FOLDERS: Final = ("ir", "passes", "codegen", "runtime", "engine")
MAKING_MODULES: Final = ("config.py",)
"""What decides which plan a program gets. The rest of Genesis decides which program it is, and that is part of a
plan's name on disk anyway."""

MOST_UNSAVED: Final = 64
"""Plans of other sizes that are written when the process ends; writing one takes longer than filling it in."""


def find(captured: Captured, device: Device, templates: Cache[tuple, list[Any]]) -> Compiled:
    """The plan of a captured program that has none in this process.

    Python's collector stays out: compiling makes objects by the hundred thousand, reading a plan by the ten thousand,
    which it would look at again and again. What is garbage by then has no cycles, or is collected afterwards.

    Args:
        templates: what later programs of the same structure are served from (`Plans.templates`); grows.

    Raises:
        CompilationFailed, Overwritten, ...: what compiling raises.
    """
    with uncollected:
        return _find(captured, device, templates)


def _find(captured: Captured, device: Device, templates: Cache[tuple, list[Any]]) -> Compiled:
    start = perf_counter()
    erased = _shape_erased(captured, device)
    if erased is None:
        return compile_graph(build_graph(captured), device)
    structure, numbers = erased
    name = (device, backend_of(device).gpu, config.key(), structure)
    kept: list[Family | _Read] | None = templates.get(name)
    if kept is None:
        kept = templates.add(name, [])
    stored = _stored()
    for source in kept:
        if isinstance(source, _Read):
            plan = None if stored is None else stored.get(_name(structure, numbers, device, source.numbers))
            if plan is not None:
                return _from_disk(plan, start, captured)
        else:
            plan = source.plan(numbers)
            if plan is not None:
                _save_later(structure, numbers, source, device)
                return ready(plan, start, "other size", source.program_of(numbers))
    if stored is not None:
        plan = stored.get(_name(structure, numbers, device, numbers))
        if plan is not None:
            kept.append(_Read(numbers))
            return _from_disk(plan, start, captured)
    return _made(captured, device, structure, numbers, kept)


def _shape_erased(captured: Captured, device: Device) -> tuple[tuple, list[Any]] | None:
    """The structure and the numbers of a program whose plan may serve others, or be kept; else None."""
    if not backend_of(device).keeps_plans:
        return None
    try:
        return structure_of(captured.key)
    except Unknown:
        return None


def _from_disk(plan: Plan, start: float, captured: Captured) -> Compiled:
    graph = build_graph(captured)  # for whoever asks how the plan is made; later the captured nodes are gone
    return ready(plan, start, "disk", lambda: graph)


@dataclass(frozen=True)
class _Read:
    """Stands for a plan that was read from disk, and for the family that it was filled in from, which this process
    does not have: plans of other sizes may be on disk too."""

    numbers: list[Any]


def _made(captured: Captured, device: Device, structure: tuple, numbers: list[Any],
          kept: list[Family | _Read]) -> Compiled:
    """Compile. A size whose family was tuned for another one, which an earlier process ran first, gets that family
    again: its results have the same bits whether plans come from disk or not."""
    start = perf_counter()
    for read in [source for source in kept if isinstance(source, _Read)]:
        family = _family(captured, device, structure, read.numbers)
        plan = None if family is None else family.plan(numbers)
        if family is not None and plan is not None:
            kept[kept.index(read)] = family
            _save_later(structure, numbers, family, device)
            return ready(plan, start, "compiled", family.program_of(numbers))
    family = _family(captured, device, structure, numbers)
    plan = None if family is None else family.plan(numbers)
    if family is not None and plan is not None:
        kept.append(family)
        found = ready(plan, start, "compiled", family.program_of(numbers))
    else:
        found = compile_graph(build_graph(captured), device)
    _save(structure, numbers, found.plan, numbers)
    return found


def _family(captured: Captured, device: Device, structure: tuple, base: list[Any]) -> Family | None:
    """Compile with the leading size open; None if there is none, or some pass cannot work with it.

    Args:
        base: the numbers of the program whose sizes block sizes are to suit.
    """
    from genesis.engine.symbolic.plan_template import Family
    fixed = _fixed_inputs(captured)
    try:
        trace = Trace(B=leading_size(captured.memory_types, fixed))
        symbol = trace.symbol("B")
        program = OpenProgram(captured, symbol, fixed)
        same, numbers = structure_of(program.key)
        assert same == structure
        trace.revalue(B=next(value for x, value in zip(numbers, base, strict=True) if x is symbol))
        return Family(program.graph, numbers, base, trace, device)
    except NoLeadingSize:
        return None
    except Overwritten:
        raise
    except Exception as error:  # a wrong guess, or a pass that needs numbers: the sizes at hand are numbers
        _log(f"sizes stay closed: {type(error).__name__}: {error}")
        return None


def _log(message: str) -> None:
    import logging
    logging.getLogger("genesis").debug(message)


def _fixed_inputs(captured: Captured) -> set[int]:
    """Positions of the inputs that are no data: parameters, and what the program overwrites."""
    updated = {cell for cell, _ in captured.updates}
    parameters = {tensor.storage for held in state.watched.valuerefs() if (tensor := held()) is not None}
    return {i for i, cell in enumerate(captured.cells)
            if cell in updated or (cell.owner is not None and cell.owner() in parameters)}


# The disk

_unsaved: deque[tuple[tuple, list[Any], Family, Device]] = deque(maxlen=MOST_UNSAVED)


def _save_later(structure: tuple, numbers: list[Any], family: Family, device: Device) -> None:
    if _stored() is not None:
        _unsaved.append((structure, numbers, family, device))


@atexit.register
def _save_all() -> None:
    stored = _stored()
    while _unsaved and stored is not None:
        structure, numbers, family, device = _unsaved.popleft()
        if not stored.has(_name(structure, numbers, device, family.numbers)):
            plan = family.plan(numbers, tight=True)
            if plan is not None:
                _save(structure, numbers, plan, family.numbers)


def _save(structure: tuple, numbers: list[Any], plan: Plan, base: list[Any]) -> None:
    """Write a plan if its kernels are on disk."""
    stored = _stored()
    steps = (*plan.steps, *(plan.refresh.steps if plan.refresh is not None else ()))
    if stored is not None and all(step.kernel.entry for step in steps if isinstance(step, Launch)):
        from genesis.codegen.cuda.plan_writer import write_form
        stored.put(_name(structure, numbers, plan.device, base), write_form(plan, numbers, None, ())[0])


def _stored() -> PlanCache | None:
    return None if os.environ.get(VARIABLE) == "0" else _cache_in(default_directory())


@cache
def _cache_in(directory: Path) -> PlanCache:
    return PlanCache(directory)


def _name(structure: tuple, numbers: list[Any], device: Device, base: list[Any]) -> str:
    """All that a plan depends on, as text. `base`: the numbers of the program that its family was compiled for."""
    return repr((structure, numbers, base, config.key(), backend_of(device).gpu, *_environment()))


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
