"""Loops that run side by side: one launch has the programs of the first, then those of the second.

Each loop is a function of its own, whose text asks for its program's number instead of the launch's. What a program
does before it waits, it does as a program of its loop, so each function waits for itself.

One of them may be a kernel of a template, whose functions come along, and for whose warps it is: the others are loops,
which any number of warps run.

A program is one of one loop, so that all loops whose rows go through shared memory take the same bytes, the last ones
of what the kernel is launched with: each with its own, two loops would want more than a kernel may declare.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from genesis.codegen.cuda.early_loads import early_parts
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import LoopParts, parameters_of
from genesis.codegen.cuda.prelude import PRELUDE, prelude_for
from genesis.codegen.cuda.rows_across import words_of
from genesis.codegen.cuda.shared_rows import RESERVED
from genesis.codegen.cuda.source import HEADER, RELEASE, SIZES, WAIT, KernelSource, along_first
from genesis.codegen.cuda.templates.scatter import emit_scatter
from genesis.ir.node import Node
from genesis.passes.groups import Group

PROGRAM = "tl.program_id(0)"
START = "@triton.jit\n"


def emit_side_by_side(group: Group, gpu: GpuModel, settled: Container[Node] = frozenset()) -> KernelSource:
    """The kernel of a group whose members are loops; of settled inputs it may read before it waits."""
    parts, helpers, warps = [], "", None
    for member in group.members:
        if member.kind == "loop":
            parts.append(early_parts(member, gpu, settled))
        else:
            part, helpers = _of_template(emit_scatter(member, gpu))
            warps = part.source.num_warps
            parts.append(part)
    return put_beside(parts, f"{parts[0].source.name}_beside_{len(parts) - 1}_more", helpers, warps)


def _of_template(source: KernelSource) -> tuple[LoopParts, str]:
    """A template's kernel as lines, and the functions that they call.

    Raises:
        ValueError: it is no kernel that others can be beside.
    """
    above, found, text = source.source.partition(f"@triton.jit\ndef {source.name}(")
    lines = [line.removeprefix("    ") for line in text.splitlines()[1:]]
    if (not found or lines[:2] != [WAIT, RELEASE] or source.plain or source.registers or source.grid[1:] != (1, 1)
            or any("program_id(1)" in line or "num_programs" in line or line.strip() == "return" for line in lines)):
        raise ValueError(f"{source.name} has no programs that others can be beside")
    functions = [f"{START}{text.rstrip()}" for text in above.split(START)[1:]]
    own = [text for text in functions if text.partition("def ")[2].partition("(")[0] not in PRELUDE]
    return LoopParts(source, [], lines[2:], source.shared), "\n\n\n".join(own)


def put_beside(parts: Sequence[LoopParts], name: str, helpers: str = "", warps: int | None = None) -> KernelSource:
    """The kernel with this name that has the programs of the first loop, then those of the second, ...

    Args:
        helpers: functions that their lines call, besides the prelude's.
        warps: of a program, where a part's lines count what each of its threads does (with more warps than elements
            several threads would count one); by default as many as the part has that wants most.
    """
    names = [f"{part.source.name}_{number}" for number, part in enumerate(parts)]
    words = max(part.words for part in parts)
    if any(words_of(part.words) in line for part in parts for line in part.lines):
        words = next(nbytes for nbytes in RESERVED if nbytes >= words)
    functions = "\n\n".join((*([helpers] if helpers else ()),
                             *(_function(name, part, words) for name, part in zip(names, parts, strict=True))))
    signature: dict[str, str] = {}
    args: list[object] = []
    first = 0
    starts = []
    for number, part in enumerate(parts):
        given = {p: kind for p, kind in part.source.signature.items() if kind != "constexpr"}
        signature.update({f"{p}_{number}": kind for p, kind in given.items()})
        args += part.source.args
        starts.append(first)
        first = first + math.prod(part.source.grid)
    bounds = {f"start_{number}": start for number, start in enumerate(starts) if number}
    signature.update(dict.fromkeys(bounds, "i32"))
    constexprs = {f"{p}_{number}": value for number, part in enumerate(parts)
                  for p, value in part.source.constexprs.items()}
    signature.update(dict.fromkeys(constexprs, "constexpr"))
    calls = [f"program = {PROGRAM}", *_chosen(
        [[_call(own, part, number)] for number, (own, part) in enumerate(zip(names, parts, strict=True))])]
    return KernelSource(
        name, _module(name, signature, calls, functions), signature, constexprs,
        (*args, *bounds.values()), _of_all(parts, "aligned"),  # type: ignore[arg-type]
        (first, 1, 1), warps or max(part.source.num_warps for part in parts), label=name, shared=words,
        eights=_of_all(parts, "eights"),
        lesser=tuple((f"{x}_{number}", n) for number, part in enumerate(parts) for x, n in part.source.lesser))


def _of_all(parts: Sequence[LoopParts], field: str) -> tuple[str, ...]:
    """The parameters that this field of the parts' kernels names."""
    return tuple(f"{x}_{number}" for number, part in enumerate(parts) for x in getattr(part.source, field))


def _module(name: str, signature: dict[str, str], calls: list[str], functions: str) -> str:
    """A module's text. The kernel itself does not wait: the loops do, each when it has done what comes before."""
    lines = "".join(f"    {line}\n" for line in calls)
    kernel = f"@triton.jit\ndef {name}({parameters_of(signature)}):\n{lines}"
    return "\n\n".join(text.strip("\n") + "\n" for text in (HEADER, prelude_for(functions), functions, kernel) if text)


def _function(name: str, part: LoopParts, words: int) -> str:
    """A loop as a function of its program's number, which has so many bytes of shared memory at the end of all."""
    x, y, z = part.source.grid
    along = along_first((x, y, z)) if y.__class__ is not int or y > 1 else str
    all_lines = [along(line) for line in (*part.before, WAIT, RELEASE, *part.lines)]
    own, last = words_of(part.words), words_of(words, last=True)
    lines = "".join(f"    {line.replace(PROGRAM, 'program_id').replace(own, last)}\n" for line in all_lines)
    return f"@triton.jit\ndef {name}(program_id, {SIZES}{parameters_of(part.source.signature)}):\n{lines}"


def _call(name: str, part: LoopParts, number: int) -> str:
    given = ", ".join(f"{p}_{number}" for p in part.source.signature)
    own = f"program - start_{number}" if number else "program"
    return f"{name}({own}, {SIZES}{given})"


def _chosen(branches: list[list[str]]) -> list[str]:
    """Lines that go into one of the branches, by the number of the program."""
    lines = []
    for number, branch in enumerate(branches):
        last = number == len(branches) - 1
        word = "else:" if last else f"{'el' if number else ''}if program < start_{number + 1}:"
        lines += [word, *(f"    {line}" for line in branch)]
    return lines


__all__ = ["emit_side_by_side", "put_beside"]
