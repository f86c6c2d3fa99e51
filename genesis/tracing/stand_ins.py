"""Stand-ins: arguments whose sizes and numbers are symbols, to learn what a call does for others.

A stand-in of a tensor has its dtype and device, symbolic sizes (`ir/sym_int.py`) and no values; that of a number is a
traced number (`frontend/traced_number.py`). What is equal in all calls that were captured is the same here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from genesis.frontend.recording import TensorBase, over
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.traced_number import NumberTrace, alike
from genesis.frontend.views import Layout, View
from genesis.ir.ops import movement
from genesis.ir.sequences import is_named, sequence_of
from genesis.ir.size_class import LEAST
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import SymInt
from genesis.ir.types import TensorType, row_major
from genesis.tracing.erased_signature import Erased
from genesis.tracing.records import record_fields, with_fields
from genesis.tracing.snapshot import NotReplayable, set_by_the_user


class Symbols:
    """The symbols of a template: one for all sizes, or numbers, that were equal in each sample.

    Attributes:
        size_names, number_names: for each size, and number, of a call its symbol; None for one that never changed.
        trace: the trace, for the numbers of the first sample.

    Args:
        samples: calls of one erased signature, of which the first is at hand.
        positions: whether numbers may be positions and sizes of tensors (`NumberTrace`).

    Raises:
        NotReplayable: nothing of theirs can change.
    """

    def __init__(self, samples: Sequence[Erased], positions: bool = False):
        first = samples[0]
        self.size_names = _named("n", [x.sizes for x in samples])
        self.number_names = _named("m", [x.numbers for x in samples])
        self._sizes, self._numbers = first.sizes, first.numbers
        sizes = {name: size for name, size in zip(self.size_names, first.sizes, strict=True) if name is not None}
        if any(size < LEAST for size in sizes.values()):
            raise NotReplayable("a size of 0 or 1 has no others in its class")
        if not sizes and not any(self.number_names):
            raise NotReplayable("no size or number was seen to change")
        self.trace = NumberTrace(Trace(True, **sizes), positions)
        self.sizes = [size if name is None else self.trace.sizes.symbol(name)
                      for size, name in zip(first.sizes, self.size_names, strict=True)]
        self.numbers = [value if name is None else self.trace.symbol(name, value)
                        for value, name in zip(first.numbers, self.number_names, strict=True)]

    def values(self, call: Erased) -> dict[str, Any] | None:
        """Symbol → its number in a call of the same erased signature; None where what was fixed is another, or two
        sizes of one symbol differ."""
        found = _values(call.sizes, self.size_names, self._sizes)
        numbers = self.number_values(call) if found is not None else None
        return None if found is None or numbers is None else self.trace.with_positions(found | numbers)

    def number_values(self, call: Erased) -> dict[str, Any] | None:
        """`values` of the numbers alone."""
        return _values(call.numbers, self.number_names, self._numbers)


def _values(values: Sequence[Any], names: Sequence[str | None], fixed: Sequence[Any]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for value, name, own in zip(values, names, fixed, strict=True):
        if not alike(value, own if name is None else found.setdefault(name, value)):
            return None
    return found


def _named(letter: str, samples: Sequence[Sequence[Any]]) -> list[str | None]:
    names: dict[tuple[str, ...], str] = {}
    found: list[str | None] = []
    for column in zip(*samples, strict=True):
        values = tuple(map(repr, column))
        found.append(names.setdefault(values, f"{letter}{len(names)}") if len(set(values)) > 1 else None)
    return found


class StandIns:
    """Makes stand-ins for the arguments of a call, in the order in which its signature describes them.

    Attributes:
        tensors: stand-ins, or the tensors themselves where no size changes, each once.
        strides: of those that are laid out in another order than row-major.
    """

    def __init__(self, symbols: Symbols):
        self.tensors: list[Any] = []
        self.strides: list[tuple[Any, ...]] = []
        self._made: dict[int, Any] = {}
        self._storages: set[int] = set()
        self._sizes: Iterator[Any] = iter(symbols.sizes)
        self._numbers: Iterator[Any] = iter(symbols.numbers)

    def of(self, value: Any) -> Any:
        """What stands for an argument, or a part of one.

        Raises:
            NotReplayable: nothing can.
        """
        if isinstance(value, TensorBase):
            if id(value) not in self._made:
                if id(value.storage) in self._storages:  # of slots (`describe_all`)
                    raise NotReplayable("two places that it writes to share memory")
                self._storages.add(id(value.storage))
                self._made[id(value)] = self._tensor(value)
                self.tensors.append(self._made[id(value)])
            return self._made[id(value)]
        if type(value) in (int, float):
            return next(self._numbers)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            raise NotReplayable(f"an argument is a {type(value).__name__}")
        if isinstance(value, (list, tuple)):
            items = [self.of(x) for x in value]
            if all(a is b for a, b in zip(items, value, strict=True)):
                return value
            if type(value) not in (list, tuple) and not is_named(type(value)):
                raise NotReplayable(f"an argument is a {type(value).__name__}")
            return sequence_of(type(value), items)
        if isinstance(value, dict):
            pairs = [(self.of(key), self.of(x)) for key, x in value.items()]
            if not all(key is own for (key, _), own in zip(pairs, value, strict=True)):
                raise NotReplayable("an argument is a dictionary with another number as a key")
            if all(x is value[key] for key, x in pairs):
                return value
            if type(value) is not dict:
                raise NotReplayable(f"an argument is a {type(value).__name__}")
            return dict(pairs)
        fields = record_fields(value)
        if fields is not None:
            made = {name: self.of(x) for name, x in fields.items()}
            return value if all(made[name] is x for name, x in fields.items()) else with_fields(type(value), made)
        return value

    def _tensor(self, x: Any) -> Any:
        if isinstance(x.part, View) and not isinstance(x.part, Layout):  # of a slot (`describe_all`)
            return x
        shape = tuple([next(self._sizes) for _ in range(x.spec.ndim)])
        permuted = x.part is not None
        if all(size.__class__ is not SymInt for size in shape):
            if permuted:
                self.strides.append(x.part.strides)
            return x
        if x.leaf is not None or x.detached is not None or x.storage.needs_grad or set_by_the_user(x):
            raise NotReplayable("gradients flow through an argument of changing size")
        if x.storage.exported:
            raise NotReplayable("an argument of changing size shares its memory with others")
        kind = x.spec.with_shape(shape)
        if not permuted:
            return over(_memory_of(x, kind), kind, None)
        (order,) = x.part.steps[0][1]
        inverse = movement.inverse(order)
        whole = tuple([shape[axis] for axis in inverse])
        strides_of_whole = row_major(whole)
        strides = tuple([strides_of_whole[axis] for axis in order])
        self.strides.append(strides)
        return over(_memory_of(x, kind.with_shape(whole)), kind, Layout(strides, 0, x.part.steps))


def _memory_of(x: Any, kind: TensorType) -> Storage:
    """A memory without content, in inference mode if that of x is."""
    made = Storage(kind, None, Cell(_Nothing()))
    made.inference = x.storage.inference
    return made


class _Nothing:
    """The memory of a stand-in: nobody can read it."""

    nbytes = 0
