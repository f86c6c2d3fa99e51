"""Worker processes: each asks the dataset for samples and makes batches of them.

Workers are forks, as torch's on Linux, so a dataset needs no pickling. They are given lists of indices through a queue
and answer through another; a batch's large arrays go through shared memory. A worker ends when it is told, or when the
program that made it is gone. It ignores Ctrl-C: the program that gets it ends its workers.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Final

from genesis.utils.data.dataset import IterableDataset
from genesis.utils.data.worker_draws import WorkerDraws

SHARED: Final = 1 << 16
"""Bytes of an array from which on it goes through shared memory."""

LOOK: Final = 2.0
"""Seconds after which who waits looks whether the other is still there."""

GRACE: Final = 0.5
"""Seconds that a worker has to end by itself."""


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is.

    Attributes:
        id, num_workers: its number, from 0 on, and how many there are.
        seed: of its random numbers.
        dataset: its copy.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_this: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Which worker this process is; None in the main one."""
    return _this


@dataclass(frozen=True)
class Failure:
    """An exception in a worker."""

    kind: type[BaseException]
    text: str
    worker: int

    def again(self) -> BaseException:
        """The exception, with the worker's traceback in its message."""
        message = f"Caught {self.kind.__name__} in DataLoader worker process {self.worker}.\nOriginal {self.text}"
        try:
            return self.kind(KeyMessage(message) if issubclass(self.kind, KeyError) else message)
        except Exception:  # it wants other arguments
            return RuntimeError(message)


class KeyMessage(str):
    """A text that KeyError shows as it is."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Ended:
    """A worker's iterable dataset has no more samples."""

    worker: int


class Workers:
    """The processes of one loader.

    Args:
        count: how many.
        dataset, fetch: `fetch(dataset, indices)` makes a batch of arrays.
        seed: worker i gets this + i, until its first batch.
        init: called with its number in each, or None.
    """

    def __init__(self, count: int, dataset: Any, fetch: Callable[[Any, Any], Any], seed: int,
                 init: Callable[[int], Any] | None):
        context = multiprocessing.get_context("fork")
        resource_tracker.ensure_running()  # or each worker has its own, which unlinks what is not read yet as it ends
        self._asks = [context.SimpleQueue() for _ in range(count)]
        self._answers = context.Queue()
        self._answers.cancel_join_thread()
        self._parent, self._processes = os.getpid(), []
        for i in range(count):
            info = WorkerInfo(i, count, seed + i, dataset)
            process = context.Process(target=_work, args=(info, fetch, self._asks[i], self._answers, init, os.getpid()),
                                      daemon=True, name=f"genesis-data-{i}")
            process.start()
            self._processes.append(process)

    def __len__(self) -> int:
        return len(self._processes)

    def ask(self, worker: int, number: int, epoch: int, seed: int, indices: Any) -> None:
        """Ask for batch `number` of a pass, whose seed random numbers come from."""
        self._asks[worker].put((epoch, seed, number, indices))

    def answer(self, timeout: float) -> tuple[int, int, Any]:
        """(pass, number, what `fetch` made, a `Failure`, or `Ended`).

        Raises:
            RuntimeError: a worker died, or the timeout passed.
        """
        waited = 0.0
        while True:
            step = min(LOOK, timeout - waited) if timeout > 0 else LOOK
            try:
                epoch, number, packed = self._answers.get(timeout=step)
                return epoch, number, _unpacked(packed)
            except queue.Empty:
                waited += step
                dead = [p for p in self._processes if not p.is_alive()]
                if dead:
                    raise RuntimeError(f"DataLoader worker (pid {dead[0].pid}) exited unexpectedly with status "
                                       f"{dead[0].exitcode}") from None
                if 0 < timeout <= waited:
                    raise RuntimeError(f"DataLoader timed out after {timeout:g} seconds") from None

    def close(self) -> None:
        """End the processes; in a fork of the program that made them, whose children they are not, nothing is done."""
        if os.getpid() != self._parent:
            return
        for ask, process in zip(self._asks, self._processes, strict=True):
            if process.is_alive():
                ask.put(None)
        for process in self._processes:
            process.join(timeout=GRACE)
            if process.is_alive():
                process.kill()
                process.join()
        while True:  # shared memory of batches that nobody took
            try:
                _given_back(self._answers.get_nowait()[2])
            except queue.Empty:
                break
        self._answers.close()
        self._processes = []
        self._asks = []


