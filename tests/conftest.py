"""What all tests share: those marked `gpu` are skipped where no GPU can be used; `--part 2/8` runs an eighth.

`--pretend-gpu 60` runs those marked `gpu` on a pretended one, a minute each (`pretended_gpu.py`)."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import inspect
import itertools
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any
from zlib import crc32

import pytest

from tests.left_behind import put_back
from tests.pretended_gpu import pretend
from tests.sweeping import leave_to_the_sweep

os.environ.setdefault("GENESIS_PLAN_CACHE", "0")  # a test is to see what it made, not what an earlier run left
os.environ.setdefault("GENESIS_BACKGROUND_COMPILE", "0")  # but in its own tests
# The tests have a process for each processor: threads of torch's, there and in programs that tests start, would wait
# for each other's turns (a training run of `tests/cli/test_train.py` takes 3 s of processor time with one, 9 with two).
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Many tests start a program. Where nobody keeps bytecode each compiles Genesis and torch: 4.9 s of a start, not 2.1.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell without job control lets what it starts behind it ignore an interrupt, and so would the programs of tests that
# interrupt them: a loader that ends after two minutes, a run of planted faults that ends at its limit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@cache
def missing_gpu() -> str | None:
    """Why a test cannot use a GPU here; None when it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 is missing)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the NVIDIA driver finds no GPU"
    if importlib.util.find_spec("cuda") is None:
        return "cuda-python is not installed (pip install 'genesis-compiler[cuda]')"
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--part i/n`: the i-th of n parts of the tests. `--pretend-gpu seconds`: tests that want a GPU, without one."""
    parser.addoption("--part", type=part_of, help="i/n: run the i-th of n parts, about equal in number")
    parser.addoption("--pretend-gpu", type=float, metavar="SECONDS",
                     help="run tests that want a GPU on the host driver, each for so many seconds at most")


def part_of(text: str) -> tuple[int, int]:
    """(i, n) of "i/n".

    >>> part_of("2/8")
    (2, 8)
    """
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--part takes i/n with 1 <= i <= n, not {text!r}")
    return int(number), int(count)


def in_part(name: str, part: tuple[int, int]) -> bool:
    """Is the test of this name in the part? Told by its name alone, so that a new test moves no other.

    >>> [in_part("tests/ir/test_text.py::test_it", (i, 4)) for i in (1, 2, 3, 4)].count(True)
    1
    """
    number, count = part
    return crc32(name.encode()) % count == number - 1


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(obj: object) -> Generator[None, Any, Any]:
    """Leave cases to the sweep that a test's mark does (`tests/sweeping.py`)."""
    made = yield
    if inspect.isfunction(obj):
        for mark in getattr(obj, "pytestmark", ()):
            if mark.name == "by_default":
                leave_to_the_sweep(made, mark.args)
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out other parts, and skip what needs a GPU when there is none.

    The driver is asked only if some test wants one.
    """
    if (part := config.getoption("--part")) is not None:
        left = [item for item in items if not in_part(item.nodeid, part)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if in_part(item.nodeid, part)]
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if config.getoption("--pretend-gpu") is not None:
        pretend(config, wanting)
    elif wanting and (reason := missing_gpu()) is not None:
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep twenty thousand tests and all that they import out of garbage collections: of the automatic ones while they
    are found, a quarter of that time, and of those that tests ask for. A hundred tests collect, some of them several
    times, and each collection walked a million objects: half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


_ended = itertools.count(1)
UNTIL_FROZEN = 100
"""Tests after which what they have left (modules, plans, tables) is kept out of collections, too. Collections were 12 %
of the processor time of the tests of ops and modules, and are 7."""


def pytest_runtest_logfinish() -> None:
    """A module that a test imports, or a table that it fills, stays: without this each later collection walked it."""
    if next(_ended) % UNTIL_FROZEN == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture
def threads_left_out() -> Iterator[None]:
    """Threads that were there before a test run none of its functions: pytest-xdist's, which waits for messages.

    The engine cannot know that of a thread, and makes no inputs of numbers that another one may set.
    """
    from genesis.runtime import own_threads
    before = sys._current_frames().keys() - {threading.get_ident()} - own_threads.RUNNING
    own_threads.RUNNING.update(before)
    yield
    own_threads.RUNNING.difference_update(before)


@pytest.fixture(params=["cpu", "cuda"])
def cpu_or_pretended_gpu(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device's name: the CPU, and a small GPU that is pretended."""
    if request.param == "cpu":
        yield "cpu"
        return
    from genesis.engine.backends import FakeCUDABackend
    from genesis.runtime.fake_cuda.driver import HostDriver
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 24)):
        yield "cuda"


@pytest.fixture
def plans() -> Iterator[list[Any]]:
    """The plans that are made while the test runs."""
    from genesis import engine
    found: list[Any] = []
    with engine.observe(found.append):
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """A test that leaves settings behind for others fails, and they have none of it: what fails by what ran before it
    passes alone."""
    _give_back_locks()
    done = yield
    if left := put_back():
        pytest.fail(f"leaves behind for other tests: {'; '.join(left)}", pytrace=False)
    return done


def _give_back_locks() -> None:
    """Give back the locks that a test left held: an exception that an opcode tracer raises between a `with` block and
    its `__exit__` leaves one to the main thread for good, and threads of later tests would wait for it."""
    threads, state = (sys.modules.get(f"genesis.frontend.{name}") for name in ("threads", "state"))
    held = [] if state is None else [state.lock]
    for owner, names in list(threads._with_locks.items()) if threads is not None else ():
        held += [getattr(owner, name) for name in names]
    for lock in held:
        while getattr(lock, "_is_owned", bool)():
            lock.release()
