"""Sources of a plan: the template of its sizes' classes, the disk, or the compiler."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections import deque
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from genesis.config import config, settings
from genesis.engine.backends import backend_of
from genesis.engine.capture import Captured, build_graph
from genesis.engine.compilation import Compiled, compile_graph, ready
from genesis.engine.state import Cache, engine_state
from genesis.engine.symbolic.plan_writer import write_form
from genesis.engine.symbolic.shape_erased import Member, ShapeErased
from genesis.engine.symbolic.shape_erased_key import NotWritable, shape_erased_key
from genesis.engine.symbolic.symbolic_program import FixedSizes, SymbolicProgram
from genesis.engine.symbolic.symbols import Axis, Sizes, Terms, Vector
from genesis.frontend.state import state
from genesis.ir.errors import Overwritten
from genesis.ir.flat_graph import FlatGraph
from genesis.ir.interrupting import of_computing
from genesis.ir.ops import control
from genesis.ir.types import Device
from genesis.runtime.collector import put_off_collection
from genesis.runtime.contexts import uncollected
from genesis.runtime.disk_store import default_directory, name_of
from genesis.runtime.plan import Launch, Plan
from genesis.runtime.plan_cache import PlanCache

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from genesis.engine.symbolic.plan_template import PlanTemplate
    from genesis.engine.symbolic.stored_template import StoredTemplate

VARIABLE: Final = "GENESIS_PLAN_CACHE"
"""Environment variable: 0 keeps plans off the disk."""

MAKING_FOLDERS: Final = ("ir", "passes", "codegen", "runtime", "engine")
MAKING_MODULES: Final = ("config.py",)
"""Folders and files whose code decides which plan a program gets. The rest of Genesis decides which program it is, and
that is part of a plan's name on disk anyway."""

MAKING_FILES: Final = (".py", "choices.txt")
"""Endings of their names: code, and the shipped table of choices."""

MOST_UNSAVED: Final = 64
"""Plans made while times decide that are written when the process ends."""


def find(captured: Captured, device: Device, shape_erased: Cache[tuple, ShapeErased]) -> Compiled:
    """The plan of a captured program that has none in this process.

    Python's collector stays out: compiling makes objects by the hundred thousand, reading a plan by the ten thousand,
    which it would look at again and again. What is garbage by then has no cycles, or is collected afterwards.

    Args:
        shape_erased: what later programs of the same shape-erased key are served from (`Plans.shape_erased`); grows.

    Raises:
        CompilationFailed, Overwritten, ...: what compiling raises.
    """
    with uncollected:
        found = _find(captured, device, shape_erased)
        if not engine_state.observers:  # before the collector would take it for old
            found.forget_passed()
    put_off_collection()
    return found


def _find(captured: Captured, device: Device, shape_erased: Cache[tuple, ShapeErased]) -> Compiled:
    start = perf_counter()
    key = _shape_erased(captured, device)
    if key is None:
        return compile_graph(build_graph(captured), device, known=bool(engine_state.observers))
    erased, numbers = key
    exact = backend_of(device).any_size
    name = (device, backend_of(device).gpu, config.key(), erased)
    programs = shape_erased.get(name)
    if programs is None:
        programs = shape_erased.add(name, ShapeErased(exact))
    member = programs.member(captured, _fixed_inputs(captured), numbers, engine_state.cuts.cutting)
    found = _plan_of_member(captured, device, erased, member, programs, start)
    if programs.moving and not exact and config.background_compile and stored_plans() is not None:
        from genesis.engine.background import compile_ahead
        compile_ahead(captured, device, member, programs, lambda: template_name(erased, member, device))
    return found


