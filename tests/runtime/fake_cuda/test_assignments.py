"""`fake_cuda/assignments.py` changes a kernel as Triton's interpreter does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import genesis.codegen.cuda.templates as templates
from genesis.runtime.fake_cuda.assignments import rewrite

FILES = sorted(Path(templates.__file__).parent.glob("*_gluon.py"))

EVERY_STATEMENT = '''
def kernel(x_ptr, out_ptr, n: tl.constexpr):
    i = tl.program_id(0)
    total: tl.float32 = 0.0
    for j in range(0, n):
        value = tl.load(x_ptr + j)
        if value > 0:
            total += value
        elif j == 3:
            a, b = value, tl.where(value > 0, (lambda y: y)(value), 0)
        else:
            (c, d), e = (i, j), [k for k in (1, 2)]
    while i < n:
        i = i + 1
    else:
        i = 0

    def inner(y):
        z = y * 2
        return z
    with scope():
        w = inner(total)
    tl.store(out_ptr, w)
'''


@pytest.mark.parametrize("text", [EVERY_STATEMENT, *(path.read_text() for path in FILES)],
                         ids=["every statement", *(path.stem for path in FILES)])
def test_a_kernel_is_changed_as_triton_changes_it(text: str) -> None:
    from triton.runtime.interpreter import FunctionRewriter
    ours, tritons = ast.parse(text), ast.parse(text)
    for function in ours.body:
        if isinstance(function, ast.FunctionDef):
            rewrite(function.body, FunctionRewriter.ast_transformer)
    for function in tritons.body:
        if isinstance(function, ast.FunctionDef):
            FunctionRewriter.ast_transformer.visit(function)
    assert ast.dump(ours) == ast.dump(tritons)
    assert "to_tensor" in ast.dump(ours)
    compile(ours, "<kernel>", "exec")


def test_a_new_node_has_the_line_of_its_statement() -> None:
    from triton.runtime.interpreter import FunctionRewriter
    tree = ast.parse(EVERY_STATEMENT)
    function, = tree.body
    assert isinstance(function, ast.FunctionDef)
    before = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Assign)]
    rewrite(function.body, FunctionRewriter.ast_transformer)
    found = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    assert [node.lineno for node in found] == [node.value.lineno for node in found] == before
