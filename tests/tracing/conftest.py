"""Lets the tests here import `calls`, and leaves out of the engine's account the threads that run the tests."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from genesis.runtime import own_threads

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(autouse=True)
def _threads_before_the_test() -> Iterator[None]:
    """Threads that were there before a test run none of its functions: pytest-xdist's, which waits for messages.

    The engine cannot know that of a thread, and makes no inputs of numbers that another one may set.
    """
    before = sys._current_frames().keys() - {threading.get_ident()} - own_threads.RUNNING
    own_threads.RUNNING.update(before)
    yield
    own_threads.RUNNING.difference_update(before)