def _plan_of_member(captured: Captured, device: Device, erased: tuple, member: Member, programs: ShapeErased,
                    start: float) -> Compiled:
    numbers = member.numbers
    for template in member.templates:
        plan = template.plan(numbers)
        if plan is not None:
            return ready(plan, start, "other size", template.program_of(numbers))
    for known in member.stored:
        plan = known.plan(numbers)
        if plan is not None:
            return _from_disk(plan, start, captured, "other size", known)
    if programs.exact:
        return _made_exactly(captured, device, erased, member, programs)
    stored = stored_plans()
    if stored is not None:
        plan = stored.get(_name(erased, member, device))
        if plan is not None:
            return _from_disk(plan, start, captured)
        for read in _read_templates(stored, erased, member, device):
            plan = read.plan(numbers)
            if plan is not None:
                return _from_disk(plan, start, captured, "disk", read)
    found = _made(captured, device, erased, member)
    member.compiled()
    return found


def _shape_erased(captured: Captured, device: Device) -> tuple[tuple, list[int]] | None:
    """The shape-erased key and the numbers of a program whose plan may serve others, or be kept; else None."""
    backend = backend_of(device)
    if not backend.keeps_plans and (not backend.any_size or captured.moving):  # places that move have no symbols
        return None
    try:
        return shape_erased_key(captured.key)
    except NotWritable:
        return None


def _from_disk(plan: Plan, start: float, captured: Captured, origin: str = "disk",
               template: StoredTemplate | None = None) -> Compiled:
    graph = build_graph(captured)  # for those who ask for the stages; later the captured nodes are gone
    found = ready(plan, start, origin, FlatGraph.of(graph).graph)
    found.background = template is not None and template.background
    return found


def _made(captured: Captured, device: Device, erased: tuple, member: Member) -> Compiled:
    """Compile, over symbolic sizes where the program lets us."""
    start = perf_counter()
    numbers, before = member.numbers, member.all_templates
    try:
        template, plan = _fitting(captured, device, erased, member)
        member.templates.append(template)
        _save_template(erased, member, template, device)
        found = ready(plan, start, "compiled", template.program_of(numbers))
    except FixedSizes as refusal:
        logging.getLogger("genesis").debug("sizes stay numbers: %s", refusal)
        found = compile_graph(build_graph(captured), device, known=bool(engine_state.observers))
        found.fixed_sizes = str(refusal)
    if before or member.stored:
        from genesis.engine.symbolic.recompilation import Recompilation
        found.recompilation = Recompilation(before, numbers, len(member.stored))
    _save(erased, member, found.plan)
    return found


def _fitting(captured: Captured, device: Device, erased: tuple, member: Member) -> tuple[PlanTemplate, Plan]:
    """A template for the program's sizes, and the plan that it gives for these.

    Raises:
        FixedSizes: there is none.
    """
    template = _template(captured, device, erased, member)
    plan = template.plan(member.numbers)
    if plan is None:
        raise FixedSizes("its own sizes are at odds with what its kernels were made for")
    return template, plan


def make_ahead(captured: Captured, device: Device, erased: tuple, member: Member) -> str:
    """Write a template for a program that nobody runs here: the one that a process makes which runs it. What came of
    it: "made", or why there was nothing to make.

    Raises:
        CompilationFailed, Overwritten, ...: what compiling raises.
    """
    stored = stored_plans()
    if stored is None:
        return "plans are kept off the disk"
    if any(read.plan(member.numbers) is not None for read in _read_templates(stored, erased, member, device)):
        return "it was there"
    try:
        template, _ = _fitting(captured, device, erased, member)
    except FixedSizes as refusal:
        return f"its sizes stay numbers: {refusal}"
    return "made" if _save_template(erased, member, template, device, background=True) else "it could not be written"


def template_name(erased: tuple, member: Member, device: Device) -> str:
    """The name on disk of the first template for a member's sizes."""
    return name_of(_template_name(erased, member, device, 0))


