"""Results of a captured function, described so that a replay returns the same over new memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from sys import getrefcount
from typing import Any

from genesis.frontend.detached import Detached
from genesis.frontend.grad_mode import mode
from genesis.frontend.later_number import LaterNumber
from genesis.frontend.recording import FREED, TensorBase, note_view, over
from genesis.frontend.storage import Storage
from genesis.frontend.tensor import Size, Tensor
from genesis.frontend.views import View
from genesis.ir.node import Node
from genesis.ir.sequences import is_named, sequence_of
from genesis.tracing.plain_values import SIMPLE, same
from genesis.tracing.records import record_fields, with_fields
from genesis.tracing.snapshot import MISSING, NotReplayable, attributes, set_by_the_user


@dataclass(frozen=True)
class _Out:
    """A returned tensor: the argument number `argument`, or one over the new storage number `fresh`."""

    argument: int | None
    fresh: int
    type: Any
    part: View | None
    leaf: int | None
    detached: int | None
    is_view: bool


@dataclass(frozen=True)
class _Record:
    """The class of a returned record."""

    kind: type

    def of(self, values: dict[str, Any]) -> Any:
        """An instance with these attributes."""
        return with_fields(self.kind, values)


@dataclass(frozen=True)
class _Read:
    """A number in a result: what this method of a tensor gives."""

    method: str


@dataclass(frozen=True)
class _Computed:
    """A number in a result that is computed of such ones, and of plain numbers."""

    operation: Callable[..., Any]

    def of(self, operands: Sequence[Any]) -> Any:
        """The number."""
        return self.operation(*operands)


@dataclass(frozen=True)
class Known:
    """An object in a result that is there anyway, and the same at every replay."""

    value: Any


class Result:
    """The structure of a captured function's result.

    Attributes:
        fresh: the storages that the call made for its tensors.
    """

    def __init__(self, result: Any, tensors: Sequence[Any], knows: Callable[[Any], bool],
                 read_last: Callable[[Any], tuple[Any, str] | None] = lambda value: None):
        self._read_last = read_last
        self._arguments = {id(x): i for i, x in enumerate(tensors)}
        self._argument_storages = {id(x.storage) for x in tensors}
        self._knows = knows
        self._at: dict[int, int] = {}
        self._outs: list[_Out] = []
        self.fresh: list[Storage] = []
        self._fresh_at: dict[int, int] = {}  # by address: `free` counts who refers to a storage
        self.tree = self._describe(result)
        del self._read_last  # which holds what is read: memory, or stand-ins
        self._inference = [(i, s.inference) for i, s in enumerate(self.fresh) if s.inference is not mode.inference]
        self._single = self.tree.__class__ is int

    def _describe(self, value: Any) -> Any:
        if isinstance(value, TensorBase):
            if self._stays(value):
                return ("constant", value)
            if id(value) not in self._at:
                self._outs.append(self._tensor(value))
                self._at[id(value)] = len(self._outs) - 1
            return self._at[id(value)]
        if type(value) is LaterNumber:
            if value.formula is not None:
                operation, operands = value.formula
                return (_Computed(operation), [self._describe(x) for x in operands])
            return (_Read(value.source[1]), self._describe(value.source[0]))
        if isinstance(value, SIMPLE):
            read = self._read_last(value)
            return ("constant", value) if read is None else (_Read(read[1]), self._describe(read[0]))
        if type(value) is Known:
            return ("constant", value.value)
        if type(value) in (list, dict) and (self._knows(value) or id(value) in self._at):
            raise NotReplayable(f"it returns a {type(value).__name__} that others hold, too")
        if type(value) in (list, tuple, Size) or is_named(type(value)):
            self._at[id(value)] = -1
            return (type(value), [self._describe(x) for x in value])
        if type(value) is dict and all(isinstance(k, (str, int, tuple)) for k in value):
            self._at[id(value)] = -1
            return (dict, {k: self._describe(x) for k, x in value.items()})
        if (is_dataclass(value) and not isinstance(value, type)) or record_fields(value) is not None:
            if self._knows(value) or id(value) in self._at:
                raise NotReplayable(f"it returns a {type(value).__name__} that others hold, too")
            self._at[id(value)] = -1
            return (_Record(type(value)), {k: self._describe(x) for k, x in attributes(value) if x is not MISSING})
        raise NotReplayable(f"it returns a {type(value).__name__}")

    def _stays(self, x: Any) -> bool:
        """Whether it is a tensor that was there before the call, no argument, and is guarded to be the same one: a
        running total, a parameter."""
        return id(x) not in self._arguments and self._knows(x) and x.storage.cell is not None

    def _tensor(self, x: Any) -> _Out:
        if id(x) in self._arguments:
            return _Out(self._arguments[id(x)], 0, x.spec, None, None, None, False)
        if type(x) is not Tensor:
            raise NotReplayable(f"it returns a new {type(x).__name__}")
        if set_by_the_user(x):
            raise NotReplayable("it sets an attribute of a tensor that it returns")
        storage = x.storage
        if id(storage) in self._argument_storages:
            raise NotReplayable("it returns a view of an argument")
        if storage.cell is not None:
            raise NotReplayable("it returns a tensor over memory that existed before")
        if x.leaf is not None and x.leaf != FREED:
            raise NotReplayable("it returns a new leaf that requires grad")
        if x._grad is not None:
            raise NotReplayable("it returns a tensor with a gradient")
        position = self._fresh_at.setdefault(id(storage), len(self.fresh))
        if position == len(self.fresh):
            self.fresh.append(storage)
        detached = None if x.detached is None else id(x.detached)
        return _Out(None, position, x.spec, x.part, x.leaf, detached, x.is_view)

    def mapped(self, value: Callable[[Any], Any]) -> Result:
        """The same structure with other types, views and plain values in it."""
        found = copy.copy(self)
        found.tree = _mapped(self.tree, value)
        found._outs = [replace(out, type=value(out.type), part=value(out.part)) for out in self._outs]
        return found

    def has(self, kind: type) -> bool:
        """Whether there is a value of this type in it, in what `mapped` looks at."""
        found: set[type] = set()

        def note(x: Any) -> Any:
            found.add(type(x))
            return x
        self.mapped(note)
        return kind in found

    def same_as(self, other: Result) -> bool:
        """Whether both give the same over the same memory."""
        return (_same_tree(self.tree, other.tree) and self._inference == other._inference
                and self._single == other._single and len(self.fresh) == len(other.fresh)
                and list(map(_comparable, self._outs)) == list(map(_comparable, other._outs)))

    def free(self, is_freed: Callable[[Node], bool]) -> None:
        """Cut the results from their graph: they are those of a step, which has no node for a backward to go through.
        Of one that only detached tensors show the graph ends here.

        Raises NotReplayable if a backward of one would not fail, as it does where the step's backward went through it.
        """
        for storage in self.fresh:
            if storage.detached_by and getrefcount(storage) == storage.references_without_history() + 1:  # `fresh`
                storage.forget_history()
        through = [i for i, s in enumerate(self.fresh) if s.needs_grad]
        for at, out in enumerate(self._outs):
            if out.argument is None and out.fresh in through and out.leaf is None and out.detached is None:
                if not is_freed(self.fresh[out.fresh].node):
                    raise NotReplayable("it returns a value that gradients flow through, and ends a step")
                self._outs[at] = replace(out, leaf=FREED)

    def tensors(self, fresh: Sequence[Storage], tensors: Sequence[Any]) -> list[Any]:
        """The tensors that the result holds, over these storages, or of these arguments. Computes nothing."""
        for i, inference in self._inference:
            fresh[i].inference = inference
        made = []
        detached: dict[int, Detached] = {}
        for out in self._outs:
            if out.argument is not None:
                made.append(tensors[out.argument])
                continue
            x = over(fresh[out.fresh], out.type, out.part)
            x.leaf, x.is_view = out.leaf, out.is_view
            if out.detached is not None:
                x.detached = detached.setdefault(out.detached, Detached())
            if out.is_view and out.leaf is None:
                note_view(x)
            made.append(x)
        return made

    def value(self, made: Sequence[Any]) -> Any:
        """The result that holds these tensors."""
        return made[0] if self._single else self.part(self.tree, made)

    def part(self, tree: Any, made: Sequence[Any]) -> Any:
        """A part of the result that has this structure. One that `reads` computes values."""
        if tree.__class__ is int:
            return made[tree]
        kind, parts = tree
        if kind.__class__ is _Read:
            return getattr(made[parts], kind.method)()
        if kind == "constant":
            return parts
        if kind is dict:
            return {k: self.part(x, made) for k, x in parts.items()}
        if kind.__class__ is _Record:
            return kind.of({k: self.part(x, made) for k, x in parts.items()})
        if kind.__class__ is _Computed:
            return kind.of([self.part(x, made) for x in parts])
        return sequence_of(kind, [self.part(x, made) for x in parts])


def _mapped(tree: Any, value: Callable[[Any], Any]) -> Any:
    if tree.__class__ is int:
        return tree
    kind, parts = tree
    if kind == "constant":
        return kind, value(parts)
    if kind.__class__ is _Read:
        return tree
    return kind, {k: _mapped(x, value) for k, x in parts.items()} if isinstance(parts, dict) else [
        _mapped(x, value) for x in parts]


def _same_tree(a: Any, b: Any) -> bool:
    if a.__class__ is int or b.__class__ is int:
        return bool(a == b)
    (kind, parts), (other, others) = a, b
    if kind != other or len(a) != len(b):
        return False
    if kind.__class__ is _Read:
        return _same_tree(parts, others)
    if kind == "constant":
        return same(parts, others)
    if isinstance(parts, dict):
        return list(parts) == list(others) and all(_same_tree(x, others[k]) for k, x in parts.items())
    return len(parts) == len(others) and all(map(_same_tree, parts, others))


def _comparable(out: _Out) -> tuple[Any, ...]:
    """What two equal returned tensors have in common."""
    part = out.part
    view = part and (type(part), part.strides, part.offset, part.steps, part.leaf_steps)
    return out.argument, out.fresh, out.type, view, out.leaf, out.detached is None, out.is_view


def reads(tree: Any) -> bool:
    """Whether a number in a result of this structure is read from a tensor."""
    if tree.__class__ is int:
        return False
    kind, parts = tree
    return kind.__class__ is _Read or (kind != "constant" and any(map(reads, parts.values() if isinstance(
        parts, dict) else parts)))
