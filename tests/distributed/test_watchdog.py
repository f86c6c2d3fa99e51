"""What the watchdog says of GPUs, where nobody waits on the host: told of beats, without processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

import genesis
from genesis.distributed import watchdog
from genesis.distributed.watchdog import Watchdog, _Peer
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.collectives import DistBackendError, DistNetworkError, GroupEntry, add_group, remove_group
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.ledger import KEPT, POINT_TO_POINT, Entry, Ledger, Together, ledger


class Keys:
    """A store of one process."""

    def set(self, key: str, value: str) -> None:
        pass

    def close(self) -> None:
        pass


def no_transport(device_type: str) -> Any:
    raise AssertionError(device_type)


def test_a_living_rank_that_does_not_come_to_a_gpus_collective_is_named_after_the_groups_timeout(
        monkeypatch: pytest.MonkeyPatch) -> None:
    own, now = Ledger(), [100.0]
    monkeypatch.setattr(watchdog, "ledger", own)
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now[0])
    add_group("together", GroupEntry(no_transport, (0, 1), 600))
    add_group("others", GroupEntry(no_transport, (0, 2), 5))
    dog: Any = Watchdog(Keys(), 0, 1)  # type: ignore[arg-type]
    try:
        for _ in range(3):
            own.note("together", "all_reduce(float32[4], sum)", "train.py:7 step")
        own.note("others", "barrier()", "train.py:9 step")

        def after(seconds: float, begun: int) -> str:
            now[0] += seconds
            dog._peers = {1: _Peer(1, {"counts": {"together": begun}, "doing": ("barrier()", "eval.py:3")}, now[0])}
            return str(dog._overdue())

        assert after(0, 1) == "" and after(599, 1) == ""
        assert after(2, 2) == "" and after(590, 2) == "", "it has come on since"
        assert after(20, 2) == ("all_reduce(float32[4], sum) at train.py:7 step: rank 1 has not come to it; its last "
                                "collective was barrier() at eval.py:3 (the timeout is 600 s)")
        assert after(0, 3) == "" and after(1000, 3) == "", "of a group that it is not in nothing is known"
    finally:
        dog.leave(False)
        remove_group("together")
        remove_group("others")


def test_a_living_rank_that_does_not_send_what_a_gpu_waits_for_is_named_after_the_groups_timeout(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ranks 3, 1 and 2 this is rank 1: it sends to rank 3, which need not have come to it, and receives from
    rank 2."""
    own, now = Ledger(), [100.0]
    monkeypatch.setattr(watchdog, "ledger", own)
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now[0])
    add_group("three", GroupEntry(no_transport, (3, 1, 2), 600))
    dog: Any = Watchdog(Keys(), 1, 1)  # type: ignore[arg-type]
    try:
        for _ in range(2):
            own.note(POINT_TO_POINT, "messages(float32[4] to 0, float32[4] from 2)", "ring.py:5 turn")
            own.note_messages("three", [0], [2])

        def after(seconds: float, sent: int) -> str:
            now[0] += seconds
            dog._peers = {2: _Peer(2, {"counts": {"three 2>1": sent}, "doing": ("", "")}, now[0]),
                          3: _Peer(3, {"counts": {}, "doing": ("", "")}, now[0])}
            return str(dog._overdue())

        assert own.counts == {"": 2, "three 1>3": 2, "three 2>1": 2}
        assert after(0, 1) == "" and after(590, 1) == ""
        assert after(20, 1) == ("messages(float32[4] to 0, float32[4] from 2) at ring.py:5 turn: rank 2 has not come "
                                "to it; its last collective was no collective yet (the timeout is 600 s)")
        assert after(0, 2) == "" and after(1000, 2) == ""
    finally:
        dog.leave(False)
        remove_group("three")