def _made_exactly(captured: Captured, device: Device, erased: tuple, member: Member, programs: ShapeErased) -> Compiled:
    """The first program of its structure is compiled as it is; when another size comes, over symbolic sizes."""
    from genesis.engine.symbolic.call_template import CallTemplate
    start = perf_counter()
    if member.moved() and programs.refused < MOST_REFUSALS and len(member.templates) < MOST_TEMPLATES:
        try:
            sizes, program, numbers = _traced(captured, erased, member, exact=True)
            template = CallTemplate(program.graph, numbers, sizes.trace, sizes.where(), device)
            plan = template.plan(member.numbers)
            if plan is None:
                raise FixedSizes("its own sizes are at odds with what its plan was made for")
            member.templates.append(template)  # type: ignore[arg-type]  # what `Member` has is the backend's kind
            member.compiled()
            return ready(plan, start, "compiled", template.program_of(member.numbers))
        except Overwritten:
            raise
        except of_computing(FixedSizes, AttributeError, OverflowError, *_SHAPE_ERRORS) as refusal:
            from genesis.ir.verify import verifying
            if verifying() and not isinstance(refusal, FixedSizes):
                raise
            programs.refused += 1
            logging.getLogger("genesis").debug("sizes stay numbers: %s", refusal)
    found = compile_graph(build_graph(captured), device, known=bool(engine_state.observers))
    member.compiled()
    return found


MOST_TEMPLATES: Final = 8
"""Templates of one signature from which on a new size is compiled by itself: its guards hold for a size alone."""

MOST_REFUSALS: Final = 4
"""Templates that cannot be made, from which on each size of a program is compiled by itself."""

_SHAPE_ERRORS: Final = (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError)
"""What ops say of shapes that do not fit, and what Python says of a symbol where it needs a number."""


def _template(captured: Captured, device: Device, erased: tuple, member: Member) -> PlanTemplate:
    """Compile with symbolic sizes.

    Raises:
        FixedSizes: there are none, or some pass needs a number. Under GENESIS_VERIFY=1 the pass' error is raised.
    """
    from genesis.codegen.cuda.build_kernel import NotFusable
    from genesis.engine.symbolic.plan_template import PlanTemplate
    sizes, program, numbers = _traced(captured, erased, member)
    arguments = {sizes.names.get(sizes.told(axis.position)) for axis in member.arguments()}
    sizes.trace.literals = frozenset(sizes.names.values()) - arguments
    try:
        return PlanTemplate(program.graph, numbers, sizes.trace, sizes.where(), device, program.key)
    except Overwritten:
        raise
    except of_computing(NotFusable, *_SHAPE_ERRORS) as error:
        from genesis.ir.verify import verifying
        if verifying():
            raise
        raise FixedSizes(f"a pass needs them ({type(error).__name__}: {error})") from error


def _traced(captured: Captured, erased: tuple, member: Member,
            exact: bool = False) -> tuple[Sizes, SymbolicProgram, list[int]]:
    """The program over symbols for the sizes of its data, and the numbers and symbols that its key leaves out.

    A size that has to be one number (the columns of what a parameter is multiplied with), or follows from others
    (labels for B·T tokens), does not change by itself: the program is made again without a symbol for it.
    """
    axes = member.moved() if exact else member.axes
    derived: dict[Vector, Terms] = {}
    while True:
        sizes = Sizes(member.numbers, member.samples, axes, derived, exact)
        placed = not exact and any(node.op.placed or node.op is control.call for node in captured.order)
        if not sizes.names and not placed:
            raise FixedSizes(_no_sizes(axes))
        try:
            program = SymbolicProgram(captured, sizes)
        except Overwritten:
            raise
        except of_computing(*_SHAPE_ERRORS) as error:  # a wrong guess
            raise FixedSizes(f"its sizes follow no rule ({type(error).__name__}: {error})") from error
        if not sizes.trace.classes:
            raise FixedSizes(_no_sizes(axes))
        solved = sizes.solved()
        if not solved:
            if not exact:
                sizes.guard()
            break
        derived |= {size: terms for size, terms in solved.items() if terms}
        axes = [axis for axis in axes if solved.get(sizes.told(axis.position)) != ()]
    same, numbers = shape_erased_key(program.key)
    if same != erased:
        raise FixedSizes("what it computes depends on them")
    return sizes, program, numbers


def _no_sizes(axes: Sequence[Axis]) -> str:
    return "no size of its data can change by itself" if axes else "it neither reads nor makes data"


