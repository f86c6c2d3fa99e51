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
from genesis.ir.sym_int import terms_of
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


def put_beside(parts: Sequence[LoopParts], name: str, helpers: str = "", warps: int | None = None,
               in_turn: bool = False) -> KernelSource:
    """The kernel with this name that has the programs of the first loop, then those of the second, ...

    Args:
        in_turn: loops that have equally many programs have them in turn, the first of each, then the second of each.
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
    for number, part in enumerate(parts):
        given = {p: kind for p, kind in part.source.signature.items() if kind != "constexpr"}
        signature.update({f"{p}_{number}": kind for p, kind in given.items()})
        args += part.source.args
    first = 0
    turns = _of_equal_grids(parts) if in_turn else [[number] for number in range(len(parts))]
    bounds = {}
    for turn in turns:
        if turn[0]:
            bounds[f"start_{turn[0]}"] = first
        first = first + len(turn) * math.prod(parts[turn[0]].source.grid)
    signature.update(dict.fromkeys(bounds, "i32"))
    constexprs = {f"{p}_{number}": value for number, part in enumerate(parts)
                  for p, value in part.source.constexprs.items()}
    signature.update(dict.fromkeys(constexprs, "constexpr"))
    calls = [f"program = {PROGRAM}", *_chosen([_turn(turn, names, parts) for turn in turns], [
        f"program < start_{turn[0]}" for turn in turns[1:]])]
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


def _of_equal_grids(parts: Sequence[LoopParts]) -> list[list[int]]:
    """The loops by how many programs they have, those together that have equally many whatever sizes are."""
    found: dict[object, list[int]] = {}
    for number, part in enumerate(parts):
        found.setdefault(terms_of(math.prod(part.source.grid)), []).append(number)
    return list(found.values())


def _turn(turn: list[int], names: list[str], parts: Sequence[LoopParts]) -> list[str]:
    """The lines for the programs of loops that have them in turn, or of a single one."""
    own = f"program - start_{turn[0]}" if turn[0] else "program"
    if len(turn) == 1:
        return [_call(names[turn[0]], parts[turn[0]], turn[0], own)]
    calls = [[_call(names[number], parts[number], number, f"turn // {len(turn)}")] for number in turn]
    return [f"turn = {own}", f"which = turn % {len(turn)}",
            *_chosen(calls, [f"which == {at}" for at in range(len(turn) - 1)])]


def _call(name: str, part: LoopParts, number: int, own: str) -> str:
    """The call of a loop's function for one of its programs."""
    given = ", ".join(f"{p}_{number}" for p in part.source.signature)
    return f"{name}({own}, {SIZES}{given})"


def _chosen(branches: list[list[str]], conditions: list[str]) -> list[str]:
    """Lines that go into one of the branches: the first whose condition holds, or the last."""
    if len(branches) == 1:
        return branches[0]
    lines = []
    for number, branch in enumerate(branches):
        word = "else:" if number == len(branches) - 1 else f"{'el' if number else ''}if {conditions[number]}:"
        lines += [word, *(f"    {line}" for line in branch)]
    return lines


__all__ = ["emit_side_by_side", "put_beside"]
