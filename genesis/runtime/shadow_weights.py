"""Shadow weights: low-precision copies of memories, and whether each still shows its source's content.

A copy belongs to its source's memory and goes with it. All plans share it: a step at another batch size finds the copy
that the last step wrote. It is valid until somebody writes to the source without writing to the copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Final

from genesis.ir.types import DType
from genesis.runtime.contexts import in_order, leaving

if TYPE_CHECKING:
    from genesis.runtime.cuda.storage import CUDAStorage


class ShadowWeight:
    """The shadow weight of a memory in one dtype.

    Attributes:
        memory: the copy's memory.
        valid: whether it is the source's content, cast.
    """

    __slots__ = ("memory", "valid")

    def __init__(self, memory: CUDAStorage):
        self.memory = memory
        self.valid = False


copies: Final[dict[int, dict[DType, ShadowWeight]]] = {}
"""The id of a source → its copies by dtype. Empty in a process that trains nothing in mixed precision."""

_sources: Final[dict[int, weakref.ref[object]]] = {}

version: Final = [0]
"""A count that grows whenever `copies` gets or loses an entry: who knows the number need not look again."""

_versions: Final = count(1)


def _changing() -> tuple:
    """The change by which `version` grows, with its arguments."""
    return in_order, map(version.__setitem__, (0,), _versions)


def find(source: object, dtype: DType) -> ShadowWeight | None:
    """The copy of this memory, if there is one."""
    return copies.get(id(source), {}).get(dtype)


def add(source: object, dtype: DType, memory: CUDAStorage) -> ShadowWeight:
    """Make this memory hold the source's copy, which is not written yet."""
    key = id(source)
    if key not in copies:
        copies[key] = {}
        _sources[key] = weakref.ref(source, leaving((copies.pop, key, None), (_sources.pop, key, None), _changing()))
    version[0] = next(_versions)
    made = copies[key][dtype] = ShadowWeight(memory)
    return made


def all_of(memories: Iterable[object]) -> set[ShadowWeight]:
    """The copies of these memories."""
    return {copy for memory in memories for copy in copies.get(id(memory), {}).values()}


def overwritten(memories: Iterable[object]) -> None:
    """Mark the copies of these memories invalid: the memories have, or will have, another content."""
    for copy in all_of(memories):
        copy.valid = False


def forget_all() -> None:
    """Let go of all copies."""
    copies.clear()
    _sources.clear()
    version[0] = next(_versions)
