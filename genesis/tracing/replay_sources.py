"""The sources of a replay's operands: arguments, storages that stay, numbers to ask for again."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

from genesis.engine.capture import Captured
from genesis.frontend.at_once import Change, Expected
from genesis.frontend.session import MadeOf, Session, ahead_of
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.traced_number import alike
from genesis.ir.node import Node
from genesis.tracing.snapshot import NotReplayable, Unsettled


def sources_of(captured: Captured, tensors: Sequence[Any], allowed: set[Storage],
               made: Mapping[Cell, MadeOf]) -> list[Any]:
    """Each memory of the program → where a replay finds it: an argument's number, or a storage.

    `made`: what the call made from numbers of Python's (`Session.of_values`).
    """
    arguments = {x.storage.cell: i for i, x in enumerate(tensors)}
    for i, x in enumerate(tensors):
        leaf = x.storage.snapshot  # the leaf that stands for it while numpy shares its memory
        if leaf is not None:
            arguments[leaf.buffer] = i
    owners = {s.cell: s for s in allowed}
    found: list[Any] = []
    for cell, kind in zip(captured.cells, captured.memory_types, strict=True):
        if cell in arguments:
            found.append(arguments[cell])
            continue
        owner = owners.get(cell)
        if owner is None and cell.owner is not None:
            owner = cell.owner()
        if owner is None:  # the call itself made it from values: it is a constant
            constant = equal_constant(made.get(cell))
            if constant is None:
                constant = Storage(kind, None, cell)
                cell.owner = constant._reference
                note_constant(made.get(cell), constant)
            found.append(constant)
            continue
        if owner.cell is not cell:
            raise Unsettled("it reads a tensor that was overwritten since")
        if owner not in allowed:
            raise NotReplayable("it reads a tensor that is reached in a way that cannot be followed")
        if owner._node is not None and owner._node.needs_grad and owner._node.inputs:
            raise NotReplayable("it reads a tensor that was computed outside and requires grad")
        found.append(owner)
    return found


_constants: Final[weakref.WeakValueDictionary[MadeOf, Storage]] = weakref.WeakValueDictionary()
"""What few numbers of Python's were made into, by calls that are replayed. Calls with equal ones read one memory, so
that their replays are alike and those of other sizes are found (`CallReplay.same_as`)."""


def equal_constant(made: MadeOf | None) -> Storage | None:
    """The memory that replays have for such numbers already; None if there is none."""
    return None if made is None or made.content is None else _constants.get(made)


def note_constant(made: MadeOf | None, storage: Storage) -> None:
    """This memory, which nobody writes to, holds such numbers."""
    if made is not None and made.content is not None:
        _constants[made] = storage


Live = list[tuple[Any, list[list[int]]]]
"""What `live_positions` gives."""


def live_positions(effects: Session, nodes: Sequence[Node]) -> Live:
    """(again, positions of each of its numbers) for numbers that a replay asks for anew."""
    at: dict[Node, list[int]] = {}
    for position, node in enumerate(nodes):
        at.setdefault(node, []).append(position)
    return [(again, [at.get(node, []) for node in made]) for made, again in effects.numbers]


def same_numbers(a: tuple[Sequence[Any], Live], b: tuple[Sequence[Any], Live]) -> bool:
    """Whether two replays have the same numbers, and ask for the same ones anew."""
    (numbers, live), (others, live_there) = a, b
    asked = {place for _, positions in live for places in positions for place in places}
    return (len(numbers) == len(others)
            and [(type(again), where) for again, where in live] == [(type(again), where) for again, where in live_there]
            and all(at in asked or alike(x, y) for at, (x, y) in enumerate(zip(numbers, others, strict=True))))


def look_ahead(numbers: list[Any], live: Live) -> tuple[list[Change], list[Expected]]:
    """Put the numbers of the next call where they belong. Returns the changes that make them given, and what these
    expect to find (`frontend.at_once`): a call that does not come to its end has asked for none."""
    moved: dict[Any, Any] = {}
    changes: list[Change] = []
    expected: list[Expected] = []
    for again, positions in live:
        values, counted, found = ahead_of(again, moved)
        changes += counted
        expected += found
        for value, places in zip(values, positions, strict=True):
            for place in places:
                numbers[place] = value
    return changes, expected
