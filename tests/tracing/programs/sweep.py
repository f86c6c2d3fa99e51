"""Run a range of random programs: `python -m tests.tracing.programs.sweep 0 1000`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from time import perf_counter

from tests.tracing.programs.draw import draw, shrink
from tests.tracing.programs.run import compared, difference, run


@dataclasses.dataclass
class Sweep:
    """What came of a range of programs.

    Attributes:
        calls: how often they called their functions.
        hits: how many of these calls were replayed.
        differ: the programs whose compiled run differed, made small, with the difference.
    """

    calls: int = 0
    hits: int = 0
    differ: list[str] = dataclasses.field(default_factory=list)


def sweep(seeds: Iterable[int], shown: bool = False) -> Sweep:
    """Run these programs plain and compiled; prints those that differ at once when `shown`."""
    found = Sweep()
    for seed in seeds:
        program = draw(seed)
        compiled = run(program, True)
        found.calls, found.hits = found.calls + program.calls(), found.hits + compiled.hits
        different = compared(run(program, False), compiled)
        if different:
            small = shrink(program, lambda each: bool(difference(each)))
            found.differ.append(f"{small}\n# {difference(small) or different}\n")
            if shown:
                print(found.differ[-1], flush=True)
    return found


def main(start: int, stop: int) -> int:
    """Print what differs and how many; returns whether any does."""
    begun = perf_counter()
    found = sweep(range(start, stop), shown=True)
    print(f"{stop - start} programs, {len(found.differ)} differ, {found.hits} of {found.calls} calls replayed, "
          f"{perf_counter() - begun:.0f} s", flush=True)
    return int(bool(found.differ))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
