"""Unrolled reductions as Triton text: a statement for each value that is taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda import lowerings
from genesis.ir.types import bool_

if TYPE_CHECKING:
    from genesis.codegen.cuda.emitter import Body
    from genesis.codegen.cuda.kernel_ir import Fold, Value

_BETTER: Final = {"argmax": ("<=", ">"), "argmin": (">=", "<")}
"""(when a value is no better than the best so far, when it is): the first also tells of NaN."""


def fold_lines(body: Body, s: Fold, combined: str) -> list[str]:
    """The lines that make one value of a fold's operands.

    Args:
        combined: how two of them become one, as a template.
    """
    values = [_accumulated(body, s, value) for value in s.operands]
    if s.positions is not None:
        return _first_hit(body, s, values, s.positions)
    name, first, *others = s.out.name, *values
    lines = [f"{name} = {first}", *(f"{name} = {combined.format(name, value)}" for value in others)]
    if s.out.dtype is bool_:
        return [*lines, f"{name} = {name} != 0"]
    held = lowerings.held(s.out.dtype)
    return lines if held is body.accumulator(s) else [*lines, f"{name} = {name}.to({lowerings.triton_type(held)})"]


def _accumulated(body: Body, s: Fold, value: Value) -> str:
    """An operand in the dtype that is accumulated in."""
    dtype = body.accumulator(s)
    text = body.use(value, value.dtype if s.op in ("any", "all") else dtype)
    if s.op in ("any", "all"):
        return f"{text if value.dtype is bool_ else f'({text} != 0)'}.to({lowerings.triton_type(dtype)})"
    return text


def _first_hit(body: Body, s: Fold, values: list[str], positions: tuple[int, ...]) -> list[str]:
    """The first position of the extremum; that of the first NaN where there is one."""
    name, dtype = s.out.name, body.accumulator(s)
    no_better, better = _BETTER[s.op]
    lines = [f"{name}_best = {values[0]}", f"{name} = tl.full((), {positions[0]}, tl.int32)"]
    for value, position in zip(values[1:], positions[1:], strict=True):
        if dtype.kind == "float":
            test = f"(({value} {no_better} {name}_best) == 0) & ({name}_best == {name}_best)"
        else:
            test = f"{value} {better} {name}_best"
        lines += [f"{name}_better = {test}", f"{name} = tl.where({name}_better, {position}, {name})",
                  f"{name}_best = tl.where({name}_better, {value}, {name}_best)"]
    return [*lines, f"{name} = {name}.to(tl.int64)"]
