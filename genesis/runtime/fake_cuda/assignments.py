"""What Triton's interpreter changes in a kernel's text: what is assigned becomes a tensor.

Triton walks through each expression for it, and once more to give the new nodes lines: a tenth of the time of a test
that runs a kernel once. Assignments are statements, so that only these are gone through here.
"""

from __future__ import annotations

import ast


def rewrite(body: list[ast.stmt], transformer: ast.NodeTransformer) -> None:
    """Change the statements that the transformer has a method for, in this body and in those inside it. A kernel
    has no `try`.

    >>> class Doubled(ast.NodeTransformer):
    ...     def visit_Assign(self, node):
    ...         return ast.Assign(node.targets, ast.BinOp(node.value, ast.Mult(), ast.Constant(2)))
    >>> tree = ast.parse("if x:\\n    y = x + 1\\nf(y)")
    >>> rewrite(tree.body, Doubled())
    >>> print(ast.unparse(tree))
    if x:
        y = (x + 1) * 2
    f(y)
    >>> tree.body[0].body[0].value.lineno
    2
    """
    for at, statement in enumerate(body):
        inside: list[list[ast.stmt]] = [getattr(statement, name) for name in ("body", "orelse")
                                        if hasattr(statement, name)]
        if not inside and hasattr(transformer, f"visit_{type(statement).__name__}"):
            body[at] = ast.copy_location(transformer.visit(statement), statement)
            _give_places(body[at])
        for each in inside:
            rewrite(each, transformer)


def _give_places(node: ast.AST) -> None:
    """Give the new nodes below this one its place in the text. What has a place was there before, and so was all that
    is in it."""
    for child in ast.iter_child_nodes(node):
        if "lineno" in child._attributes and not hasattr(child, "lineno"):
            _give_places(ast.copy_location(child, node))
