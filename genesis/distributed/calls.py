"""Calls of one process that others of its group heed beside their program, to meet it for tensors on the CPU.

A program on GPUs with the default backends ("cpu:gloo,cuda:nccl") mostly moves no tensor of the CPU, and then needs
neither gloo nor torch. The first process that does move one, in a message to one other process, needs all of its
group to connect: gloo connects all to all. Those that take no part in the message hear it in their watchdog's thread.
"""

from __future__ import annotations

from contextlib import suppress

from genesis.distributed.store import PrefixStore
from genesis.runtime.collectives import DistError, group_entry, has_transport, transport
from genesis.runtime.own_threads import OwnThread


def call_others(store: PrefixStore, group: str) -> None:
    """Tell a group's other processes that this one waits for them. The store is the run's."""
    store.set(f"called/{store.add('calls', 1) - 1}", group)


class Calls:
    """The calls that have come through the run's store so far.

    Args:
        store: a connection that is used by one thread at a time.
    """

    def __init__(self, store: PrefixStore):
        self._store, self._heard = store, 0
        self._waiting: set[str] = set()

    def heed(self) -> None:
        """Begin to meet those who have called. A group that this process has not made yet is met later."""
        while self._store.check([f"called/{self._heard}"]):
            self._waiting.add(self._store.get(f"called/{self._heard}").decode())
            self._heard += 1
        for group in [group for group in self._waiting if group_entry(group) is not None]:
            self._waiting.remove(group)
            if not has_transport(group, "cpu"):
                OwnThread(target=_meet, args=(group,), name=f"genesis meets {group}", daemon=True).start()


def _meet(group: str) -> None:
    with suppress(DistError, OSError):  # the program is told when it comes to what it needs the group for itself
        transport(group, "cpu")
