"""Operands of a template that are read where they lie, through views (see `operand_view`)."""

from __future__ import annotations

from genesis.codegen.cuda.expressions import expression
from genesis.ir.node import Node
from genesis.passes.fusion.index_map import Atom, Expr
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group


def input_of(x: Node, group: Group) -> Node:
    """The group's input that has a node's memory: either may be a reshape of the other."""
    base = stored_as(x)
    return next(given for given in group.inputs if stored_as(given) is base)


def address(e: Expr, name: str) -> str:
    """An address part as text, with its variable called as the kernel calls it."""
    def renamed(x: Expr) -> Expr:
        return Expr(x.constant, tuple((Atom(t.kind, name if t.kind == "var" else t.name, t.low, t.high,
                                            renamed(t.inner) if t.inner is not None else None, t.number), k)
                                      for t, k in x.terms))
    text = expression(renamed(e))
    return text if e.is_atom else f"({text})"


def stride_of(part: Expr) -> int | None:
    """Elements from one place to the next, if that is one number."""
    if part.constant or len(part.terms) != 1:
        return None
    (atom, stride), = part.terms
    return stride if atom.kind == "var" else None
