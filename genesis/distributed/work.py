"""What a collective that was asked for with async_op=True gives: a `Work`, and the `Future` of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from genesis.distributed.process_group import ProcessGroup
from genesis.frontend.tensor import Tensor


class Future:
    """A value that is there, or will be when it is read: tensors wait for themselves.

    >>> Future(3).then(lambda done: done.value() + 1).wait()
    4
    """

    def __init__(self, value: Any = None):
        self._value = value

    def wait(self) -> Any:
        """The value."""
        return self._value

    def value(self) -> Any:
        """The value."""
        return self._value

    def set_result(self, value: Any) -> None:
        """Give it a value."""
        self._value = value

    def done(self) -> bool:
        """True."""
        return True

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what the callback makes of this one."""
        return Future(callback(self))


class Work:
    """A collective that was asked for with async_op=True. Its result may be read at any time: that waits for it."""

    def __init__(self, group: ProcessGroup, results: Sequence[Tensor]):
        self._group, self._results = group, list(results)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """What is recorded from here on comes after it, as it does anyway; True."""
        return True

    def is_completed(self) -> bool:
        """Run what is pending of the group; then it is."""
        self._group.run_pending()
        return True

    def is_success(self) -> bool:
        """Whether it ended without an error, which would have been raised where a value was read."""
        return self.is_completed()

    def exception(self) -> None:
        """None: what goes wrong is raised where a value is read."""

    def synchronize(self) -> None:
        """`wait`."""

    def get_future(self) -> Future:
        """A future of the tensors that it wrote to."""
        return Future(self._results)

    def result(self) -> list[Tensor]:
        """The tensors that it wrote to."""
        return self._results
