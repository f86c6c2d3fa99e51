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
from collections import Counter
from typing import Any

import numpy as np

import genesis
import genesis.nn.functional as F
from genesis import nn
from tests.tracing.fuzzing import Fuzzer
from tests.tracing.programs.run import ramp, shown, tensors_in, where_differ
from tests.tracing.size_programs.draw import Program, draw


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
                found = list(tensors_in(result))
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
        kept = [(name, read(vars(net)[name])) for name in ("k", "rate", "cache", "last", "text", "seen", "training")]
        held = [read(self.space[name]) for name in ("D", "L", "G", "b")]
        return [seen, read([x, y]), kept, held, read(list(net.norm.buffers())), read(genesis.get_rng_state())]


def read(value: Any) -> Any:
    """What a value shows, or what is raised when it is read: an index that is out of range is noticed then. What is
    raised of a value that is computed beside is raised once."""
    for _ in range(2):
        try:
            return shown(value)
        except Exception as error:
            raised = type(error).__name__
    return raised


def difference(program: Program, counts: Counter[str], world: type[World] = World) -> str:
    """What differs between the plain calls and the compiled ones, '' for nothing; counts calls, replays, captures, and
    calls that raise."""
    plain, ours = world(program, False), world(program, True)
    drawn = [genesis.get_rng_state()] * 2
    try:
        for at, each in enumerate(program.calls):
            genesis.set_rng_state(drawn[0])
            one, drawn[0] = plain.call(*each), genesis.get_rng_state()
            genesis.set_rng_state(drawn[1])
            other, drawn[1] = ours.call(*each), genesis.get_rng_state()
            counts.update(calls=1, raising=isinstance(one[0][0], str) and one[0][0].isidentifier())
            if one != other:
                return f"call {at}: plain {{}}, compiled {{}}".format(*where_differ(one, other))
        explained = genesis.explain(ours.compiled)
        counts.update(replays=explained.hits, captures=explained.captures)
        return ""
    finally:
        plain.space.clear()
        ours.space.clear()
        gc.collect(1)


FUZZER = Fuzzer(draw, difference)

if __name__ == "__main__":
    FUZZER.main()
