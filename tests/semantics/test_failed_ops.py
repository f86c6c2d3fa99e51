"""What a library finds wrong with the values of an op is told with the op, its operands and the user's line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import genesis
from genesis.nn import functional as F

Z, ONE = (2, 2), (1,)
CASES: list[tuple[str, Callable[[], Any], str]] = [
    ("inv", lambda: genesis.linalg.inv(genesis.zeros(Z)), "linalg.inv: "),
    ("cholesky", lambda: genesis.linalg.cholesky(-genesis.eye(2)), "linalg.cholesky: "),
    ("solve", lambda: genesis.linalg.solve(genesis.zeros(Z), genesis.ones(2)), "linalg.solve: "),
    ("svd", lambda: genesis.linalg.svd(genesis.full(Z, float("nan")))[1], "linalg.svd: "),
    ("//", lambda: genesis.tensor([3]) // genesis.tensor([0]), "floor_divide: an integer is divided by 0"),
    ("%", lambda: genesis.tensor([3], dtype=genesis.int32) % 0, "remainder: an integer is divided by 0"),
    ("fmod", lambda: genesis.fmod(genesis.tensor(3), 0), "fmod: an integer is divided by 0"),
    ("div", lambda: genesis.div(genesis.tensor([3]), genesis.tensor([0]), rounding_mode="trunc"), "trunc_divide: "),
    ("bce", lambda: F.binary_cross_entropy(genesis.tensor([2.0]), genesis.ones(1)), "binary_cross_entropy: all"),
    ("multinomial", lambda: genesis.multinomial(genesis.tensor([float("nan"), 2.0]), 1), "multinomial: probability"),
    ("no weights", lambda: genesis.multinomial(genesis.zeros(2, 3), 1), "multinomial: invalid multinomial"),
    ("-1 weight", lambda: genesis.multinomial(genesis.tensor([3.0, -1]), 1, True), "multinomial: probability tensor c"),
    ("bernoulli", lambda: genesis.bernoulli(genesis.tensor([0.5, 1.5])), "bernoulli: probabilities have to be in [0"),
    ("bernoulli_", lambda: genesis.zeros(2).bernoulli_(genesis.tensor(float("nan"))), "bernoulli: probabilities have"),
    ("normal", lambda: genesis.normal(0.0, genesis.tensor([1.0, -1.0])), "normal: normal expects all elements of std"),
    ("var", lambda: F.gaussian_nll_loss(genesis.ones(2), genesis.ones(2), genesis.tensor([1.0, -1.0])),
     "gaussian_nll_loss: var has negative entry/entries"),
    ("full", lambda: genesis.full(ONE, 300, dtype=genesis.uint8), "fill: value cannot be converted"),
]


@pytest.mark.parametrize(("name", "call", "problem"), CASES, ids=[name for name, _, _ in CASES])
@pytest.mark.parametrize("read", [lambda y: y.tolist(), lambda y: (y * 2 + 1).sum().item()], ids=["alone", "more"])
def test_four_parts(name: str, call: Callable, problem: str, read: Callable) -> None:
    y = call()
    with pytest.raises(RuntimeError, match=f"^{re.escape(problem)}") as caught:
        read(y)
    message = str(caught.value)
    assert re.search(rf"  at {re.escape(__file__)}:\d+: \(?", message) and "\n  try: " in message
    if name != "full":  # its one operand is a number of the plan
        assert re.search(r"  operand 0: genesis\.\w+ of shape \(.*\) on cpu\n", message)


def test_a_gradient_flows_through_what_was_looked_at() -> None:
    var = genesis.tensor([0.5, 2.0], requires_grad=True)
    F.gaussian_nll_loss(genesis.ones(2), genesis.zeros(2), var, reduction="sum").backward()
    assert var.grad.tolist() == [0.5 * (1 / v - 1 / v**2) for v in (0.5, 2.0)]  # by hand, exact for powers of 2


def test_the_class_of_the_error_is_the_librarys() -> None:
    import torch
    with pytest.raises(torch.linalg.LinAlgError):
        genesis.linalg.inv(genesis.zeros(2, 2)).tolist()


def test_the_line_is_that_of_the_program_that_failed() -> None:
    """A plan is shared by equal programs of other lines, and may have the op several times."""
    good, bad = genesis.eye(2), genesis.zeros(2, 2)
    assert (genesis.linalg.inv(good) + genesis.linalg.inv(good)).sum().item() == 4.0
    first = genesis.linalg.inv(good)
    y = first + genesis.linalg.inv(bad)
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match=rf"test_failed_ops\.py:{line}: y = "):
        y.tolist()
    assert first.tolist() == [[1.0, 0.0], [0.0, 1.0]]  # what does not need that op is not lost


@pytest.mark.parametrize(("call", "good", "bad", "said"), [
    (lambda x, i: x[i] * 2, 1, 7, "indexing: index 7 is out of bounds for dimension 0 with size 3\n  index: "),
    (lambda x, i: F.embedding(i, x) * 2, 1, 7, "embedding: index 7 is out of bounds for dimension 0 with size 3\n"),
    (lambda x, i: x.gather(0, i[:, None]), 1, -1, "gather: index -1 is out of bounds for dimension 0 with size 3"),
    (lambda x, i: F.nll_loss(x[:1], i), 1, 4, "nll_loss: class 4 is out of bounds for dimension 1 with size 4\n  tar"),
    (lambda x, i: F.cross_entropy(x[:1], i) * 2, 1, 4, "class 4 is out of bounds for dimension 1 with size 4"),
    (lambda x, i: (7 // i) + x.sum(), 1, 0, "floor_divide: an integer is divided by 0"),
])
def test_a_replay(call: Callable, good: int, bad: int, said: str) -> None:
    """It has no nodes of its own: the plan knows the op, the call its operands."""
    compiled = genesis.compile(call)
    x = genesis.arange(12.0).reshape(3, 4)
    for _ in range(3):
        compiled(x, genesis.tensor([good])).tolist()
    with pytest.raises(RuntimeError, match=re.escape(said)) as caught:
        compiled(x, genesis.tensor([bad])).tolist()
    assert "genesis.int64 of shape (1" in str(caught.value)
    assert "test_failed_ops.py" in str(caught.value) and "\n  try: " in str(caught.value)


def test_what_a_function_of_the_users_raises_stays_what_it_is() -> None:
    class Refused(RuntimeError):
        """An error of the user's own."""

    class Own(genesis.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            raise Refused("no")
    with pytest.raises(Refused, match=r"^no$"):
        Own.apply(genesis.ones(2))