def _fixed_inputs(captured: Captured) -> set[int]:
    """Positions of the inputs that are no data: parameters, buffers, and what the program overwrites."""
    updated = set(captured.overwritten)
    tensors = [held() for held in state.parameters.valuerefs()]
    tensors += [tensor for held in state.modules.valuerefs() if (module := held()) is not None
                for tensor in module._buffers.values()]
    kept = {tensor.storage for tensor in tensors if tensor is not None}
    return {i for i, cell in enumerate(captured.cells)
            if cell in updated or (cell.owner is not None and cell.owner() in kept)}


# The disk

_tuned: deque[tuple[tuple, Member, Plan, tuple]] = deque(maxlen=MOST_UNSAVED)
"""Plans made while times decide, with their settings: their names hold the whole table, which the next plan may add
to, so they are written when the process ends."""


@atexit.register
def _save_all() -> None:
    stored = stored_plans()
    while _tuned and stored is not None:
        erased, member, made, key = _tuned.popleft()
        with settings(key):
            _save_now(erased, member, made)


def _save(erased: tuple, member: Member, plan: Plan) -> None:
    """Write a plan if its kernels are on disk, or have it written at the end."""
    if config.tune == "max":
        _tuned.append((erased, member, plan, config.key()))
    else:
        _save_now(erased, member, plan)


def _save_now(erased: tuple, member: Member, plan: Plan) -> None:
    stored = stored_plans()
    steps = (*plan.steps, *(plan.refresh.steps if plan.refresh is not None else ()))
    if stored is not None and all(step.kernel.entry for step in steps if isinstance(step, Launch)):
        stored.put(_name(erased, member, plan.device), write_form(plan, member.numbers, None, ())[0])


def _save_template(erased: tuple, member: Member, template: PlanTemplate, device: Device,
                   background: bool = False) -> bool:
    """Write a template that serves other sizes, for processes that meet these; returns whether that worked. Not while
    times decide: its name would hold a table that the next plan adds to.

    Args:
        background: nobody waits for it (`engine/background.py`).
    """
    stored = stored_plans()
    if stored is None or config.tune == "max" or template.trace.literals >= template.trace.classes.keys():
        return False
    if member.unread < MOST_TEMPLATES:  # what is there with this number could not be read
        from genesis.engine.symbolic.stored_template import template_as_json
        name = _template_name(erased, member, device, member.unread)
        if stored.put_template(name, template.form.entries, template_as_json(template.filling, background)):
            member.skip_stored()
            member.written()
            return True
    return False


def _read_templates(stored: PlanCache, erased: tuple, member: Member, device: Device) -> Iterator[StoredTemplate]:
    """The templates on disk for sizes of these classes that this process has not read yet. They are its own then."""
    if config.tune == "max":
        return
    from genesis.engine.symbolic.stored_template import template_from_json
    while member.unread < MOST_TEMPLATES:
        found = stored.get_template(_template_name(erased, member, device, member.unread), template_from_json)
        if found is None:
            return
        member.skip_stored()
        member.stored.append(found)
        yield found


def stored_plans() -> PlanCache | None:
    """The plans on disk; None where they are kept off it."""
    return None if os.environ.get(VARIABLE) == "0" else _cache_in(default_directory())


@cache
def _cache_in(directory: Path) -> PlanCache:
    return PlanCache(directory)


def _name(erased: tuple, member: Member, device: Device) -> str:
    """All that a plan depends on, as text."""
    return repr((erased, member.numbers, *_settings(member, device)))


def _template_name(erased: tuple, member: Member, device: Device, number: int) -> str:
    """All that a template depends on, as text. There are several where guards tell sizes of a class apart."""
    return repr(("template", number, erased, member.classes, *_settings(member, device)))


def _settings(member: Member, device: Device) -> tuple[object, ...]:
    return (sorted(member.fixed), config.key(), backend_of(device).gpu, backend_of(device).decided_by, *_environment())


@cache
def _environment() -> tuple[Hashable, ...]:
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
            if name.endswith(MAKING_FILES):
                stat = os.stat(os.path.join(folder, name))
                found.append((os.path.join(folder[len(root):], name), stat.st_size, stat.st_mtime_ns))
    return tuple(found)
