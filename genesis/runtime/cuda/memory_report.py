"""Reports of a memory pool: torch's statistics, every block, a table, and who holds what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from genesis.runtime.cuda.memory_pool import MemoryPool
    from genesis.runtime.cuda.stream import Stream

HOLDERS_SHOWN: Final = 12
"""Lines of holders in a report; more hide the largest ones."""

UNKNOWN: Final = "(no line is known)"
"""Stands in a report for the source of a block whose holder gave none."""


@dataclass(frozen=True)
class BlockInfo:
    """One block of a pool.

    Attributes:
        address, size: where it is and how many bytes it has.
        held: whether somebody has it.
        source: what the holder says it is for, None if it says nothing or nobody holds it.
        stream: the stream whose order its memory follows; None for memory that no work can touch.
        segment, segment_size: the driver's allocation that it is in.
        small: whether its segment serves small requests.
    """

    address: int
    size: int
    held: bool
    source: str | None
    stream: Stream | None
    segment: int
    segment_size: int
    small: bool


def blocks_of(pool: MemoryPool) -> list[BlockInfo]:
    """Every block, in order of address."""
    segments = pool.segments()
    unheld = pool.unheld()
    found = [BlockInfo(block.address, block.size, block not in unheld,
                       None if block in unheld or block.source is None else str(block.source), block.lane.stream,
                       segment.address, segment.size, segment.small)
             for segment in segments for block in segment.blocks()]
    found += [BlockInfo(address, nbytes, True, str(source), None, address, nbytes, False)
              for address, (nbytes, source) in pool.outside.items()]
    return sorted(found, key=lambda block: block.address)


def holders(blocks: Iterable[BlockInfo]) -> list[tuple[str, int, int]]:
    """(source, bytes, blocks) for each source of held blocks, the largest first."""
    nbytes: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for block in blocks:
        if block.held:
            nbytes[block.source or UNKNOWN] += block.size
            count[block.source or UNKNOWN] += 1
    return [(source, size, count[source]) for source, size in nbytes.most_common()]


def out_of_memory_message(pool: MemoryPool, what: str, free_and_total: tuple[int, int], limit: int | None) -> str:
    """The text of an OutOfMemoryError: what failed, how much memory there is, and which lines hold it."""
    free, total = free_and_total
    blocks = blocks_of(pool)
    reserved = sum({block.segment: block.segment_size for block in blocks}.values())
    share = "" if limit is None else f" The process's share is {size_text(limit)}."
    lines = [f"CUDA out of memory on cuda:{pool.device}: {what}; {size_text(pool.held_bytes)} allocated, "
             f"{size_text(reserved)} reserved by this process, {size_text(free)} of {size_text(total)} free.{share}"]
    held = holders(blocks)
    if held:
        lines.append("  held now, by the line that made it:")
    lines += [f"    {size_text(size):>10} in {count} {'block' if count == 1 else 'blocks'}: {source}"
              for source, size, count in held[:HOLDERS_SHOWN]]
    if len(held) > HOLDERS_SHOWN:
        rest = held[HOLDERS_SHOWN:]
        lines.append(f"    {size_text(sum(size for _, size, _ in rest)):>10} from {len(rest)} other lines")
    lines.append("  try: a smaller batch, drop tensors that are no longer needed, or look at "
                 "genesis.cuda.memory_snapshot()")
    return "\n".join(lines)


def torch_stats(pool: MemoryPool) -> dict[str, int]:
    """The pool's numbers under the names of torch.cuda.memory_stats.

    "peak" and the sums "allocated" and "freed" are there only where the pool counts them.
    """
    stats, blocks = pool.stats(), blocks_of(pool)
    segments = {block.segment: block for block in blocks}
    split = {block.segment for block in blocks if block.held}
    found: dict[str, int] = {}
    for kind, smalls in {"all": (True, False), "large_pool": (False,), "small_pool": (True,)}.items():
        here = [block for block in blocks if block.small in smalls]
        held = [block for block in here if block.held]
        inactive = [block for block in here if not block.held and block.segment in split]
        taken = [block for block in segments.values() if block.small in smalls]
        found |= {f"allocation.{kind}.current": len(held), f"active.{kind}.current": len(held),
                  f"allocated_bytes.{kind}.current": sum(block.size for block in held),
                  f"active_bytes.{kind}.current": sum(block.size for block in held),
                  f"segment.{kind}.current": len(taken),
                  f"reserved_bytes.{kind}.current": sum(block.segment_size for block in taken),
                  f"inactive_split.{kind}.current": len(inactive),
                  f"inactive_split_bytes.{kind}.current": sum(block.size for block in inactive)}
    found |= {"allocated_bytes.all.peak": stats.peak_allocated_bytes,
              "active_bytes.all.peak": stats.peak_allocated_bytes,
              "reserved_bytes.all.peak": stats.peak_reserved_bytes,
              "allocation.all.allocated": stats.allocations, "allocation.all.freed": stats.frees,
              "segment.all.allocated": stats.segments_taken, "segment.all.freed": stats.segments_taken - stats.segments,
              "num_alloc_retries": stats.retries, "num_ooms": stats.out_of_memory_errors,
              "num_device_alloc": stats.segments_taken, "num_device_free": stats.segments_taken - stats.segments}
    return dict(sorted(found.items()))


def summary(pool: MemoryPool, abbreviated: bool = False) -> str:
    """A table for people: what is allocated, reserved and free, and which lines hold most."""
    stats, blocks = torch_stats(pool), blocks_of(pool)
    lines = [f"Memory of cuda:{pool.device}", f"{'':24}{'now':>12}{'large':>12}{'small':>12}{'peak':>12}"]
    for title, name, show in _ROWS:
        columns = [f"{name}.{column}" for column in ("all.current", "large_pool.current", "small_pool.current",
                                                     "all.peak")]
        lines.append(f"{title:24}" + "".join(f"{show(stats[x]) if x in stats else '':>12}" for x in columns))
    lines.append(f"{stats['allocation.all.allocated']} blocks handed out, {stats['num_device_alloc']} segments taken, "
                 f"{stats['num_alloc_retries']} retries, {stats['num_ooms']} times out of memory")
    if not abbreviated:
        lines += [f"{size_text(size):>12} in {count:>5}: {source}" for source, size, count in holders(blocks)]
    return "\n".join(lines)


def size_text(nbytes: int) -> str:
    """A number of bytes as people read it.

    >>> size_text(1536)
    '1.5 KiB'
    """
    value = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


_ROWS: Final = (
    ("allocated", "allocated_bytes", size_text),
    ("reserved", "reserved_bytes", size_text),
    ("free in used segments", "inactive_split_bytes", size_text),
    ("blocks held", "allocation", str),
    ("segments", "segment", str),
)
"""Rows of `summary`: title, torch's name of the number, how to write it."""
