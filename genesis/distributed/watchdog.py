"""The watchdog: which rank is gone, hangs, or runs something else, said on all ranks with its line.

A thread of each process publishes a *beat* twice a second through the store: how many there were, what the process is
doing, and the collectives that it has begun last (`runtime.ledger`). Nothing of it is on the step's path.
While this process waits in a collective, it looks at the others' beats, and compares.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from genesis.distributed.calls import Calls
from genesis.distributed.error_file import leave_error
from genesis.distributed.store import PrefixStore
from genesis.ir.source import PACKAGE
from genesis.runtime.collectives import DistError, GroupEntry, group_entry, transports
from genesis.runtime.ledger import POINT_TO_POINT, Entry, ledger, message_way
from genesis.runtime.own_threads import OwnThread

VARIABLE: Final = "GENESIS_HEARTBEAT_TIMEOUT"
"""Environment variable: after so many seconds without a beat a rank counts as gone."""

DEFAULT_LIMIT: Final = 120.0
"""The seconds where it is not set."""

PERIOD: Final = 0.5
"""Seconds between two beats."""

PATIENCE: Final = 1.0
"""Seconds in a collective after which the others' beats are looked at."""

GRACE: Final = 10.0
"""Seconds that a collective has to end after its transport was aborted, before the process is ended."""

COMPARED: Final = 64
"""Collectives that a beat names."""


_OF_ANOTHER: Final = ("DistBackendError:", "DistNetworkError:", "DistStoreError:")
"""How the reason of a rank begins that failed as it waited for another one."""


@dataclass
class _Peer:
    """What is known of another rank: its last beat, and when it came here."""

    rank: int
    beat: dict[str, Any]
    came: float

    @property
    def doing(self) -> str:
        what, line = self.beat.get("doing") or ("", "")
        at = f" at {line}" if line else ""
        return f"{what}{at}" if what else "no collective yet"


