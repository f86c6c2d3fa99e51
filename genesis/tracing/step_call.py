"""One call of a replayed step, which is done or not: what it changes is changed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.engine.plan_lookup import Superseded
from genesis.frontend.at_once import Change, Expected
from genesis.runtime.plan import Rewritten

if TYPE_CHECKING:
    from genesis.tracing.replay_step import StepReplay
    from genesis.tracing.results import Result
    from genesis.tracing.slots import Slots


class StepCall:
    """One call of a replayed step. It is done or not: all that it changes is changed at once.

    Attributes:
        tensors: its arguments.
        numbers: those of its program.
        shape, slots: the structure of its result, and the places that it writes to.
        made: the tensors of the function's result; None before it is done.
        untouched: no storage was looked at since the last call.
        ours: gradients are those of the last call, and nobody else looks at them.
        rewritten: their memory, if the plan may write there while they hold it.
        counted, expected: the changes that make its numbers given, and what they expect to find.
        held: what the changes replace, until they are made.
    """

    __slots__ = ("counted", "expected", "held", "made", "numbers", "ours", "replay", "rewritten", "shape", "slots",
                 "tensors", "untouched")

    def __init__(self, replay: StepReplay, tensors: Sequence[Any], numbers: list[Any], shape: Result,
                 slots: Slots | None):
        self.replay, self.tensors, self.numbers, self.shape, self.slots = replay, tensors, numbers, shape, slots
        self.made: list[Any] | None = None
        self.untouched = self.ours = False
        self.rewritten: Rewritten | None = None
        self.counted: list[Change] = []
        self.expected: list[Expected] = []
        self.held: list[Any] = []

    @property
    def done(self) -> bool:
        """Whether its changes are made."""
        return self.made is not None

    def complete(self) -> None:
        """Run it until it is done: what ran or was recorded meanwhile comes first."""
        while self.made is None:
            try:  # `suppress` takes 1.5 µs of a call's 60 (`benchmarks/host_time.py`)
                self.replay.run_once(self)
            except Superseded:
                continue

    def changes(self, outputs: Sequence[Any]) -> tuple[list[Change], list[Expected], int]:
        """See `engine.running.Replayed`."""
        return self.replay.changes(self, outputs)
