"""Calls of one process that others of its group heed beside their program, to meet it for what goes through gloo.

A program on GPUs with the default backends ("cpu:gloo,cuda:nccl") mostly moves no tensor of the CPU, and then needs
neither gloo nor torch; one with "gloo" may move none of a GPU's. The first process that does move one, in a message to
one other process, needs all of its group to connect: gloo connects all to all. Those that take no part in the message
hear it in their watchdog's thread.
"""

from __future__ import annotations

from contextlib import suppress

from genesis.distributed.store import PrefixStore
from genesis.runtime.collectives import DistError, group_entry, has_transport, transport
from genesis.runtime.own_threads import OwnThread


def call_others(store: PrefixStore, group: str, device_type: str) -> None:
    """Tell a group's other processes that this one waits for them, to move tensors of a type of device. The store is
    the run's."""
    store.set(f"called/{store.add('calls', 1) - 1}", f"{device_type} {group}")


class Calls:
    """The calls that have come through the run's store so far.

    Args:
        store: a connection that is used by one thread at a time.
    """

    def __init__(self, store: PrefixStore):
        self._store, self._heard = store, 0
        self._waiting: set[tuple[str, str]] = set()

    def heed(self) -> None:
        """Begin to meet those who have called. A group that this process has not made yet is met later."""
        while self._store.check([f"called/{self._heard}"]):
            device_type, _, group = self._store.get(f"called/{self._heard}").decode().partition(" ")
            self._waiting.add((group, device_type))
            self._heard += 1
        for called in [called for called in self._waiting if group_entry(called[0]) is not None]:
            self._waiting.remove(called)
            if not has_transport(*called):
                OwnThread(target=_meet, args=called, name=f"genesis meets {called[0]}", daemon=True).start()


def _meet(group: str, device_type: str) -> None:
    with suppress(DistError, OSError):  # the program is told when it comes to what it needs the group for itself
        if device_type == "cpu":
            transport(group, "cpu")
        else:
            transport(group, "cuda")