class Watchdog:
    """This process' beats, and its look at others'.

    Args:
        store: a connection of its own.
        rank, world_size: of this process.
    """

    def __init__(self, store: PrefixStore, rank: int, world_size: int):
        self._store, self._rank, self._others = store, rank, [r for r in range(world_size) if r != rank]
        self._calls = Calls(store)
        self.limit = float(os.environ.get(VARIABLE, DEFAULT_LIMIT))
        self.failed = ""
        self._state, self._beats = "running", 0
        self._peers: dict[int, _Peer] = {}
        self._asked = threading.Lock()
        self._ended = threading.Event()
        self._looked = 0.0
        self._late: dict[tuple[int, str], tuple[int, float]] = {}
        """(rank, group) → how many of the group's collectives it has begun, fewer than this one, and since when."""
        ledger.explain, ledger.rank = self.explain, rank
        self._hook, sys.excepthook = sys.excepthook, self._uncaught
        self._beat()
        self._thread = OwnThread(target=self._watch, name="genesis watchdog", daemon=True)
        if self._others:
            self._thread.start()

    def announce_end(self) -> None:
        """This process has run all that it will, and goes on to let go of its groups."""
        self._state = "failed" if self.failed else "left"
        with suppress(DistError, OSError), self._asked:
            self._beat()

    def leave(self, serves: bool) -> None:
        """This process has left the run, or is about to end.

        Args:
            serves: it has the store of the run, and stays until the others have left as well.
        """
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._state = "failed" if self.failed else "left"
        with suppress(DistError, OSError):
            self._beat()
        if sys.excepthook == self._uncaught:
            sys.excepthook = self._hook
        if serves and not self.failed:
            self.wait_for_others()
        self._store.close()

    def wait_for_others(self, seconds: float = float("inf")) -> None:
        """Return when all others have left, or are gone, or so much time is over: one that goes on computing for an
        hour still has beats."""
        end = time.monotonic() + seconds
        with suppress(DistError, OSError):
            while time.monotonic() < end:
                with self._asked:
                    self._look()
                if all(peer.beat["state"] != "running" or time.monotonic() - peer.came > 10 * PERIOD
                       for peer in self._peers.values()):
                    return
                time.sleep(PERIOD / 10)

    # Beats

    def _beat(self) -> None:
        self._beats += 1
        recent = [entry for entry in ledger.recent(COMPARED) if entry.group != POINT_TO_POINT]
        last = ledger.last
        beat = {"beats": self._beats, "state": self._state, "why": self.failed, "recent": recent,
                "counts": dict(ledger.counts), "doing": None if last is None else (last.text, last.line)}
        self._store.set(f"beat/{self._rank}", json.dumps(beat))

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD):
            try:
                with self._asked:
                    self._beat()
                    self._calls.heed()
                waiting, last = ledger.waiting, ledger.last
                if waiting is not None and time.monotonic() - waiting[1] > PATIENCE:
                    with self._asked:
                        self._look()
                        problem = self._problem(waiting[0])
                    if problem:
                        self._give_up(problem)
                elif waiting is None and last is not None and not all(getattr(x, "blocks", True) for x in transports()):
                    with self._asked:  # nobody waits on the host for what a GPU waits for
                        self._look()
                        problem = self._problem(last) or self._overdue()
                    if problem:
                        self._give_up(problem)
                        return
                elif time.monotonic() - self._looked > self.limit / 10:  # so that it is known since when one is silent
                    with self._asked:
                        self._look()
            except (DistError, OSError) as error:
                if self._state == "running" and not self._ended.is_set():
                    self._give_up(self._without_store(error))
                return

    def _without_store(self, error: Exception) -> str:
        """What is known when nothing can be asked any more."""
        serving, waiting = self._peers.get(0), ledger.waiting
        last = "" if serving is None else (
            f"; rank 0's last collective was {self._last_of(serving, None if waiting is None else waiting[0])}")
        return (f"the run's store is gone: the process that serves it, rank 0 or torchrun's agent, has ended or was "
                f"stopped{last} ({str(error).splitlines()[0]})")

    def _look(self) -> None:
        """Take the others' beats."""
        self._looked = now = time.monotonic()
        for rank in self._others:
            key = f"beat/{rank}"
            if not self._store.check([key]):
                beat: dict[str, Any] = {"beats": 0, "state": "running", "recent": []}
            else:
                beat = json.loads(self._store.get(key))
            known = self._peers.get(rank)
            if known is None or known.beat["beats"] != beat["beats"]:
                self._peers[rank] = _Peer(rank, beat, now)

    def gone(self) -> str:
        """Which of the other ranks have failed, ended or been silent for too long; '' if all go on. Any thread asks."""
        with self._asked:
            self._look()
            return self._gone(self.limit)

    def _problem(self, mine: Entry, limit: float | None = None) -> str:
        """What keeps the collective that this process is in from ending, '' if nothing is known to."""
        return self._gone(self.limit if limit is None else limit, mine) or self._difference(mine)

    def _gone(self, limit: float, mine: Entry | None = None) -> str:
        """Which ranks are gone; one that has ended is none of them if it took part in this process' collective, nor is
        one that failed because another one is gone, where that one is known."""
        now, found, followed = time.monotonic(), list[str](), list[str]()
        for peer in self._peers.values():
            silent = now - peer.came
            if mine is not None and peer.beat["state"] == "left" and self._not_waited_for(peer, mine):
                continue
            if peer.beat["state"] == "failed":
                of_another = peer.beat["why"].startswith(_OF_ANOTHER)
                (followed if of_another else found).append(f"rank {peer.rank} failed: {peer.beat['why']}")
            elif peer.beat["state"] == "left":
                found.append(f"rank {peer.rank} has ended; its last collective was {self._last_of(peer, mine)}")
            elif silent > limit:
                found.append(f"rank {peer.rank} has not been heard of for {silent:.0f} s: it was killed or stopped, or "
                             f"its host is gone; its last collective was {self._last_of(peer, mine)}")
        return "; ".join(found or followed)

    def _last_of(self, peer: _Peer, mine: Entry | None) -> str:
        """The last collective that another rank is known to have begun: its last beat's, or a later one, the one before
        what this process waits in. On the CPU that begins when all of the group have begun it."""
        waiting, group = ledger.waiting, None if mine is None else group_entry(mine.group)
        if mine is None or group is None or waiting is None or waiting[0] != mine or peer.rank not in group.ranks:
            return peer.doing
        before = (mine.group, mine.number - 1)
        if peer.beat.get("counts", {}).get(mine.group, 0) >= mine.number:
            return peer.doing
        return next((f"{entry.text} at {entry.line}" for entry in reversed(ledger.recent())
                     if (entry.group, entry.number) == before), peer.doing)

    def _not_waited_for(self, peer: _Peer, mine: Entry) -> bool:
        """Whether a rank that has ended took part in this process' collective. Of a message it is not known with whom:
        it may be with another rank, as long as one is left."""
        if mine.group == POINT_TO_POINT:
            return any(other.beat["state"] == "running" for other in self._peers.values())
        return bool(peer.beat.get("counts", {}).get(mine.group, 0) > mine.number)

    def _overdue(self) -> str:
        """Which rank has not come to a collective of a GPU's within its group's timeout, '' if none: there nobody
        waits on the host, who could say so."""
        now = time.monotonic()
        for peer in self._peers.values():
            for name, own in list(ledger.counts.items()):
                group, place = self._shared_with(peer.rank, name), (peer.rank, name)
                begun = peer.beat.get("counts", {}).get(name, 0)
                if group is None or begun >= own:
                    self._late.pop(place, None)
                elif self._late.get(place, (None,))[0] != begun:
                    self._late[place] = begun, now
                elif now - self._late[place][1] > group.seconds:
                    entry = next((x for x in reversed(ledger.recent()) if (x.group, x.number) == (name, begun) or (
                        x.group == POINT_TO_POINT and group_entry(name) is None)), None)
                    what = "" if entry is None else f"{entry.text} at {entry.line}: "
                    return (f"{what}rank {peer.rank} has not come to it; its last collective was {peer.doing} (the "
                            f"timeout is {group.seconds:.0f} s)")
        return ""

    def _shared_with(self, rank: int, name: str) -> GroupEntry | None:
        """The group that another rank has to have begun as many collectives of as this one, or sent as many messages
        of as this one receives (`message_way`). That it has not received what this one sends keeps nothing from going
        on, as long as NCCL has room for it."""
        group = group_entry(name)
        if group is not None:
            return group if rank in group.ranks else None
        key = name.rpartition(" ")[0]
        return group_entry(key) if name == message_way(key, rank, self._rank) else None

    def _difference(self, mine: Entry) -> str:
        """The first collective of which two ranks began different ones."""
        own = {(entry.group, entry.number): entry for entry in ledger.recent()}
        for peer in self._peers.values():
            for group, number, text, line in peer.beat["recent"]:
                entry = own.get((group, number))
                if entry is not None and entry.text != text:
                    return (f"ranks run different programs: collective {number} of {group} is {entry.text} at "
                            f"{entry.line} on rank {self._rank}, and {text} at {line} on rank {peer.rank}")
        return ""

    def explain(self, entry: Entry, said: str) -> str:
        """A transport's error, with what is known of the others: asked when a connection broke."""
        if ledger.problem is not None:
            return ledger.problem
        end = time.monotonic() + 8 * PERIOD
        try:
            while time.monotonic() < end:
                with self._asked:
                    self._look()
                    found = self._problem(entry, limit=5 * PERIOD)
                if found:
                    ledger.problem = found
                    return found
                time.sleep(PERIOD / 5)
        except (DistError, OSError) as error:
            return ledger.problem or f"{self._without_store(error)}; {said}"  # of what others do nothing is known
        return "; ".join([*self._behind(entry), said])

    def _behind(self, mine: Entry) -> list[str]:
        """Which ranks ran collectives of this one's group before, and have not begun this one."""
        found = []
        for peer in self._peers.values():
            begun = [number for group, number, _, _ in peer.beat["recent"] if group == mine.group]
            if begun and max(begun) < mine.number:
                found.append(f"rank {peer.rank} has not come to it; its last collective was "
                             f"{self._last_of(peer, mine)}")
        return found

    # Ends

    def _give_up(self, problem: str) -> None:
        """Say what is wrong; end the collective, or the process if that does not help."""
        if ledger.problem is not None:
            return
        ledger.problem = problem
        waiting = ledger.waiting
        print(f"genesis: rank {self._rank}: {problem}", file=sys.stderr, flush=True)
        OwnThread(target=_abort_all, name="genesis abort", daemon=True).start()
        if waiting is None:  # a GPU was in it: the program goes on once it is aborted, to its next collective
            if not self._ended.wait(GRACE):
                os._exit(1)
            return
        end = time.monotonic() + GRACE
        while time.monotonic() < end and not self._ended.is_set():
            if ledger.waiting is not waiting:
                return
            time.sleep(0.05)
        if ledger.waiting is waiting:
            print(f"genesis: rank {self._rank}: {waiting[0].text} at {waiting[0].line} does not end; the process does",
                  file=sys.stderr, flush=True)
            self._state, self.failed = "failed", problem
            with suppress(DistError, OSError):
                self._beat()
            os._exit(1)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """The exception that ends this process is told to the others, and to torchrun."""
        self.failed = f"{kind.__name__}: {_first_line(error)} at {place_of(trace)}"
        self._state = "failed"
        with suppress(DistError, OSError), self._asked:
            self._beat()
        leave_error(error, trace)
        self._hook(kind, error, trace)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def place_of(trace: TracebackType | None) -> str:
    """The innermost line of the user's in a traceback."""
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(trace)
    found = [frame for frame in frames if not frame.filename.startswith(PACKAGE)] or frames
    return f"{Path(found[-1].filename).name}:{found[-1].lineno} {found[-1].name}" if found else "an unknown line"


def _abort_all() -> None:
    for transport in transports():
        with suppress(Exception):  # what fails here is broken already, and the others have to be told
            transport.abort()
