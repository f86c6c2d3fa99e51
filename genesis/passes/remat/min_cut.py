"""What to keep of one kernel's values, and what to compute again: a minimum cut.

A kernel made values that kernels far behind it read. Each of these either was kept or is made again there, from
values that were. The cheapest choice is a minimum cut of a network: from what cannot be made again (source) to
what is asked for (sink), through a pair of points for each value. The edge between the pair costs what keeping the
value costs; an edge from the source to its first point costs what making it again costs; an edge of an operand to a
value made of it costs without end, since a value can only be made again if its operands are there.

Source: He and Yu, Transcending Runtime-Memory Tradeoffs in Checkpointing by Being Fusion Aware (MLSys 2023); the form
of the network is Picard's closure problem (Maximal Closure of a Graph, 1976). The cut is by networkx.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

FORBIDDEN = -1
"""Stands for an infinite cost."""


@dataclass(frozen=True)
class CutValue:
    """One value of the network.

    Attributes:
        operands: positions of the values it is made of; those that are always there (constants) are left out.
        traffic: bytes that keeping it moves: storing it if only the far readers want it, and their loads of it.
        held: bytes of memory that keeping it takes.
        again: what making it again costs, in bytes; FORBIDDEN if it is not made again.
        keepable: whether it is ever in memory.
        wanted: the far kernels read it.
    """

    operands: tuple[int, ...]
    traffic: int
    held: int
    again: int
    keepable: bool
    wanted: bool


@dataclass(frozen=True)
class Choice:
    """A way to have all that is wanted.

    Attributes:
        kept: positions of the values that stay in memory.
        again: positions of those made again.
        traffic, held: what it costs.
    """

    kept: tuple[int, ...]
    again: tuple[int, ...]
    traffic: int
    held: int


@lru_cache(maxsize=1024)
def cheapest(values: Sequence[CutValue], worth: float) -> Choice:
    """The choice with the least traffic + worth · held. Equal networks (of equal layers) are solved once."""
    from networkx import DiGraph, minimum_cut
    network = DiGraph()
    network.add_nodes_from(("source", "sink"))
    for i, value in enumerate(values):
        cost = value.traffic + worth * value.held
        network.add_edge(("in", i), ("out", i), **({"capacity": cost} if value.keepable else {}))
        network.add_edge("source", ("in", i), **({} if value.again == FORBIDDEN else {"capacity": value.again}))
        for x in value.operands:
            network.add_edge(("out", x), ("in", i))
        if value.wanted:
            network.add_edge(("out", i), "sink")
    _, (here, _) = minimum_cut(network, "source", "sink")
    kept = tuple(i for i in range(len(values)) if ("in", i) in here and ("out", i) not in here)
    again = tuple(i for i in range(len(values)) if ("in", i) not in here)
    return choice(values, kept, again)


def everything_kept(values: Sequence[CutValue]) -> Choice:
    """What is done without the pass: all that is wanted stays in memory."""
    return choice(values, tuple(i for i, value in enumerate(values) if value.wanted), ())


def choice(values: Sequence[CutValue], kept: tuple[int, ...], again: tuple[int, ...]) -> Choice:
    """A choice with its cost."""
    return Choice(kept, again, sum(values[i].traffic for i in kept) + sum(values[i].again for i in again),
                  sum(values[i].held for i in kept))
