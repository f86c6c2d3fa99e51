"""Running a program: its steps in order, what they noted, how often a compiled call was a replay."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import gc
import sys
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import genesis
from genesis import engine
from genesis.frontend.default_dtypes import get_default_dtype, set_default_dtype
from tests.tracing.programs.draw import Program
from tests.tracing.programs.tables import KEPT, WATCHED


@dataclasses.dataclass
class Outcome:
    """What a program showed.

    Attributes:
        seen: (number of the step, -1 for the setup, what it noted or raised).
        hits: calls that were replayed.
    """

    seen: list[tuple[int, Any]] = dataclasses.field(default_factory=list)
    hits: int = 0


def run(program: Program, compiled: bool, captures: bool = False) -> Outcome:
    """Run it as it is, or with the function compiled; `captures`: what is pending is computed before each call, as
    before one that is captured."""
    outcome = Outcome()
    functions: list[Any] = []
    undo: list[Callable[[], Any]] = []
    space = _names(outcome, functions if compiled else None, undo)
    genesis.manual_seed(program.seed)
    try:
        for at, step in enumerate((program.setup(), *program.steps), -1):
            space["at"][0] = at
            try:
                if captures and ("= f(" in step or "call(" in step):
                    engine.end_step()
                exec(compile(step, f"<program {program.seed}, step {at}>", "exec"), space)
            except Exception as error:
                freed = " of a freed graph" if "second time" in str(error) else ""
                outcome.seen.append((at, f"raised {type(error).__name__}{freed}"))
        outcome.hits = sum(each.hits for each in functions)
    finally:
        for each in reversed(undo):
            each()
        space.clear()
        functions.clear()
        gc.collect(1)  # what a program leaves pending is no part of the next one's flushes
    return outcome


def difference(program: Program, counts: Counter[str]) -> str:
    """What differs between the plain and the compiled program, '' for nothing; counts calls and replays."""
    compiled = run(program, True)
    counts.update(calls=program.calls(), replays=compiled.hits)
    found = compared(run(program, False), compiled)
    if found and any("Overwritten" in str(each) for each in compiled.seen):  # when it is computed decides that
        return compared(run(program, False, captures=True), compiled)
    return found


def compared(plain: Outcome, compiled: Outcome) -> str:
    """The first thing in which two runs differ."""
    for one, other in zip(plain.seen, compiled.seen, strict=False):
        if "Overwritten" in str(one):  # torch computes as the line runs, and raises nothing: no reference
            return ""
        if "freed graph" in str(other) and one != other:  # torch raises, too, where the plain call refuses less
            return ""
        if one != other:
            return f"step {one[0]}: plain {{}}, compiled {{}}".format(*where_differ(one[1], other[1]))
    return "" if len(plain.seen) == len(compiled.seen) else "one of the two noted more"


def where_differ(one: Any, other: Any) -> tuple[Any, Any]:
    """The first parts of two shown values that differ."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        return next(where_differ(a, b) for a, b in zip(one, other, strict=True) if a != b)
    return one, other


def _names(outcome: Outcome, functions: list[Any] | None, undo: list[Callable[[], Any]]) -> dict[str, Any]:
    """The names that every program has."""
    at = [0]

    def note(value: Any) -> None:
        outcome.seen.append((at[0], shown(value)))

    def compiled(function: Any) -> Any:
        if functions is None:
            return function
        made = genesis.compile(function)
        functions.append(getattr(made, "_compiled_call", made))
        return made

    def patch(owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def patch_item(owner: Any, name: str, value: Any) -> None:
        undo.append(functools.partial(owner.__setitem__, name, owner[name]))
        owner[name] = value

    def keep(switch: Any) -> None:
        undo.append(lambda: switch.__exit__(None, None, None))
        switch.__enter__()

    def module(name: str, source: str) -> Any:
        made = types.ModuleType(name)
        exec(compile(source, f"<{name}>", "exec"), vars(made))
        sys.modules[name] = made
        undo.append(lambda: sys.modules.pop(name, None))
        return made

    def note_state() -> None:
        outcome.seen.extend((at[0], [name, _whole(space[name])]) for name in WATCHED if name in space)

    def same_objects(result: Any) -> list[Any]:
        named = [(name, x) for name, x in space.items() if isinstance(x, genesis.Tensor)]
        found = list(tensors_in(result))
        return [[name for name, x in (*named, *enumerate(found)) if x is each or x.storage is each.storage]
                for each in found]

    space = vars(module("program", ""))
    space.update({
        "at": at, "genesis": genesis, "functools": functools, "enum": enum, "sys": sys, "typing": typing,
        "dataclasses": dataclasses, "ramp": ramp, "note": note, "compiled": compiled, "patch": patch, "keep": keep,
        "patch_item": patch_item, "module": module, "note_state": note_state, "first": first, "last": last,
        "total": total, "same_objects": same_objects, "default_dtype": default_dtype, "setting": setting, "gc": gc})
    return space


def ramp(*shape: int, start: float = 1.0) -> Any:
    """start, start + 1, ... in this shape."""
    return genesis.tensor(np.arange(start, start + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape))


def shown(value: Any) -> Any:
    """A value as nested lists of texts: dtype, shape, flags and every bit of tensors."""
    if isinstance(value, genesis.Tensor):
        flags = f"{'requires grad ' if value.requires_grad else ''}{'leaf ' if value.is_leaf else ''}"
        return f"{value.dtype} {list(value.shape)} {flags}{value.tolist()!r}"
    kind = type(value).__name__
    if isinstance(value, dict):
        return [kind, *([key, shown(x)] for key, x in value.items())]
    if isinstance(value, (list, tuple, types.GeneratorType)):
        return [kind, *map(shown, value)]
    if isinstance(value, set):
        return [kind, *sorted(value)]
    return [kind, shown(vars(value))] if dataclasses.is_dataclass(value) else repr(value)


def _whole(value: Any) -> Any:
    """What is left of a name at the end, gradients included."""
    if isinstance(value, genesis.nn.Module):
        kept = {name: shown(x) for name, x in vars(value).items() if name in KEPT}
        tensors = (*value.named_parameters(), *value.named_buffers())
        return [value.training, kept, *([name, _whole(x)] for name, x in tensors)]
    if isinstance(value, genesis.Tensor):
        return [shown(value), shown(value.grad) if value.is_leaf else "", getattr(value, "tag", None)]
    return shown(value)


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors in a value, in order."""
    if isinstance(value, genesis.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from tensors_in(x)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif dataclasses.is_dataclass(value):
        yield from tensors_in(list(vars(value).values()))


def first(result: Any) -> Any:
    """The first tensor in a result."""
    return next(tensors_in(result))


def last(result: Any) -> Any:
    """The last tensor in a result."""
    return list(tensors_in(result))[-1]


def total(result: Any) -> Any:
    """The sum of all floating-point numbers in a result."""
    return sum(x.float().sum() for x in tensors_in(result) if x.is_floating_point())


@contextlib.contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    """Inside, data without a dtype has this one."""
    before = get_default_dtype()
    set_default_dtype(dtype)
    try:
        yield
    finally:
        set_default_dtype(before)


@contextlib.contextmanager
def setting(**changed: Any) -> Iterator[None]:
    """Inside, `genesis.config` has these settings."""
    before = {name: getattr(genesis.config, name) for name in changed}
    try:
        for name, value in changed.items():
            setattr(genesis.config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(genesis.config, name, value)
