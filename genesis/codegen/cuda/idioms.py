"""What a kernel computes, in the words of who wrote the program: idioms found again among its primitive ops.

    %2 = exp(%0 - max(%0)); %3 = %2 / sum(%2)     ─▶     softmax

An idiom is a formula, told by how its ops hang together; casts and views between them do not matter. Names are all that
depends on it (`naming.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops import pointwise
from genesis.ir.ops.random import random_bits

Covered = frozenset[Node]
"""The nodes of a formula; empty where it is not this one."""

NONE: Final[Covered] = frozenset()


def idioms(nodes: Sequence[Node]) -> dict[Node, str]:
    """Node → the idiom that it is part of. A node of two belongs to the one that ends later."""
    found = _draws(nodes) if any(node.op is random_bits for node in nodes) else {}
    for node in reversed(nodes):
        if node in found:
            continue
        for end, name, match in IDIOMS:
            covered = match(node) if node.op.name == end else NONE
            if covered:
                found.update((x, name) for x in covered if x not in found)
                break
    return found


def _draws(nodes: Sequence[Node]) -> dict[Node, str]:
    """Normal draws, sqrt(…) · cos(…) of random bits alone, and uniform ones: a few bits times a number."""
    found: dict[Node, str] = {}
    for node in nodes:
        for root, angle in _either_way(node, "mul"):
            if root.op is pointwise.sqrt and angle.op is pointwise.cos:
                found.update(dict.fromkeys(_of_random_bits(node), "randn"))
    for node in nodes:
        if node not in found and node.op is pointwise.mul and any(map(_is_number, node.inputs)):
            made_of = _of_random_bits(node)
            if made_of and all(x is node or x.op.name in BITS or x.op.kind == "movement" for x in made_of):
                found.update(dict.fromkeys(made_of, "rand"))
    return found


BITS: Final = {"random_bits", "right_shift", "bitwise_and", "cast", "add"}
"""Ops between random bits and the fraction that is made of them."""


def _of_random_bits(node: Node) -> set[Node]:
    """The nodes that a value is made of down to random bits; none if it is made of anything else, or of none."""
    found, pending = {node}, [node]
    while pending:
        x = pending.pop()
        if x.op is random_bits:
            continue
        if x.op.kind not in ("pointwise", "movement"):
            return set()
        new = {y for y in x.inputs if not _is_number(y)} - found
        found |= new
        pending += new
    return found if any(x.op is random_bits for x in found) else set()


def _bare(x: Node) -> Node:
    """What a value is a cast or a view of."""
    while x.op is pointwise.cast or (x.op.kind == "movement" and len(x.inputs) == 1):
        x = x.inputs[0]
    return x


def _is_number(x: Node) -> bool:
    return x.op.kind == "leaf" or x.type.weak


def _operands(x: Node, name: str) -> tuple[Node, ...]:
    """The operands of an op of this name; none if it is another."""
    return tuple(map(_bare, x.inputs)) if x.op.name == name else ()


def _either_way(x: Node, name: str) -> Iterator[tuple[Node, ...]]:
    """The operands of a commutative op, in both orders."""
    operands = _operands(x, name)
    return permutations(operands) if operands else iter(())


def _shifted(x: Node) -> Covered:
    """v - max(v), or nothing where a value is not shifted."""
    operands = _operands(x, "sub")
    return frozenset({x, operands[1]}) if operands and operands[1].op.name == "max" else NONE


def _softmax(node: Node) -> Covered:
    """exp(v) / Σ exp(v)"""
    above, below = _operands(node, "div")
    if above.op is not pointwise.exp or _operands(below, "sum") != (above,):
        return NONE
    return frozenset({node, above, below}) | _shifted(_bare(above.inputs[0]))


def _softmax_backward(node: Node) -> Covered:
    """y · (g - Σ g·y)"""
    for y, difference in _either_way(node, "mul"):
        for g, total in [_operands(difference, "sub")] if difference.op is pointwise.sub else []:
            for product in _operands(total, "sum"):
                if (g, y) in _either_way(product, "mul"):
                    return frozenset({node, difference, total, product})
    return NONE


def _log_softmax(node: Node) -> Covered:
    """v - log Σ exp(v)"""
    v, logarithm = _operands(node, "sub")
    for total in _operands(logarithm, "log"):
        for power in _operands(total, "sum"):
            if _operands(power, "exp") == (v,):
                return frozenset({node, logarithm, total, power}) | _shifted(v)
    return NONE


def _log_softmax_backward(node: Node) -> Covered:
    """g - exp(y) · Σ g"""
    g, product = _operands(node, "sub")
    for power, total in _either_way(product, "mul"):
        if power.op is pointwise.exp and _operands(total, "sum") == (g,):
            return frozenset({node, product, power, total})
    return NONE


def _mean(node: Node) -> Covered:
    """Σ v / n"""
    if node.op is not pointwise.div:
        return NONE
    total, count = _operands(node, "div")
    return frozenset({node, total}) if total.op.name == "sum" and _is_number(count) else NONE


def _variance(node: Node) -> Covered:
    """mean((v - mean(v))²)"""
    square = _square_of_mean(node)
    if square is None:
        return NONE
    centred = _bare(square.inputs[0])
    means = _mean(_operands(centred, "sub")[1]) if centred.op is pointwise.sub else NONE
    return _mean(node) | means | {square, centred} if means else NONE


def _square_of_mean(node: Node) -> Node | None:
    """c·c where a node is the mean of it."""
    if not _mean(node):
        return None
    square = _bare(_bare(node.inputs[0]).inputs[0])
    operands = _operands(square, "mul")
    return square if operands and operands[0] is operands[1] else None


def _inverse(node: Node) -> tuple[Covered, Node | None]:
    """(1 / sqrt(mean(c·c) + eps), c): the scale of a norm."""
    for total in _operands(node, "rsqrt"):
        for spread, epsilon in [_operands(total, "add")] if total.op is pointwise.add else []:
            square = _square_of_mean(spread)
            if square is not None and _is_number(epsilon):
                return _mean(spread) | _variance(spread) | {node, total, square}, _bare(square.inputs[0])
    return NONE, None


def _normalized(centred: bool) -> Callable[[Node], Covered]:
    """c / sqrt(mean(c·c) + eps), where c is v - mean(v) or v itself."""
    def match(node: Node) -> Covered:
        for c, inverse in _either_way(node, "mul"):
            scale, of = _inverse(inverse)
            if of is c and centred == _is_centred(c):
                return scale | {node}
        return NONE
    return match


def _is_centred(c: Node) -> bool:
    return c.op is pointwise.sub and bool(_mean(_operands(c, "sub")[1]))


def _norm_backward(centred: bool) -> Callable[[Node], Covered]:
    """(h - mean(h) - x̂ · mean(h·x̂)) / std; an RMS norm subtracts no mean of h."""
    def match(node: Node) -> Covered:
        for inverse, difference in _either_way(node, "mul"):
            scale, of = _inverse(inverse)
            if of is None or centred != _is_centred(of) or difference.op is not pointwise.sub:
                continue
            h, along = _operands(difference, "sub")
            for normalized, mean in _either_way(along, "mul"):
                if _mean(mean):
                    product = _bare(_bare(mean.inputs[0]).inputs[0])
                    inner = _mean(_operands(h, "sub")[1]) | {h} if h.op is pointwise.sub else NONE
                    return scale | _mean(mean) | inner | {node, difference, along, normalized, product}
        return NONE
    return match


def _adamw(node: Node) -> Covered:
    """m / (sqrt(v) / sqrt(c) + eps), with moments m and v that are updated on the way."""
    moment, below = _operands(node, "div")
    for root, epsilon in [_operands(below, "add")] if below.op is pointwise.add else []:
        for second in _operands(_operands(root, "div")[0], "sqrt") if root.op is pointwise.div else ():
            if _is_number(epsilon) and moment.op is pointwise.add and second.op is pointwise.add:
                return frozenset({node, moment, below, root, second, *_made_of(moment), *_made_of(second),
                                  *_operands(root, "div")})
    return NONE


def _made_of(node: Node) -> set[Node]:
    """The pointwise nodes that a value is made of, numbers and a few steps apart."""
    found: set[Node] = set()
    level = [node]
    for _ in range(3):
        level = [x for y in level for x in map(_bare, y.inputs) if x.op.kind == "pointwise" and not x.type.weak]
        found.update(level)
    return found


def _nll(node: Node) -> Covered:
    """-v[class]"""
    return frozenset({node, *_operands(node, "neg")}) if _bare(node.inputs[0]).op.name == "gather" else NONE


IDIOMS: Final[tuple[tuple[str, str, Callable[[Node], Covered]], ...]] = (
    ("div", "adamw", _adamw),
    ("div", "softmax", _softmax),
    ("mul", "softmax_backward", _softmax_backward),
    ("sub", "log_softmax", _log_softmax),
    ("sub", "log_softmax_backward", _log_softmax_backward),
    ("neg", "nll", _nll),
    ("mul", "layer_norm_backward", _norm_backward(centred=True)),
    ("mul", "rms_norm_backward", _norm_backward(centred=False)),
    ("mul", "layer_norm", _normalized(centred=True)),
    ("mul", "rms_norm", _normalized(centred=False)),
    ("div", "var", _variance),
    ("div", "mean", _mean),
)
"""(the op that a formula ends with, the formula's name, what finds its nodes), the first that matches."""
