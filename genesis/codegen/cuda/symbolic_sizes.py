"""Symbolic sizes become arguments of the kernels whose text names them."""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from typing import Any

from genesis.codegen.cuda.loops import integer_type, lesser_divisors, multiples_of_8, multiples_of_16, parameters_of
from genesis.codegen.cuda.source import SIZES, KernelSource
from genesis.ir.size_trace import tracing
from genesis.ir.sym_int import WORD, SymInt, is_literal


def with_size_arguments(source: KernelSource) -> KernelSource:
    """The kernel with an argument for each symbolic size that its text names.

        before: def add(in0, XBLOCK: …):           after: def add(in0, size0, XBLOCK: …):
                    … + x % size_17_ …                        … + x % size0 …

    A literal size (`Trace.literals`) is written as the number that it is.

    Raises:
        TypeError: a size that it names is not a whole number for every value of the symbols.
    """
    fixed = {name: operator.index(value) if isinstance(value, SymInt) else value
             for name, value in source.constexprs.items()}
    trace = tracing()
    numbers = dict.fromkeys(re.findall(WORD, source.source + source.plain)) if trace is not None else {}
    if trace is None or not numbers:
        return replace(source, source=source.source.replace(SIZES, ""), constexprs=fixed)
    for number in numbers:
        if not isinstance(trace.sizes[int(number)].value, int):
            raise TypeError(f"a size of {source.name} is {trace.sizes[int(number)]!r}, no whole number")
    literals = {number: str(size.value) for number in numbers if is_literal(size := trace.sizes[int(number)])}
    named = [number for number in numbers if number not in literals]
    sizes: dict[str, Any] = {f"size{k}": trace.sizes[int(number)] for k, number in enumerate(named)}
    names = {**literals, **{number: f"size{k}" for k, number in enumerate(named)}}
    given = {name: kind for name, kind in source.signature.items() if kind != "constexpr"}
    signature = {**given, **{name: integer_type(size) for name, size in sizes.items()},
                 **{name: kind for name, kind in source.signature.items() if kind == "constexpr"}}

    def written(text: str) -> str:
        head, old, body = re.sub(WORD, lambda match: names[match[1]], text).partition(
            f"def {source.name}({parameters_of(source.signature)}):")
        assert old, f"{source.name} is not defined as its signature says"
        return f"{head}def {source.name}({parameters_of(signature)}):{body}".replace(
            SIZES, "".join(f"{name}, " for name in sizes))

    return replace(source, source=written(source.source), plain=source.plain and written(source.plain),
                   signature=signature, constexprs=fixed, args=(*source.args, *sizes.values()),
                   aligned=(*source.aligned, *multiples_of_16(sizes)),
                   eights=(*source.eights, *multiples_of_8(sizes)), lesser=(*source.lesser, *lesser_divisors(sizes)))

