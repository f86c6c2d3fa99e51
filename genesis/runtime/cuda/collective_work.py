"""A collective of a CUDA plan over given addresses: what a stream is given, or a graph is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from genesis.ir.place import Place
from genesis.runtime.collectives import has_transport, transport
from genesis.runtime.cuda.driver import Call, StreamHandle
from genesis.runtime.ledger import POINT_TO_POINT, Together, ledger
from genesis.runtime.plan import Collective

HIGH: Final = -5
"""The priority of a stream whose kernels go first: the driver takes the nearest that the GPU has."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A value in device memory.

    Attributes:
        address: of its first byte.
        count: its elements.
        dtype: the name of their dtype.
        itemsize: their bytes.
    """

    address: int
    count: int
    dtype: str
    itemsize: int


class CollectiveWork:
    """A collective, ready to be started.

    Attributes:
        step: the plan's.
        operands, results: its buffers, without the communicator's order.
    """

    def __init__(self, step: Collective, addresses: Sequence[int]):
        self.step = step
        buffers = [_buffer(place, address)
                   for place, address in zip((*step.operands, *step.results), addresses, strict=True)]
        self.operands = buffers[:len(step.operands) - 1]
        self.results = buffers[len(step.operands):-1]

    @staticmethod
    def can_be_captured(step: Collective) -> bool:
        """Whether its transport's work can be part of a CUDA graph."""
        return bool(transport(step.communicator, "cuda").capturable)

    @property
    def _group(self) -> str:
        alone = self.step.op == "messages"  # what two ranks do, each its part
        return POINT_TO_POINT if alone else self.step.communicator

    @staticmethod
    def together(works: Sequence[CollectiveWork]) -> Together:
        """How collectives are written down that a graph begins at once."""
        steps = [work.step for work in works]
        ways = [way for step in steps if step.op == "messages"
                for way in ledger.ways_of(step.communicator, step.sent, step.received)]
        return Together([(work._group, work.step.text, work.step.origin) for work in works], ways)

    @staticmethod
    def is_of_c(step: Collective) -> bool:
        """Whether calls into C begin it (`calls`): its ranks have met, and its transport does not wait for it."""
        group = step.communicator
        return has_transport(group, "cuda") and not transport(group, "cuda").blocks

    def calls(self, stream: StreamHandle) -> list[Call]:
        """Calls into C, to be made once, that write down that it begins and give it to the stream.

        Raises:
            DistBackendError: another rank failed.
        """
        begins = ledger.beginning(self.together([self]))
        return [*begins, *transport(self.step.communicator, "cuda").calls(self, stream)]

    def start(self, stream: StreamHandle) -> None:
        """It begins: give it to the stream, by lines of Python."""
        found = transport(self.step.communicator, "cuda")
        if not found.blocks:
            ledger.note(self._group, self.step.text, self.step.origin)
            if self.step.op == "messages":
                ledger.note_messages(self.step.communicator, self.step.sent, self.step.received)
            found.run(self, stream)
            return
        with ledger.running(self._group, self.step.text, self.step.origin):
            if self._group != POINT_TO_POINT:
                found.compare(self.step.text)
            found.run(self, stream)

    @property
    def priority(self) -> int:
        """That of the stream which it is captured from; lower numbers go first."""
        return HIGH if transport(self.step.communicator, "cuda").high_priority else 0

    def capture(self, stream: StreamHandle) -> None:
        """Give it to the stream, whose work becomes part of a graph: one rank may do that more often than another."""
        transport(self.step.communicator, "cuda").run(self, stream)


def _buffer(place: Place, address: int) -> Buffer:
    return Buffer(address, place.type.numel, place.type.dtype.name, place.type.dtype.itemsize)
