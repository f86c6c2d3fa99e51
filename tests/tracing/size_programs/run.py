"""Random functions over sizes and numbers, called plain and compiled in two equal worlds.

    python -m tests.tracing.size_programs.run 0 1000    # these, with what differs made small
"""

from __future__ import annotations

import copy
import dataclasses
import decimal
import enum
import functools
import gc
import math
import operator
import sys
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

import numpy as np

import genesis
import genesis.nn.functional as F
from genesis import nn
from tests.tracing.programs.run import ramp, shown
from tests.tracing.size_programs.draw import Program, draw, shrink


class World:
    """The names that a program has, and what it is called by."""

    def __init__(self, program: Program, compiled: bool):
        self.space: dict[str, Any] = {
            **{module.__name__: module for module in (genesis, math, copy, operator, functools, enum, dataclasses,
                                                      decimal)},
            "F": F, "nn": nn, "np": np, "ramp": ramp, "inf": math.inf, "nan": math.nan, "__name__": "program"}
        self.space["space"] = self.space
        sys.modules.setdefault("program", type(sys)("program"))
        exec(compile(program.source(), f"<program {program.seed}>", "exec"), self.space)
        self.function = self.space["f"]
        self.compiled = genesis.compile(self.function) if compiled else None

    def call(self, change: str, rows: int, other: int | None, numbers: tuple[Any, ...], tracked: bool,
             dtype: str) -> list[Any]:
        """What can be seen of a call, and of the world after it."""
        exec(change, self.space)
        net = self.space["s"]
        x = ramp(rows, 4).to(getattr(genesis, dtype))
        y = x if other is None else ramp(other, 4, start=2.0).to(getattr(genesis, dtype))
        net.w.grad, seen = None, []
        with genesis.set_grad_enabled(tracked):
            try:
                result = (self.compiled or self.function)(x, y, *numbers)
                seen.append(shown(result))
                found = list(_tensors(result))
                seen.append([[each is x, each is y, each.storage is x.storage] for each in found])
                for each in found:
                    if each.requires_grad and each.numel():
                        each.float().sum().backward(retain_graph=True)
                seen.append(shown(net.w.grad))
                for each in found:
                    if not each.requires_grad and each.storage not in (x.storage, y.storage):
                        each.zero_()
                seen.append(shown(found))
            except Exception as error:
                seen.append(type(error).__name__)
        kept = [(name, _read(vars(net)[name])) for name in ("k", "rate", "cache", "last", "text", "seen", "training")]
        return [seen, _read([x, y]), kept, [_read(self.space[name]) for name in ("D", "L", "G", "b")]]


def _read(value: Any) -> Any:
    """What a value shows, or what is raised when it is read: an index that is out of range is noticed then. What is
    raised of a value that is computed beside is raised once."""
    for _ in range(2):
        try:
            return shown(value)
        except Exception as error:
            raised = type(error).__name__
    return raised


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, genesis.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from _tensors(x)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif dataclasses.is_dataclass(value):
        yield from _tensors(list(vars(value).values()))


@dataclasses.dataclass
class Found:
    """What came of programs: calls, replays, captures, and the programs that differ, made small."""

    calls: int = 0
    hits: int = 0
    captures: int = 0
    raised: int = 0
    differ: list[str] = dataclasses.field(default_factory=list)


def difference(program: Program, found: Found | None = None) -> str:
    """What differs between the plain calls and the compiled ones, '' for nothing."""
    plain, ours = World(program, False), World(program, True)
    try:
        for at, each in enumerate(program.calls):
            one, other = plain.call(*each), ours.call(*each)
            if found is not None:
                found.calls += 1
                found.raised += isinstance(one[0][0], str) and one[0][0].isidentifier()
            if one != other:
                return f"call {at}: plain {{}}, compiled {{}}".format(*_where(one, other))
        if found is not None:
            explained = genesis.explain(ours.compiled)
            found.hits, found.captures = found.hits + explained.hits, found.captures + explained.captures
        return ""
    finally:
        plain.space.clear()
        ours.space.clear()
        gc.collect(1)


def _where(one: Any, other: Any) -> tuple[Any, Any]:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        return next(_where(a, b) for a, b in zip(one, other, strict=True) if a != b)
    return one, other


def sweep(seeds: Iterable[int], small: bool = True) -> Found:
    """Call these programs plain and compiled."""
    found = Found()
    for seed in seeds:
        program = draw(seed)
        different = difference(program, found)
        if different:
            if small:
                program = shrink(program, lambda each: bool(difference(each)))
            found.differ.append(f"{program}\n# {difference(program) or different}\n")
    return found


def main(start: int, stop: int) -> int:
    """Print what differs and how many; returns whether any does."""
    begun, total = perf_counter(), Found()
    for seed in range(start, stop):
        found = sweep([seed])
        for text in found.differ:
            print(text, flush=True)
        total.differ += found.differ
        total.calls, total.hits = total.calls + found.calls, total.hits + found.hits
        total.captures, total.raised = total.captures + found.captures, total.raised + found.raised
    print(f"{stop - start} programs, {len(total.differ)} differ; {total.calls} calls: {total.hits} replays, "
          f"{total.captures} captures, {total.raised} raise; {perf_counter() - begun:.0f} s", flush=True)
    return int(bool(total.differ))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