def _work(info: WorkerInfo, fetch: Callable[[Any, Any], Any], asks: Any, answers: Any,
          init: Callable[[int], Any] | None, parent: int) -> None:
    """A worker's life."""
    global _this
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _this = info
    draws = WorkerDraws(info.seed)
    failed: Failure | None = None
    try:
        if init is not None:
            draws.initialize(init, info.id)
    except BaseException as error:
        failed = _failure(error, info.id)
    samples: Iterator[Any] | None = None
    current = -1
    while True:
        while not asks._reader.poll(LOOK):
            if os.getppid() != parent:
                return
        ask = asks.get()
        if ask is None:
            return
        epoch, seed, number, indices = ask
        try:
            draws.begin(seed + info.id, number)
            if isinstance(info.dataset, IterableDataset) and epoch != current:
                samples, current = iter(()), epoch  # what there is if the next line raises
                samples = iter(info.dataset)
            answer = failed if failed is not None else fetch(info.dataset if samples is None else samples, indices)
        except StopIteration:
            answer = Ended(info.id)
        except BaseException as error:
            answer = _failure(error, info.id)
        answers.put((epoch, number, _packed(answer, info.id)))


def _failure(error: BaseException, worker: int) -> Failure:
    text = "".join(traceback.format_exception(error))
    kind = type(error)
    try:
        pickle.dumps(kind)
    except Exception:  # a class of the user's may refuse to be pickled with any error
        kind = RuntimeError
    return Failure(kind, text, worker)


def _packed(answer: Any, worker: int) -> tuple[bytes, list[str | bytes]]:
    """A pickle, and its buffers: names of shared memory for large ones, the bytes of the others."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(answer, protocol=5, buffer_callback=buffers.append)
    except Exception as error:
        return pickle.dumps(_failure(error, worker)), []
    return data, [_shared(buffer.raw()) for buffer in buffers]


def _shared(content: memoryview) -> str | bytes:
    """The name of shared memory with the content, and its length; the content itself where it is small, or where there
    is no room: containers often have 64 MB of shared memory."""
    if content.nbytes < SHARED:
        return bytes(content)
    memory = SharedMemory(create=True, size=content.nbytes)
    try:
        os.posix_fallocate(memory._fd, 0, content.nbytes)  # type: ignore[attr-defined]  # else writing is a SIGBUS
    except OSError:
        memory.close()
        memory.unlink()
        return bytes(content)
    assert memory.buf is not None
    memory.buf[:content.nbytes] = content
    name = memory.name
    memory.close()
    return f"{name} {content.nbytes}"


def _given_back(packed: tuple[bytes, list[str | bytes]]) -> None:
    """The shared memory of what was packed is given back. Nothing is unpickled: where Python shuts down, that fails."""
    for place in packed[1]:
        if isinstance(place, str):
            memory = SharedMemory(name=place.partition(" ")[0])
            memory.close()
            memory.unlink()


def _unpacked(packed: tuple[bytes, list[str | bytes]]) -> Any:
    """What was packed; its shared memory is copied and given back."""
    data, places = packed
    buffers: list[Any] = []
    for place in places:
        if isinstance(place, bytes):
            buffers.append(bytearray(place))
            continue
        name, _, size = place.partition(" ")
        memory = SharedMemory(name=name)
        assert memory.buf is not None
        buffers.append(bytearray(memory.buf[:int(size)]))
        memory.close()
        memory.unlink()
    return pickle.loads(data, buffers=buffers)
