"""What one process knows of the programs of one shape-erased key: they differ in nothing but sizes.

An axis of an input that is no parameter, buffer or optimizer state is *data*. Every plan is compiled as if all sizes
of data could change; what a kernel does follows from their classes (`ir/size_class.py`) and from guards, which name
ranges. So a size gets the same bits whatever was met before it. What history decides is only how kernels learn a size:
one that was always the same (but for the batch) is written into their text, one that was seen to change is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from genesis.engine.symbolic.places import prefix_axes
from genesis.engine.symbolic.symbols import Axis, counted_axes, data_axes, leading_axis, made_axes
from genesis.ir.size_class import class_of, exact_class_of
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from genesis.engine.background import Ahead
    from genesis.engine.capture import Captured
    from genesis.engine.symbolic.plan_template import PlanTemplate
    from genesis.engine.symbolic.stored_template import StoredTemplate
    from genesis.ir.node import Node

MOST_SAMPLES: Final = 4
"""Programs whose numbers are remembered to tell apart sizes that are equal by chance."""

MANY: Final = 16
"""Sizes that an axis of equal kinds of values has in a piece of a loop, from which on it is another one each turn."""

SHARED: Final = 8
"""Uses of an input from which on all turns of a piece read it: it is no value that turns hand on."""


Signature = tuple[frozenset[int], tuple[str, ...]]
"""Fixed inputs and classes of the sizes: all that kernels depend on, but for guards."""


class ShapeErased:
    """The programs of one shape-erased key.

    Args:
        exact: nothing is chosen by classes of sizes (`Trace.exact`).

    Attributes:
        samples: the numbers of programs that were compiled, the newest last.
        templates: fixed inputs and classes of the sizes → what plans are filled in from.
        stored: the same, of templates from disk, and `unread` the number of the first that was not looked at.
        moving: positions of the numbers that were seen to change.
        refused: how many templates could not be made.
        written: whether a template of theirs was written to the disk by this process.
        ahead: fixed inputs → what was asked of the process in the background (`engine/background.py`).
    """

    def __init__(self, exact: bool = False) -> None:
        self.exact, self.refused = exact, 0
        self.samples: list[list[int]] = []
        self.templates: dict[Signature, list[PlanTemplate]] = {}
        self.stored: dict[Signature, list[StoredTemplate]] = {}
        self.unread: dict[Signature, int] = {}
        self.moving: set[int] = set()
        self.written = False
        self.ahead: dict[frozenset[int], Ahead] = {}
        self._first: dict[int, int] = {}
        self._counted = False
        self._axes: dict[frozenset[int], Sequence[Axis]] = {}  # of the data, by the inputs that are none

    @classmethod
    def of_history(cls, first: Iterable[tuple[int, int]], moving: Iterable[int],
                   samples: Iterable[list[int]]) -> ShapeErased:
        """What another process knows of them (`history`)."""
        found = cls()
        found._first, found.moving, found.samples = dict(first), set(moving), list(samples)
        return found

    def history(self) -> tuple[list[tuple[int, int]], list[int], list[list[int]]]:
        """What decides how kernels learn a size: the sizes at first, by position, the positions of those that were seen
        to change, and samples."""
        return list(self._first.items()), sorted(self.moving), list(self.samples)

    def of_inputs(self, fixed: frozenset[int]) -> list[PlanTemplate]:
        """The templates that this process made for programs with these fixed inputs."""
        return [template for (inputs, _), found in self.templates.items() if inputs == fixed for template in found]

    def member(self, captured: Captured, fixed: set[int], numbers: list[int], piece: bool = False) -> Member:
        """The program with these numbers, from now on a member that was seen.

        Args:
            fixed: inputs that are no data.
            piece: it is a piece of a loop: sizes that change from turn to turn will change from piece to piece.
        """
        types, given = captured.memory_types, frozenset(fixed)
        axes = self._axes.get(given)
        if axes is None:  # they are the same for all members, which differ in sizes alone
            axes = self._axes[given] = (*data_axes(types, fixed), *made_axes(captured))
        axes = (*axes, *prefix_axes(captured, fixed))
        for axis in axes:
            size = numbers[axis.position]
            if self._first.setdefault(axis.position, size) != size:
                self.moving.add(axis.position)
        if piece and not self.samples:
            self.moving.update(_changing(captured, axes))
        if self.moving and not self._counted and self.exact:  # what is counted once and for all stays a number
            self._counted = True
            self.moving.update(counted_axes(captured, axes))
        return Member(self, types, axes, given, numbers)


def _changing(captured: Captured, axes: Sequence[Axis]) -> set[int]:
    """Positions of the sizes, of what a piece of a loop is handed by the one before, that are others in each turn.

    Values with as many dimensions have many sizes there, and the input is no value that all turns read.
    """
    sizes: dict[tuple[int, int], set[int]] = {}
    uses: dict[Node, int] = {}
    for node in captured.order:
        for type in node.types:
            for axis, size in enumerate(type.shape):
                sizes.setdefault((type.ndim, axis), set()).add(size)
        for x in node.inputs:
            uses[x] = uses.get(x, 0) + 1
    if all(len(found) <= MANY for found in sizes.values()):
        return set()
    at = {cell: i for i, cell in enumerate(captured.cells)}
    shared = {at[node.buffer] for node, count in uses.items() if count > SHARED and node.buffer in at}
    types = captured.memory_types
    return {axis.position for axis in axes if axis.input is not None and axis.input not in shared
            and len(sizes.get((types[axis.input].ndim, axis.axis), ())) > MANY}


class Member:
    """One program of a shape-erased key.

    Attributes:
        axes: those of its data.
        fixed: its inputs that are no data.
        numbers: those that its shape-erased key leaves out.
        classes: of each axis.
        signature: its fixed inputs, and these: all that its kernels depend on, but for guards.
    """

    def __init__(self, shape_erased: ShapeErased, types: Sequence[TensorType], axes: Sequence[Axis],
                 fixed: frozenset[int], numbers: list[int]):
        self._shape_erased, self._types = shape_erased, types
        self.axes, self.fixed, self.numbers = axes, fixed, numbers
        of = exact_class_of if shape_erased.exact else class_of
        self.classes = tuple([str(of(numbers[axis.position])) for axis in axes])
        self.signature: Signature = fixed, self.classes

    @property
    def templates(self) -> list[PlanTemplate]:
        """The templates of its signature that this process made, which may serve it."""
        return self._shape_erased.templates.setdefault(self.signature, [])

    @property
    def stored(self) -> list[StoredTemplate]:
        """Those that were read from disk."""
        return self._shape_erased.stored.setdefault(self.signature, [])

    @property
    def unread(self) -> int:
        """The number of the first on disk that this process has neither read nor written."""
        return self._shape_erased.unread.get(self.signature, 0)

    def skip_stored(self) -> None:
        """The one with that number was read, or written."""
        self._shape_erased.unread[self.signature] = self.unread + 1

    @property
    def all_templates(self) -> list[PlanTemplate]:
        """Those of all signatures, by signature."""
        return [template for found in self._shape_erased.templates.values() for template in found]

    @property
    def samples(self) -> list[list[int]]:
        """The numbers of other members that were compiled."""
        return [sample for sample in self._shape_erased.samples if sample != self.numbers]

    def arguments(self) -> list[Axis]:
        """The axes whose sizes kernels take as arguments: the batch, and what was seen to change.

        Not a batch as large as its rows are long, as of a square matrix: they are one symbol, and rows whose length is
        written into a kernel are faster.
        """
        leading = leading_axis(self._types, self.axes)
        if leading is not None and any(axis.axis and self.numbers[axis.position] == self.numbers[leading.position]
                                       for axis in self.axes):
            leading = None
        return [axis for axis in self.axes if axis == leading or axis.position in self._shape_erased.moving]

    def moved(self) -> list[Axis]:
        """The axes of its data whose sizes were seen to change."""
        return [axis for axis in self.axes if axis.position in self._shape_erased.moving]

    def written(self) -> None:
        """A template of its signature was written to the disk."""
        self._shape_erased.written = True

    def compiled(self) -> None:
        """Keep its numbers as a sample."""
        samples = self._shape_erased.samples
        if self.numbers not in samples:
            samples.append(self.numbers)
            if len(samples) > MOST_SAMPLES:  # the first and the latest tell most
                del samples[1]
