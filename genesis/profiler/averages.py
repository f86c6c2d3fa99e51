"""Rows of kernels that are alike, under torch's names."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from genesis.profiler.recorder import Recorder


@dataclass
class Average:
    """Kernels that are alike, or parts of the program of one name. Times are in microseconds, as torch's.

    Attributes:
        key: the kernel's name, or what `record_function` was given.
        line: the user's line, "" where rows are not told apart by it.
        device: that it ran on; "" of a part of the program.
        count: how often.
        time_total: of all together.
        bytes, flops: of all together.
        share: of the time of all kernels on its device.
        roofline: the least time that the machine needs, over the time that it took; None where nothing moves.
        side: "memory" or "compute": which of them is the least time.
    """

    key: str
    line: str
    device: str
    count: int = 0
    time_total: float = 0.0
    bytes: int = 0
    flops: int = 0
    share: float = 0.0
    roofline: float | None = None
    side: str = ""

    @property
    def device_type(self) -> str:
        """ "cpu", "cuda", or "" of a part of the program."""
        return self.device.partition(":")[0]

    @property
    def cpu_time_total(self) -> float:
        """Microseconds on the host."""
        return 0.0 if self.device_type == "cuda" else self.time_total

    @property
    def device_time_total(self) -> float:
        """Microseconds of the kernel, on the device where it ran; of a part of the program 0."""
        return self.time_total if self.device else 0.0

    self_cpu_time_total = cpu_time_total
    self_device_time_total = cuda_time_total = self_cuda_time_total = device_time_total

    @property
    def cpu_time(self) -> float:
        """Microseconds on the host, of one."""
        return self.cpu_time_total / self.count

    @property
    def device_time(self) -> float:
        """Microseconds of one run of the kernel."""
        return self.device_time_total / self.count

    cuda_time = device_time

    @property
    def stack(self) -> list[str]:
        """The line, where rows are told apart by it (`group_by_stack_n`)."""
        return [self.line] if self.line else []

    @property
    def cpu_time_str(self) -> str:
        """`cpu_time` with its unit."""
        return duration(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """`cpu_time_total` with its unit."""
        return duration(self.cpu_time_total)

    @property
    def device_time_str(self) -> str:
        """`device_time` with its unit."""
        return duration(self.device_time)

    @property
    def device_time_total_str(self) -> str:
        """`device_time_total` with its unit."""
        return duration(self.device_time_total)

    self_cpu_time_total_str, self_device_time_total_str = cpu_time_total_str, device_time_total_str


SORTS: Final = ("cpu_time_total", "device_time_total", "cuda_time_total", "self_cpu_time_total",
                "self_device_time_total", "self_cuda_time_total", "cpu_time", "device_time", "cuda_time", "count",
                "bytes", "flops")

COLUMNS: Final[tuple[tuple[str, Callable[[Average], str]], ...]] = (
    ("Name", lambda row: row.key), ("Line", lambda row: row.line), ("Device", lambda row: row.device),
    ("Calls", lambda row: str(row.count)), ("Total", lambda row: duration(row.time_total)),
    ("Average", lambda row: duration(row.time_total / row.count)),
    ("Share", lambda row: f"{row.share:.1%}" if row.device else ""),
    ("Bytes", lambda row: amount(row.bytes, "B") if row.device else ""),
    ("FLOPs", lambda row: amount(row.flops, "") if row.device else ""),
    ("Roofline", lambda row: "" if row.roofline is None else f"{row.roofline:.0%} {row.side}"),
)


class Averages(list[Average]):
    """The rows, those that take longest first."""

    def __str__(self) -> str:
        return self.table()

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
              max_name_column_width: int = 55, header: str | None = None, top_level_events_only: bool = False) -> str:
        """The rows under their headings.

        Args:
            sort_by: one of `SORTS`, the largest first; as they are by default.
            row_limit: how many rows; -1 for all.
            max_name_column_width, max_src_column_width: characters of names, and of lines.

        Raises:
            ValueError: there is no such column, or it is one of memory, which no kernel allocates.
        """
        rows = list(self)
        if sort_by is not None:
            if sort_by.endswith("memory_usage"):
                raise ValueError(f"table: sort_by={sort_by!r}: no kernel allocates, memory is planned for a program as "
                                 "a whole; report() and memory_timeline() say how much was held, and by which line")
            if sort_by not in SORTS:
                raise ValueError(f"table: sort_by={sort_by!r} is no column; there are {', '.join(SORTS)}")
            rows.sort(key=lambda row: getattr(row, sort_by), reverse=True)
        rows = rows if row_limit < 0 else rows[:row_limit]
        widths = {"Name": max_name_column_width, "Line": max_src_column_width}
        cells = [[heading for heading, _ in COLUMNS]]
        cells += [[short(text(row), widths.get(heading, 40)) for heading, text in COLUMNS] for row in rows]
        total = sum(row.device_time_total for row in self)
        return "\n".join([*([header] if header else []), aligned(cells), f"Kernels together: {duration(total)}"])

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all kernels on the host."""
        return sum(row.self_cpu_time_total for row in self if row.device)

    def total_average(self) -> Average:
        """One row of all kernels."""
        kernels = [row for row in self if row.device]
        return Average("Total", "", "", sum(row.count for row in kernels), sum(row.time_total for row in kernels),
                       sum(row.bytes for row in kernels), sum(row.flops for row in kernels), 1.0 if kernels else 0.0)


def averages_of(recorder: Recorder, products: Collection[str], by_line: bool) -> Averages:
    """The rows of what was recorded. `products` are names of kernels that compute products."""
    from genesis.profiler.costs import peaks_of
    rows: dict[tuple[str, str, str], Average] = {}
    for kernel in recorder.kernels:
        key = (kernel.name, kernel.line if by_line else "", kernel.device)
        row = rows.setdefault(key, Average(*key))
        row.count += 1
        row.time_total += kernel.duration / 1e3
        row.bytes += kernel.bytes
        row.flops += kernel.flops
    totals: dict[str, float] = {}
    for row in rows.values():
        totals[row.device] = totals.get(row.device, 0.0) + row.time_total
    for row in rows.values():
        row.share = row.time_total / totals[row.device] if totals[row.device] else 0.0
        if row.time_total and (row.bytes or row.flops):
            least, row.side = peaks_of(row.device).roofline(row.bytes, row.flops, row.key in products)
            row.roofline = least * 1e6 / row.time_total
    for span in recorder.spans:
        if span.kind == "user":
            row = rows.setdefault((span.name, "", ""), Average(span.name, "", ""))
            row.count += 1
            row.time_total += span.duration / 1e3
    return Averages(sorted(rows.values(), key=lambda row: row.time_total, reverse=True))


def duration(microseconds: float) -> str:
    """A time as a reader likes it.

    >>> duration(12.3), duration(4567), duration(8.9e6)
    ('12.3 us', '4.57 ms', '8.90 s')
    """
    if microseconds < 1e3:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1e3:.2f} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.2f} s"


def amount(number: float, unit: str) -> str:
    """A number with a prefix.

    >>> amount(1536, "B"), amount(0, "B"), amount(3.2e12, "")
    ('1.5 kB', '0 B', '3.2 T')
    """
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def short(text: str, width: int) -> str:
    """A text, cut where it is longer."""
    return text if len(text) <= width else text[:width - 3] + "..."


def aligned(cells: list[list[str]]) -> str:
    """Rows of cells in columns, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = {at for at, heading in enumerate(cells[0]) if heading in ("Name", "Line", "Device")}
    return "\n".join("  ".join(cell.ljust(width) if at in left else cell.rjust(width)
                               for at, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
                     for row in cells)
