"""Errors say what failed, the operands, the user's line, and what to try; at the line that recorded the op."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import genesis
from genesis import nn
from genesis.nn import functional as F


def line_of(function) -> str:
    """`file:line` of the lambda's body."""
    return f"{__file__}:{function.__code__.co_firstlineno}"


f32 = r"genesis\.float32 of shape"
CASES = [
    # (what the user does, error class, what failed, operands, hint)
    (lambda: genesis.ones(2, 3) + genesis.ones(4), RuntimeError, "add: .*do not broadcast",
     [rf"{f32} \(2, 3\) on cpu", rf"{f32} \(4,\) on cpu"], "reshape, unsqueeze or expand"),
    (lambda: genesis.ones(2, 3) @ genesis.ones(4, 5), RuntimeError, "matmul: ", [r"\(2, 3\)", r"\(4, 5\)"], "try: "),
    (lambda: genesis.ones(2, 3).view(7), RuntimeError, r"view: shape '\[7\]' is invalid for input of size 6",
     [rf"{f32} \(2, 3\)"], "-1"),
    (lambda: genesis.ones(2, 3).t().view(6), RuntimeError, "view: view size is not compatible", [r"\(3, 2\)"],
     "reshape"),
    (lambda: genesis.ones(2, 3).sum(5), IndexError, r"sum: Dimension out of range .*\[-2, 1\], but got 5", [], None),
    (lambda: genesis.ones(2)[3], IndexError, "indexing: index 3 is out of bounds for dimension 0 with size 2",
     [rf"{f32} \(2,\)"], None),
    (lambda: genesis.ones(2)[0, 0], IndexError, "indexing: too many indices", [rf"{f32} \(2,\)"], None),
    (lambda: genesis.ones(2)["a"], IndexError, "indexing: only integers, slices", [], None),
    (lambda: genesis.ones(3)[genesis.tensor([0.5])], IndexError, "integer or boolean", [f32], None),
    (lambda: genesis.ones(3)[::-1], ValueError, "step must be positive", [], "flip"),
    (lambda: genesis.ones(2, 2).__setitem__(0, genesis.ones(3)), RuntimeError, "assignment: shape mismatch",
     [r"\(2, 2\)", r"\(3,\)"], None),
    (lambda: genesis.ones(3).add_(genesis.ones(2, 3)), RuntimeError, "add_: output with shape", [r"\(3,\)"], None),
    (lambda: genesis.ones(3, dtype=genesis.int64).add_(0.5), RuntimeError, "add_: result type .* can't be cast",
     ["int64"], "out-of-place"),
    (lambda: genesis.cat([genesis.ones(2, 3), genesis.ones(2, 4)]), RuntimeError, "cat: ",
     [r"\(2, 3\)", r"\(2, 4\)"], "one size in all other dimensions"),
    (lambda: genesis.cat(genesis.ones(2, 3)), TypeError, "cat: .* must be a sequence of tensors", [rf"{f32} \(2, 3\)"],
     r"cat\(\(x, y\)\)"),
    (lambda: genesis.stack([genesis.ones(2), genesis.ones(3)]), RuntimeError, "stack: ", [r"\(2,\)", r"\(3,\)"],
     "cat"),
    (lambda: F.embedding(genesis.ones(2), genesis.ones(3, 4)), IndexError, "embedding: an index must", [f32], None),
    (lambda: F.scaled_dot_product_attention(genesis.ones(2, 3, 4), genesis.ones(2, 3, 5), genesis.ones(2, 3, 4)),
     RuntimeError, "scaled_dot_product_attention: ", [r"\(2, 3, 5\)"], "one last size"),
    (lambda: F.cosine_similarity(genesis.ones(2, 3), genesis.ones(4, 3)), RuntimeError, "cosine_similarity: shapes",
     [r"\(2, 3\)", r"\(4, 3\)"], "reshape"),
    (lambda: genesis.ones(2, dtype=genesis.int64).mean(), RuntimeError, "mean: could not infer output dtype", ["int64"],
     r"float\(\)"),
    (lambda: genesis.ones(2).item(), RuntimeError, "item: a tensor with 2 elements", [f32], "tolist"),
    (lambda: bool(genesis.ones(2)), RuntimeError, "bool: the truth value .* ambiguous", [f32], "any"),
    (lambda: genesis.ones(2, requires_grad=True).numpy(), RuntimeError, "numpy: ", [f32], r"detach\(\)"),
    (lambda: genesis.where(genesis.ones(2), 1, 0), RuntimeError, "where: .*boolean", [f32], "!= 0"),
    (lambda: genesis.tensor([True]) - genesis.tensor([True]), RuntimeError, "sub: .*bool", ["bool"], "logical_xor"),
    (lambda: genesis.tensor([2]) ** -1, RuntimeError, "pow: .*negative integer powers", ["int64"], "floating-point"),
    (lambda: genesis.ones(2, 3).expand(4, 3), RuntimeError, "expand: ", [r"\(2, 3\)"], "size 1"),
    (lambda: genesis.ones(2).expand(3, 2).add_(1), RuntimeError, "more than one element", [], None),
    (lambda: genesis.tensor([[1, 2], [3]]), ValueError, "tensor: cannot make a tensor", [], None),
    (lambda: genesis.ones(3).requires_grad_().add_(1), RuntimeError, "in-place write: a leaf", [f32], r"no_grad\(\)"),
    (lambda: nn.Linear(3, 4)(genesis.ones(2, 5)), RuntimeError, "linear: ", [r"\(2, 5\)"], "in_features"),
]


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: re.sub(r"\W+", " ", CASES[i][2]).strip() + f" {i}")
def test_error(case):
    action, kind, problem, operands, hint = CASES[case]
    with pytest.raises(kind) as raised:
        action()
    text = str(raised.value)
    assert re.search(problem, text), text
    for operand in operands:
        assert re.search(operand, text), f"no operand {operand} in:\n{text}"
    assert f"at {line_of(action)}" in text, text
    if hint is not None:
        assert re.search(hint, text.split("try: ")[1] if hint != "try: " else text), text


