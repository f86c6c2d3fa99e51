"""Collectives on the CPU: calls of the group's transport. Results are in memory of their own, which others may fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.dtypes import CPU
from genesis.codegen.cpu.lowerings.table import Lowering
from genesis.runtime.collectives import transport
from genesis.runtime.ledger import ledger


def _next() -> Tensor:
    """The next content of a communicator's order: any will do."""
    return torch.zeros(1, dtype=torch.int32, device=CPU)


@contextmanager
def _run(name: str, communicator: str, line: str, x: Sequence[Tensor], *rest: object) -> Iterator[None]:
    """Inside, the group's collective runs; the text names all that has to be equal on all ranks, and is compared
    first: gloo ends a process that is sent more bytes than it waits for."""
    shown = ", ".join(f"{str(y.dtype).removeprefix('torch.')}{list(y.shape)}" for y in x)
    text = f"{name}({shown}{''.join(f', {value}' for value in rest)})"
    with ledger.running(communicator, text, line):
        transport(communicator, "cpu").compare(text)
        yield


def _in_place(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """A collective on copies of its operands."""
    def run(*operands: Tensor, communicator: str, line: str, **attributes: Any) -> tuple[Tensor, ...]:
        results = [x.clone(memory_format=torch.contiguous_format) for x in operands[:-1]]
        with _run(name, communicator, line, results, *attributes.values()):
            getattr(transport(communicator, "cpu"), name)(results, **attributes)
        return (*results, _next())
    return run


def _all_gather(*operands: Tensor, communicator: str, world: int, line: str) -> tuple[Tensor, ...]:
    given = [x.contiguous() for x in operands[:-1]]
    results = [x.new_empty((world * x.shape[0], *x.shape[1:])) for x in given]
    with _run("all_gather", communicator, line, given):
        transport(communicator, "cpu").all_gather(results, given)
    return (*results, _next())


def _reduce_scatter(*operands: Tensor, communicator: str, world: int, reduce: str, line: str) -> tuple[Tensor, ...]:
    given = [x.contiguous() for x in operands[:-1]]
    results = [x.new_empty((x.shape[0] // world, *x.shape[1:])) for x in given]
    with _run("reduce_scatter", communicator, line, given, reduce):
        transport(communicator, "cpu").reduce_scatter(results, given, reduce)
    return (*results, _next())


def _all_to_all(x: Tensor, order: Tensor, communicator: str, sent: tuple[int, ...], received: tuple[int, ...],
                line: str) -> tuple[Tensor, ...]:
    result = x.new_empty((sum(received), *x.shape[1:]))
    with _run("all_to_all", communicator, line, []):  # each rank has sizes of its own
        transport(communicator, "cpu").all_to_all(result, x.contiguous(), list(received), list(sent))
    return result, _next()


_CALLS: dict[str, Callable[..., Any]] = {
    "all_reduce": _in_place("all_reduce"), "reduce_to": _in_place("reduce_to"), "broadcast": _in_place("broadcast"),
    "all_gather": _all_gather, "reduce_scatter": _reduce_scatter, "all_to_all": _all_to_all}

COLLECTIVES: dict[str, Lowering] = {name: Lowering(function, kind="fresh") for name, function in _CALLS.items()}