def test_a_rank_that_has_ended_is_no_problem_of_a_collective_that_it_took_part_in(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The others may be at it for long: they wait for a third one."""
    monkeypatch.setattr(watchdog, "ledger", Ledger())
    dog: Any = Watchdog(Keys(), 0, 1)  # type: ignore[arg-type]
    ended = _Peer(1, {"state": "left", "counts": {"together": 3}, "recent": (), "doing": ("barrier()", "a.py:3")}, 0.0)
    slow = _Peer(2, {"state": "running", "counts": {}, "recent": ()}, watchdog.time.monotonic())
    try:
        dog._peers = {1: ended, 2: slow}
        assert dog._problem(Entry("together", 2, "barrier()", "a.py:3")) == ""
        assert dog._problem(Entry("", 9, "send(float32[4])", "a.py:4")) == "", "perhaps to rank 2"
        assert dog._problem(Entry("together", 3, "barrier()", "a.py:5")) == (
            "rank 1 has ended; its last collective was barrier() at a.py:3")
        dog._peers = {1: ended}
        assert dog._problem(Entry("", 9, "send(float32[4])", "a.py:4")).startswith("rank 1 has ended")
    finally:
        dog.leave(False)


def test_a_rank_that_is_gone_was_last_in_what_all_were_in_though_its_beat_is_older(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that was killed in its twentieth step was said to have been in the model's first broadcast, half a second
    before."""
    own = Ledger()
    monkeypatch.setattr(watchdog, "ledger", own)
    add_group("all", GroupEntry(no_transport, (0, 1), 600))
    dog: Any = Watchdog(Keys(), 0, 1)  # type: ignore[arg-type]
    try:
        own.note("all", "broadcast(float32[8], 0)", "train.py:3")
        own.note("all", "all_reduce(float32[8], avg)", "train.py:7 step")
        with own.running("all", "all_reduce(float32[8], avg)", "train.py:7 step"):
            mine = own.waiting[0]  # type: ignore[index]
            told = {}
            for counted in (1, 2, 3):
                beat = {"state": "running", "counts": {"all": counted}, "recent": (), "doing": ("its beat", "a.py:1")}
                dog._peers = {1: _Peer(1, beat, -100.0)}
                told[counted] = dog._gone(5.0, mine).rpartition("its last collective was ")[2]
        assert told == {1: "all_reduce(float32[8], avg) at train.py:7 step", 2: "its beat at a.py:1",
                        3: "its beat at a.py:1"}
        dog._peers = {1: _Peer(1, {"state": "running", "counts": {"all": 1}, "doing": ("its beat", "a.py:1")}, -100.0)}
        assert dog._gone(5.0, mine).endswith("its last collective was its beat at a.py:1"), "nobody waits on the host"
    finally:
        dog.leave(False)
        remove_group("all")


def test_the_rank_that_failed_first_is_named_not_those_that_it_took_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four ranks one said that rank 0 had failed, as rank 1 had; only rank 1 had, by itself."""
    monkeypatch.setattr(watchdog, "ledger", Ledger())
    dog: Any = Watchdog(Keys(), 3, 1)  # type: ignore[arg-type]
    taken = "DistBackendError: all_reduce(float32[4], sum): rank 1 failed: ValueError: bad batch at train.py:3"
    try:
        failed = {rank: _Peer(rank, {"state": "failed", "counts": {}, "why": why}, 0.0)
                  for rank, why in ((0, taken), (1, "ValueError: bad batch at train.py:3"))}
        dog._peers = failed
        assert dog._gone(5.0) == "rank 1 failed: ValueError: bad batch at train.py:3"
        dog._peers = {0: failed[0]}
        assert dog._gone(5.0) == f"rank 0 failed: {taken}"
    finally:
        dog.leave(False)


def test_torchrun_is_told_which_exception_ended_a_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its report of a failed run said `error_file: <N/A>`."""
    monkeypatch.setattr(watchdog, "ledger", Ledger())
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    dog: Any = Watchdog(Keys(), 1, 1)  # type: ignore[arg-type]
    shown: list[Any] = []
    monkeypatch.setattr(dog, "_hook", lambda *error: shown.append(error))
    try:
        for text in ("no such row", "another one while it ended"):
            try:
                raise ValueError(text)
            except ValueError as error:
                dog._uncaught(ValueError, error, error.__traceback__)
    finally:
        dog.leave(False)
    told = json.loads((tmp_path / "error.json").read_text())["message"]
    assert told["message"] == "ValueError: no such row" and len(shown) == 2
    assert "test_watchdog.py" in told["extraInfo"]["py_callstack"] and int(told["extraInfo"]["timestamp"]) > 0
    read = ProcessFailure(0, 1, 1, str(tmp_path / "error.json"))  # as torchrun does
    assert read.message == told and read.timestamp == int(told["extraInfo"]["timestamp"])


def test_where_the_store_is_gone_none_is_named_but_who_served_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of four was killed: the others told each other that all three had not come, by beats of before."""
    own = Ledger()
    monkeypatch.setattr(watchdog, "ledger", own)
    add_group("all", GroupEntry(no_transport, (0, 1, 2), 600))
    keys = Keys()
    dog: Any = Watchdog(keys, 1, 1)  # type: ignore[arg-type]
    try:
        for step in range(3):
            own.note("all", f"all_reduce(float32[{step + 1}], avg)", "train.py:7 step")
        beat = {"state": "running", "counts": {"all": 1}, "recent": (("all", 0, "all_reduce(float32[1], avg)", ""),),
                "doing": ("all_reduce(float32[1], avg)", "train.py:7 step")}
        dog._peers = {rank: _Peer(rank, beat, 0.0) for rank in (0, 2)}
        monkeypatch.setattr(dog, "_look", lambda: (_ for _ in ()).throw(DistNetworkError("it was reset")))
        entry = own.recent()[-1]
        with own.in_(entry):
            told = dog.explain(entry, "Connection closed by peer")
        assert told == ("the run's store is gone: the process that serves it, rank 0 or torchrun's agent, has ended or "
                        "was stopped; rank 0's last collective was all_reduce(float32[2], avg) at train.py:7 step "
                        "(it was reset); Connection closed by peer")
    finally:
        dog.leave(False)
        remove_group("all")


def test_who_waits_for_a_gpu_whose_collectives_were_aborted_gets_the_reason_and_no_value() -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 20)):
        x = genesis.ones(3, device="cuda") + 1
        genesis.eval(x)
        ledger.note("group", "all_reduce(float32[4], sum)", "train.py:7 step")
        ledger.problem = "rank 1 was killed"
        try:
            ledger.abort()
            for read in (x.tolist, x.cpu, genesis.cuda.synchronize):
                with pytest.raises(DistBackendError, match=r"all_reduce\(float32\[4\], sum\): rank 1 was killed\n  at"):
                    read()
        finally:
            ledger.forget()
        assert x.tolist() == [2, 2, 2]


def test_what_a_graph_begins_at_once_is_told_one_by_one() -> None:
    own = Ledger()
    own.note("world", "barrier()", "train.py:3")
    step = Together([("world", "all_reduce(float32[4], sum)", "train.py:7"),
                     ("half", "all_gather(float32[2])", "train.py:8"),
                     ("world", "all_reduce(float32[8], sum)", "train.py:7")], ["half 0>1"])
    for _ in range(2):
        own.note_together(step)
    assert own.counts == {"world": 5, "half": 2, "half 0>1": 2}
    assert [(entry.group, entry.number) for entry in own.recent()] == [
        ("world", 0), ("world", 1), ("half", 0), ("world", 2), ("world", 3), ("half", 1), ("world", 4)]
    assert own.last == own.recent()[-1] == Entry("world", 4, "all_reduce(float32[8], sum)", "train.py:7")
    assert own.recent(2) == own.recent()[-2:]
    for _ in range(KEPT):
        own.note_together(step)
    assert len(own.recent()) == KEPT and own.recent()[0].number == own.counts["world"] - 171
    own.problem = "rank 1 failed"
    with pytest.raises(DistBackendError, match=r"all_reduce\(float32\[4\], sum\): rank 1 failed\n  at train.py:7"):
        own.note_together(step)
