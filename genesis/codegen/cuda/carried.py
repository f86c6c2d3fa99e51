"""Addresses of tiles in which a block's elements differ by few quotients: the others are of the whole program.

An operand of many axes has a quotient and a remainder of a coordinate for each of its axes, and where its neighbours
lie along the other coordinate, a thread computes these for every element that it loads. But a block passes the end of
an axis that is longer than itself, or of a product of axes that is, once at most:

    f16[113, 78, 4, 23, 23].permute(4, 2, 1, 0, 3)        r counts (4, 78, 113, 23), in blocks of 512
    before: r % 23 * 23 + r // 23 % 113 * 165048 + r // 2599 % 78 * 2116 + r // 202722 * 529
    after:  r_low % 23 * 23 + r_low // 23 * 165048 + (r_over ? what r_row + 1 makes of the others : what r_row makes)

`r_row` is which 2599 elements the block begins in (the `period`), `r_low` how far from the start of these an element
lies, and `r_over` whether that is in the next ones; there what 113 more of `r_low // 23` make is taken away again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from genesis.codegen.cuda.block_sizes import Blocks, power_of_two, reach_of
from genesis.codegen.cuda.expressions import divided, expression, has_reciprocal
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Store
from genesis.ir.sym_int import SymInt, literal_value
from genesis.passes.fusion.index_map import ZERO, Atom, Expr, add, constant, floordiv, mod_, scale, variable

FEWEST: Final = 3
"""Quotients and remainders of an element from which on they are the program's: which period it lies in takes a
comparison, a choice and a sum, one quotient and what is left of it a product, a shift and a product more (sm_90)."""


class Names(NamedTuple):
    """Variables of a kernel for a coordinate's period: which one the block begins in, how far from its start an element
    lies, whether that is in the next one."""

    row: str
    low: str
    over: str


@dataclass(frozen=True)
class Carry:
    """A coordinate's part of an address, cut at multiples of a period.

    Attributes:
        coordinate: "x" or "r".
        period: elements, no fewer than a block's.
        low: what an element's place in its period adds, by the coordinate `low`.
        high: what the number of that period adds, by the coordinate `row`.
        rest: the address without them.
    """

    coordinate: str
    period: int
    low: Expr
    high: Expr
    rest: Expr


def carry_of(kernel: Kernel, blocks: Blocks, address: Expr) -> Carry | None:
    """What of an address is the program's; None where too little is, or the block's neighbours lie along it."""
    if not blocks.tiled or not kernel.has_r or kernel.folds or kernel.column is not None or blocks.across:
        return None
    if {_coordinate(atom) for atom, _ in address.terms} != {"x", "r"}:
        return None
    for coordinate, size, block in (("r", kernel.r_size, blocks.r), ("x", kernel.x_size, blocks.x)):
        terms = [term for term in address.terms if _coordinate(term[0]) == coordinate]
        if any(k in (1, -1) for _, k in terms):  # lanes lie along it: the compiler is to see by how much they differ
            continue
        rest = Expr(address.constant, tuple([term for term in address.terms if term not in terms]))
        for period in _periods(terms, size, block):
            parts = [_cut(atom, k, period, size) for atom, k in terms]
            known = [part for part in parts if part is not None]
            low, high = (add(*(part[side] for part in known)) for side in (0, 1))
            if len(known) == len(parts) and _divisions(terms) - _divisions(low.terms) >= FEWEST:
                return Carry(coordinate, period, low, high, rest)
    return None


def carries_of(kernel: Kernel, blocks: Blocks) -> dict[tuple[str, int], Names]:
    """What the periods of a kernel's loads and stores are called, by coordinate and period."""
    found = dict.fromkeys((carry.coordinate, carry.period) for s in kernel.statements if isinstance(s, (Load, Store))
                          if (carry := carry_of(kernel, blocks, s.address)) is not None)
    return {(c, period): Names(f"{c}_row{n}", f"{c}_low{n}", f"{c}_over{n}") for n, (c, period) in enumerate(found)}


def carry_lines(kernel: Kernel, blocks: Blocks, firsts: dict[str, str]) -> list[str]:
    """The lines that say in which period a block begins, and where its elements lie.

    Args:
        firsts: coordinate → the block's first element, as text.
    """
    lines = []
    for (c, period), names in carries_of(kernel, blocks).items():
        lanes = "tl.arange(0, XBLOCK)[:, None]" if c == "x" else "tl.arange(0, RBLOCK)[None, :]"
        place = f"({firsts[c]}) % {period}"
        if literal_value(period) is None:  # what LLVM cannot know of a remainder by an argument: how large it is
            place = f"({place} & {power_of_two(reach_of(period)[1]) - 1})"
        lines += [f"{names.row} = ({firsts[c]}) // {period}", f"{names.low} = {place} + {lanes}",
                  f"{names.over} = {names.low} >= {period}"]
    return lines