def test_the_users_line_is_the_line_of_a_longer_statement():
    """Also deep inside modules and functions of Genesis."""
    a, b = genesis.ones(2, 3), genesis.ones(2, 4)
    first = inspect.currentframe().f_lineno
    with pytest.raises(RuntimeError) as raised:
        genesis.nn.functional.mse_loss(a, b)
    assert f"{__file__}:{first + 2}: genesis.nn.functional.mse_loss(a, b)" in str(raised.value)


def test_an_error_leaves_no_trace():
    """What failed to be recorded changes nothing that came before or after."""
    x = genesis.tensor([1.0, 2.0])
    y = x * 2
    with pytest.raises(RuntimeError):
        y.add_(genesis.ones(3))
    with pytest.raises(RuntimeError):
        y[:1] = genesis.ones(4)
    assert y.tolist() == [2, 4] and y._version == 0


def test_a_missing_gpu_says_how_to_check():
    if genesis.cuda.is_available():
        pytest.skip("there is a GPU")
    for action in (lambda: genesis.ones(2, device="cuda"), lambda: genesis.ones(2).cuda(),
                   lambda: genesis.ones(2).to("cuda:1"), lambda: genesis.rand(2, device=genesis.device("cuda"))):
        with pytest.raises(RuntimeError) as raised:
            action()
        text = str(raised.value)
        assert "nvidia-smi" in text and ("driver" in text or "GPU" in text), text


class TestTwoDevices:
    """An op on two devices says so; nothing is computed, so no GPU is needed."""

    @pytest.fixture
    def elsewhere(self):
        from genesis.frontend.recording import wrap
        from genesis.ir.ops import leaves
        from genesis.ir.types import Device, float32
        return wrap(leaves.full((2, 3), 1.0, float32, Device("cuda", 0)))

    @pytest.mark.parametrize("action", [
        lambda a, b: a + b, lambda a, b: a * b.t().contiguous().t(), lambda a, b: a @ b.t(),
        lambda a, b: genesis.cat([a, b]), lambda a, b: genesis.where(a > 0, a, b), lambda a, b: a.add_(b),
        lambda a, b: genesis.where(a > 0, b, b), lambda a, b: nn.functional.linear(a, b),
        lambda a, b: a.__setitem__(0, b[0]), lambda a, b: genesis.maximum(a, b)])
    def test_op(self, action, elsewhere):
        here = genesis.ones(2, 3)
        with pytest.raises(RuntimeError) as raised:
            action(here, elsewhere)
        text = str(raised.value)
        assert "cpu" in text and "cuda:0" in text and "device" in text, text
        assert f"at {line_of(action)}" in text or f"at {__file__}" in text

def test_dtype_errors_name_the_dtypes():
    with pytest.raises(RuntimeError) as raised:
        genesis.ones(2, 3) @ genesis.ones(3, 2).double()
    assert "float32" in str(raised.value) and "float64" in str(raised.value)


def test_the_hint_comes_last_and_the_problem_first():
    with pytest.raises(RuntimeError) as raised:
        genesis.ones(2, 3) + genesis.ones(4)
    lines = str(raised.value).split("\n")
    assert lines[0].startswith("add:") and lines[1].startswith("  operand 0:") and lines[-1].startswith("  try:")
    assert lines[-2].startswith("  at ")


@pytest.mark.parametrize("dim", [2, -3, (0, 2)])
def test_dimensions_that_are_not_there(dim) -> None:
    for library in (genesis, torch):
        with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\]"):
            library.ones(2, 3).sum(dim)


@pytest.mark.parametrize("dim", [(0, 0), (1, -1)])
def test_dimensions_that_are_there_twice(dim) -> None:
    for library in (genesis, torch):
        with pytest.raises(RuntimeError, match="dim"):
            library.ones(2, 3).sum(dim)
