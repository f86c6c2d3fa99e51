"""Launches that CUDA refused behind others of their plan that had overwritten memory: what is left of them is owed.

A run that has begun to overwrite memory cannot be taken back, and half of a step is no state of any program. So its
storages are told of it as of one that is over (`engine/running.py`), and what is left of it is launched before anything
else runs, is read or is written on that GPU. Until CUDA takes that, whoever wants to gets the error.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain, repeat
from operator import call
from typing import TYPE_CHECKING

from genesis.runtime.contexts import NotYet, in_order
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.driver import DriverError, DriverOutOfMemory

if TYPE_CHECKING:
    from genesis.runtime.cuda.arena import Arena


class Owed:
    """What is left of a run.

    Args:
        device: the GPU's number.
        calls: the calls to be made; the first is the one that was refused.
        scratch: the arenas that they use, which are kept for them.
        held: what else they use.
        explained: a refusal's error, with what the launch computes.
        make_room: gives memory back that is only kept for later.
    """

    def __init__(self, device: int, calls: Iterable[Callable[[], object]], scratch: Sequence[Arena],
                 held: Sequence[object], explained: Callable[[DriverError], Exception],
                 make_room: Callable[[], object]):
        self.device, self.scratch, self._held = device, scratch, held
        self._explained, self._make_room = explained, make_room
        self._calls = deque(calls)

    def make(self) -> None:
        """Make the calls. Each leaves the queue when it is made: no line of Python runs between the two.

        Raises:
            NotYet: one is refused again, and still owed.
        """
        driver().use(self.device)
        try:
            self._make()
        except DriverOutOfMemory:  # what the pool keeps may be what CUDA lacks
            self._make_room()
            self._retry()
        except DriverError as error:
            raise self._refused(error) from error

    def _retry(self) -> None:
        try:
            self._make()
        except DriverError as error:
            raise self._refused(error) from error

    def _make(self) -> None:
        calls = self._calls
        in_order(map(call, chain.from_iterable(zip(tuple(calls), repeat(calls.popleft)))))

    def _refused(self, error: DriverError) -> NotYet:
        return NotYet(
            f"{self._explained(error)}\n"
            "The launch was refused when others of its program had overwritten memory. The program counts as run: what "
            "is left of it is launched before anything else runs, is read or is written on this GPU, and this error is "
            "raised again until that is taken. If memory is short, free some and go on.")


@cached_per_driver
def owed_launches() -> list[Owed]:
    """What is owed, in order. Its users keep the list: it is empty but for a moment after a refusal."""
    return []


_settling = threading.RLock()


def settle(owed: list[Owed], devices: Container[int]) -> None:
    """Make what is owed on these GPUs; called where the list is not empty. The current GPU may be another one then.

    Raises:
        NotYet: CUDA refuses it again; it is still owed.
    """
    with _settling:
        for left in tuple(owed):
            if left.device in devices:
                left.make()
                owed.remove(left)  # behind an interrupt before this there is nothing left to make
