"""What a kernel's run and a part of the program have in common, under torch's names. Times are in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genesis.profiler.averages import Average, Averages


@dataclass(frozen=True)
class Interval:
    """When something ran.

    Attributes:
        start, end: microseconds of the host's clock.
    """

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Microseconds between them."""
        return self.end - self.start


class Event:
    """The times of what has a name, a start, a duration in nanoseconds, and a device if a kernel ran there.

    Attributes:
        count: an event is one.
    """

    name: str
    start: int
    duration: int
    device: str
    count = 1

    @property
    def key(self) -> str:
        """The name, by which rows of averages are told apart."""
        return self.name

    @property
    def time_range(self) -> Interval:
        """When it ran."""
        return Interval(self.start / 1e3, (self.start + self.duration) / 1e3)

    @property
    def cpu_time_total(self) -> float:
        """Microseconds on the host."""
        return 0.0 if self.device.startswith("cuda") else self.duration / 1e3

    @property
    def device_time_total(self) -> float:
        """Microseconds of the kernel, on the device where it ran; of a part of the program 0."""
        return self.duration / 1e3 if self.device else 0.0

    cpu_time = self_cpu_time_total = cpu_time_total
    device_time = self_device_time_total = device_time_total
    cuda_time = cuda_time_total = self_cuda_time_total = device_time_total


class Events(list[Any]):
    """The events of a profile, in the order in which they began.

    Args:
        events: those.
        averages: what makes rows of them.
    """

    def __init__(self, events: Iterable[Event], averages: Callable[[], Averages]):
        super().__init__(events)
        self._averages = averages

    def key_averages(self) -> Averages:
        """A row for each kernel and each part of the program with a name."""
        return self._averages()

    def total_average(self) -> Average:
        """One row of all kernels."""
        return self._averages().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all kernels on the host."""
        return self._averages().self_cpu_time_total

    def table(self, sort_by: str | None = None, **options: Any) -> str:
        """The rows of `key_averages`, as its `table` writes them."""
        return self._averages().table(sort_by, **options)