def carried_text(carry: Carry, names: Names, reciprocals: bool) -> str:
    """The address as text."""
    here, there = (expression(_renamed(carry.high, "row", name), reciprocals)
                   for name in (names.row, f"({names.row} + 1)"))
    back = sum(k * _turn(atom, carry.period) for atom, k in carry.low.terms)
    parts = [_low_text(carry, names.low, reciprocals) if carry.low.terms else "",
             f"tl.where({names.over}, {there} - {back}, {here})",
             f"({expression(carry.rest, reciprocals)})"]  # of the other coordinate: added once to each element
    return " + ".join(part for part in parts if part)


def _low_text(carry: Carry, low: str, reciprocals: bool) -> str:
    """What an element's place adds, as a sum of quotients: remainders are differences of these, each of which is a
    product and a shift. LLVM makes divisions of 16 bits of small ones, and four instructions more of each."""
    factors: dict[int, int] = {}
    for atom, k in carry.low.terms:
        start, modulus = _start_of(atom)
        factors[start] = factors.get(start, 0) + k
        if modulus is not None:
            factors[start * modulus] = factors.get(start * modulus, 0) - k * modulus
    most = 2 * reach_of(carry.period)[1]
    parts = []
    for start, k in factors.items():
        number = literal_value(start)
        quotient = low if number == 1 else None if number is None else divided(low, most, number)
        plain = floordiv(variable(low, most), start)
        parts.append(f"{quotient or f'({expression(plain, reciprocals)})'} * {k}")
    return " + ".join(parts)


def _start_of(atom: Atom) -> tuple[int, int | None]:
    """(n, m) of a coordinate's quotient by n, or of the remainder by m of that."""
    if atom.kind != "mod":
        return (1 if atom.inner is None else atom.number), None
    assert atom.inner is not None
    inner = atom.inner.terms[0][0]
    return (inner.number if inner.kind == "div" else 1), atom.number


def _turn(atom: Atom, period: int) -> int:
    """How much more an atom of a place is a period later: a remainder comes again."""
    if atom.inner is None:
        return period
    return 0 if atom.kind == "mod" else exactly(period, atom.number) or 0


def _renamed(e: Expr, name: str, to: str) -> Expr:
    """The expression over another variable."""
    return Expr(e.constant, tuple(
        (Atom(atom.kind, to if atom.name == name else atom.name, atom.low, atom.high,
              None if atom.inner is None else _renamed(atom.inner, name, to), atom.number, atom.payload), k)
        for atom, k in e.terms))


def _coordinate(atom: Atom) -> str:
    """The coordinate that an atom counts: itself, its quotient, its remainder or a quotient's remainder; "" else."""
    while atom.inner is not None:
        if not atom.inner.is_atom or not atom.inner.terms:
            return ""
        atom = atom.inner.terms[0][0]
    return atom.name if atom.kind == "var" else ""


def _periods(terms: list[tuple[Atom, int]], size: int, block: int) -> Iterator[int]:
    """What the coordinate is divided by, of no fewer elements than a block, the shortest first."""
    found = {atom.number for top, _ in terms for atom in _chain(top) if atom.kind == "div"}
    long = [period for period in found if reach_of(period)[0] >= block and exactly(size, period) is not None]
    yield from sorted(long, key=lambda period: reach_of(period)[0])


def _chain(atom: Atom) -> Iterator[Atom]:
    while atom.inner is not None:
        yield atom
        atom = atom.inner.terms[0][0]


def _divisions(terms: tuple[tuple[Atom, int], ...] | list[tuple[Atom, int]]) -> int:
    """How many quotients and remainders there are; those by an argument that has no reciprocal count twice: each is
    twenty instructions."""
    found = {inner for atom, _ in terms for inner in _chain(atom)}
    return sum(1 if literal_value(atom.number) is not None or has_reciprocal(atom) else 2 for atom in found)


def _cut(atom: Atom, k: int, period: int, size: int) -> tuple[Expr, Expr] | None:
    """k times an atom as (what the place in a period adds, what the period's number adds); None where it is no sum of
    two such."""
    count = exactly(size, period)
    assert count is not None
    low, row = variable("low", period), variable("row", count)
    if atom.inner is None:
        return scale(low, k), scale(row, k * period)
    start, modulus = _start_of(atom)
    inner = atom.inner.terms[0][0]
    plain = inner if inner.inner is None or atom.kind == "div" else inner.inner.terms[0][0]
    if plain.inner is not None:
        return None
    beyond, within = exactly(start, period), exactly(period, start)
    if beyond is not None:
        counted = floordiv(row, beyond)
        return ZERO, scale(counted if modulus is None else mod_(counted, modulus), k)
    if within is None:
        return None
    if modulus is None:
        return scale(floordiv(low, start), k), scale(row, k * within)
    if exactly(within, modulus) is not None:
        return scale(mod_(floordiv(low, start), modulus), k), constant(0)
    times = exactly(modulus, within)
    if times is None:
        return None
    return scale(floordiv(low, start), k), scale(mod_(row, times), k * within)


def exactly(size: int, part: int) -> int | None:
    """How often a size is another, whatever the symbols are; None where that is not known."""
    symbolic = size if isinstance(size, SymInt) else part
    if not isinstance(symbolic, SymInt):
        return size // part if size % part == 0 else None
    times, rest = symbolic.trace.divide(size, part)
    return times if rest.__class__ is int and rest == 0 else None  # it computes like one
