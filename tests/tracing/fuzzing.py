"""What the fuzzers of compiled calls share: going through seeds, making what differs small, telling it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any


@dataclass
class Found:
    """What came of a range of programs.

    Attributes:
        counts: how many calls there were, replays among them, and whatever else a fuzzer counts.
        differ: the programs whose compiled run differed, with the difference.
    """

    counts: Counter[str] = field(default_factory=Counter)
    differ: list[str] = field(default_factory=list)


def shrink(program: Any, fails: Callable[[Any], bool], tries: int = 300) -> Any:
    """A program as small as it gets by leaving out lines (its `smaller()`) while it fails.

    Args:
        fails: whether a program still fails; an exception says that it is none any more.
        tries: the most programs that are looked at.
    """
    candidates = iter(program.smaller())
    while tries > 0 and (smaller := next(candidates, None)) is not None:
        tries -= 1
        with suppress(Exception):
            if fails(smaller):
                program, candidates = smaller, iter(smaller.smaller())
    return program


@dataclass(frozen=True)
class Fuzzer:
    """Random programs, run plain and compiled.

    Attributes:
        draw: seed → program.
        difference: what differs between its plain and its compiled run, '' for nothing; counts what it did.
    """

    draw: Callable[[int], Any]
    difference: Callable[[Any, Counter[str]], str]

    def sweep(self, seeds: Iterable[int], small: bool = True, shown: bool = False) -> Found:
        """Run the programs of these seeds.

        Args:
            small: make those that differ small.
            shown: print them at once.
        """
        found = Found()
        for seed in seeds:
            program = self.draw(seed)
            different = self.difference(program, found.counts)
            if not different:
                continue
            if small:
                program = shrink(program, lambda each: bool(self.difference(each, Counter())))
            found.differ.append(f"{program}\n# {self.difference(program, Counter()) or different}\n")
            if shown:
                print(found.differ[-1], flush=True)
        return found

    def agree(self, seeds: Iterable[int], share: float) -> None:
        """Assert that no program of these seeds differs, and that this share of all calls is replayed."""
        found = self.sweep(seeds)
        assert not found.differ, "\n\n".join(found.differ)
        calls, replays = found.counts["calls"], found.counts["replays"]
        assert calls and replays >= share * calls, f"{replays} of {calls} calls are replayed"

    def main(self) -> None:
        """Run the programs from argv[1] to argv[2], print what differs and how many; exit with whether any does."""
        begun, seeds = perf_counter(), range(int(sys.argv[1]), int(sys.argv[2]))
        found = self.sweep(seeds, shown=True)
        counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
        took = f"{perf_counter() - begun:.0f} s"
        print(f"{len(seeds)} programs, {len(found.differ)} differ; {counts}; {took}", flush=True)
        sys.exit(bool(found.differ))
