"""A plan's calls as one Python function without loops, made once the plan has run a few times.

The loop over prepared calls (`executor.py`) looks at each call's kind, gathers its operands in a list and unpacks its
attributes: about a microsecond, next to kernels of one or two (`benchmarks/programs.py`, `benchmarks/cpu_step.py`).
Here that is decided when the text is made: a call is a line such as

    f7([r[12]], r[3], r[9], axes=a7_axes); r[3] = None

over the registers `r`. The number of a line tells which call raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from types import CodeType, TracebackType
from typing import Final, TypeAlias, cast
from weakref import WeakValueDictionary

import torch

from genesis.ir.types import TensorType
from genesis.runtime.plan import Direct

RUNS_BEFORE: Final = 3
"""Runs by the loop before the text is made: that takes about 40 µs a call, so a plan that runs twice has none."""

MOST_CALLS: Final = 20_000
"""Calls of a plan up to which it is written out: code takes about 300 bytes a call."""

Adopted = Mapping[int, tuple[TensorType, torch.dtype]]
"""Register of an output that a call allocates → its type."""

Owned = Callable[[torch.Tensor, TensorType, Sequence[object]], torch.Tensor]
"""(result, type, operands) → a tensor that is the result in memory of its own."""

Result: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...]"
"""What a call of torch's returns."""

Run: TypeAlias = "Callable[[list[object], list[Callable[[], object]]], list[Callable[[], object]]]"
"""(registers, an empty list) → the list, with what the last calls have made ready to be called."""

Step = tuple[Callable, tuple[int, ...], tuple[int, ...], Mapping[str, object], str, tuple[int, ...]]


class StraightLine:
    """The calls of a plan, written out.

    Attributes:
        steps: what was written out.

    Args:
        steps: the executor's prepared calls.
        adopted: outputs that calls allocate.
        owned: makes a result an output.
        direct: for each step the call of torch's that is all it does, if there is one.
    """

    def __init__(self, steps: Sequence[Step], adopted: Adopted, owned: Owned, direct: Sequence[Direct | None]):
        self.steps = steps
        names: dict[str, object] = {"keep": _keeper(adopted, owned), "adopt": _adopter(adopted, owned),
                                    "tensor": torch.Tensor}
        lines = [_line(number, step, adopted, called, names)
                 for number, (step, called) in enumerate(zip(steps, direct, strict=True))]
        text = "\n".join(["def run(r, writes):", *[f" {line}" for line in lines], " return writes", ""])
        self._code = _code_of(text)  # held for other plans of this text
        exec(self._code, names)
        self.run = cast("Run", names["run"])

    def failed(self, traceback: TracebackType | None) -> Step:
        """The call that raised, given the traceback of its error."""
        code = self.run.__code__
        while traceback is not None and traceback.tb_frame.f_code is not code:
            traceback = traceback.tb_next
        assert traceback is not None
        return self.steps[traceback.tb_lineno - 2]


_codes: WeakValueDictionary[str, CodeType] = WeakValueDictionary()
"""A text → its code, while some plan has it: plans that differ in sizes alone have one text. Compiling it takes four
fifths of writing a plan out."""


def _code_of(text: str) -> CodeType:
    code = _codes.get(text)
    if code is None:
        code = _codes[text] = compile(text, __file__, "exec")
    return code


def _line(number: int, step: Step, adopted: Adopted, direct: Direct | None, names: dict[str, object]) -> str:
    """One call, and what is let go of after it. What the line names goes into `names`."""
    function, args, outs, attributes, kind, frees = step
    operands = [f"r[{i}]" for i in args]
    if all(name.isidentifier() and not iskeyword(name) for name in attributes):
        given = [f"{name}=a{number}_{name}" for name in attributes]
        names.update({f"a{number}_{name}": value for name, value in attributes.items()})
    else:
        given, names[f"a{number}"] = [f"**a{number}"], attributes
    names[f"f{number}"] = function if direct is None else direct.function
    written = f"[{', '.join(f'r[{i}]' for i in outs)}]"
    if direct is not None:
        after = direct.arguments(attributes)
        names.update({f"b{number}_{i}": value for i, value in enumerate(after)})
        operands += [f"b{number}_{i}" for i in range(len(after))]
        if kind == "out":
            operands = [*operands, f"{direct.out}=r[{outs[0]}]"] if direct.out else [f"r[{outs[0]}]", *operands]
        call = f"f{number}({', '.join(operands)})"
    elif kind in ("out", "late"):
        call = f"f{number}({', '.join([written, *operands, *given])})"
    elif kind == "made":
        call = f"f{number}({', '.join([str((None,) * len(outs)), *operands, *given])})"
    else:
        call = f"f{number}({', '.join([*operands, *given])})"
    if kind == "late":
        call = f"writes += {call}"
    elif kind == "made" and len(outs) == 1:
        names[f"d{number}"] = adopted[outs[0]][1]
        call = (f"t = {call}; r[{outs[0]}] = t if t.__class__ is tensor and t.dtype is d{number} and t.is_contiguous() "
                f"else adopt(t, {outs}, r, {args})")
    elif kind == "view" and outs[0] not in adopted:
        call = f"r[{outs[0]}] = {call}"
    elif kind != "out":
        call = f"keep({call}, {outs}, r, {args}, {kind == 'made'})"
    return call + (f"; {' = '.join(f'r[{i}]' for i in frees)} = None" if frees else "")


def _adopter(adopted: Adopted, owned: Owned) -> Callable:
    """What makes the one result of a call that may allocate its result the output."""
    def adopt(result: Result, outs: tuple[int, ...], registers: list[object], args: tuple[int, ...]) -> torch.Tensor:
        part, = result if isinstance(result, tuple) else (result,)
        wanted, dtype = adopted[outs[0]]
        return part if part.dtype is dtype and part.is_contiguous() else owned(
            part, wanted, [registers[i] for i in args])
    return adopt


def _keeper(adopted: Adopted, owned: Owned) -> Callable:
    """What puts the results of a call into their registers. `made`: it may have been given places to write to."""
    def keep(result: Result, outs: tuple[int, ...], registers: list[object], args: tuple[int, ...],
             made: bool) -> None:
        for i, part in zip(outs, result if isinstance(result, tuple) else (result,), strict=made):
            if i not in adopted:
                registers[i] = part
                continue
            wanted, dtype = adopted[i]
            usual = made and part.dtype is dtype and part.is_contiguous()
            registers[i] = part if usual else owned(part, wanted, [registers[i] for i in args])
    return keep
