"""An index, class or id that is outside names the op, the operand, the value and the line that recorded it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import genesis
from genesis.nn import functional as F

ROWS = [0, 5]


def table() -> Any:
    x = genesis.arange(12.0).reshape(3, 4)
    genesis.eval(x)
    return x


def write_rows(x: Any, ids: Any) -> Any:
    x = x.clone()
    x[ids] = 1.0
    return x


CASES: list[tuple[str, Callable, str]] = [
    ("gather", lambda x, i: x.gather(0, i[:, None]), "gather: index 5 is out of bounds for dimension 0 with size 3"),
    ("index_select", lambda x, i: x.index_select(0, i), "index_select: index 5 is out of bounds for dimension 0"),
    ("take", lambda x, i: x.take(i + 10), "take: index 15 is out of bounds for dimension 0 with size 12"),
    ("take_along_dim", lambda x, i: x.take_along_dim(i[:, None], 0), "take_along_dim: index 5 is out of"),
    ("x[i]", lambda x, i: x[i], "indexing: index 5 is out of bounds for dimension 0 with size 3"),
    ("x[:, i]", lambda x, i: x[:, i], "indexing: index 5 is out of bounds for dimension 1 with size 4"),
    ("x[i, j]", lambda x, i: x[genesis.tensor([0, 1]), i], "index 5 is out of bounds for dimension 1 with size 4"),
    ("x[-i]", lambda x, i: x[-i], "indexing: index -5 is out of bounds for dimension 0 with size 3"),
    ("x[i] = 1", write_rows, "indexing: index 5 is out of bounds for dimension 0 with size 3"),
    ("embedding", lambda x, i: F.embedding(i, x), "embedding: index 5 is out of bounds for dimension 0 with size 3"),
    ("embedding_bag", lambda x, i: F.embedding_bag(i[None], x), "embedding_bag: index 5 is out of bounds"),
    ("nll_loss", lambda x, i: F.nll_loss(x[:2], i), "nll_loss: class 5 is out of bounds for dimension 1 with size 4"),
    ("cross_entropy", lambda x, i: F.cross_entropy(x[:2], i), "class 5 is out of bounds for dimension 1 with size 4"),
    ("cross_entropy, -3", lambda x, i: F.cross_entropy(x[:2], i - 3), "class -3 is out of bounds for dimension 1"),
    ("smoothed", lambda x, i: F.cross_entropy(x[:2], i, label_smoothing=0.1), "class 5 is out of bounds"),
    ("multi_margin_loss", lambda x, i: F.multi_margin_loss(x[:2], i), "index 5 is out of bounds for dimension 1"),
    ("one_hot", lambda x, i: F.one_hot(i, 4), "one_hot: index 5 is out of bounds for dimension 1 with size 4"),
    ("one_hot, -1", lambda x, i: F.one_hot(i - 1), "index -1 is out of bounds for dimension 1 with size 5"),
    ("scatter", lambda x, i: x.scatter(0, i[:, None], 1.0), "scatter: index 5 is out of bounds for dimension 0"),
    ("scatter_add", lambda x, i: x.scatter_add(0, i[:, None], x), "scatter_add: index 5 is out of bounds"),
    ("scatter_reduce", lambda x, i: x.scatter_reduce(0, i[:, None], x, "amax"), "index 5 is out of bounds"),
    ("index_add", lambda x, i: x.index_add(0, i, x[:2]), "index_add: index 5 is out of bounds for dimension 0"),
    ("index_copy", lambda x, i: x.index_copy(0, i, x[:2]), "index_copy: index 5 is out of bounds"),
    ("index_fill", lambda x, i: x.index_fill(0, i, 1.0), "index_fill: index 5 is out of bounds"),
    ("index_put", lambda x, i: x.index_put((i,), x[:2]), "index_put: index 5 is out of bounds"),
    ("accumulate", lambda x, i: x.index_put((i,), x[:2], accumulate=True), "index 5 is out of bounds"),
    ("index_reduce", lambda x, i: x.clone().index_reduce_(0, i, x[:2], "prod"), "index 5 is out of bounds"),
    ("put", lambda x, i: x.put(i + 10, x[0, :2]), "put: index 15 is out of bounds"),
    ("max_unpool1d", lambda x, i: F.max_unpool1d(genesis.ones(1, 1, 2), i[None, None], 2), "index 5 is out of bounds"),
]


@pytest.mark.parametrize(("name", "call", "problem"), CASES, ids=[name for name, _, _ in CASES])
@pytest.mark.parametrize("wants_grad", [False, True])
def test_four_parts(name: str, call: Callable, problem: str, wants_grad: bool) -> None:
    ids = genesis.tensor(ROWS)
    y = call(table().requires_grad_(wants_grad), ids)
    with pytest.raises(IndexError, match=re.escape(problem)) as caught:
        y.tolist()
    message = str(caught.value)
    assert re.search(r"  (index|target): genesis.int64 of shape \(.*\) on cpu\n", message)
    assert re.search(rf"  at {re.escape(__file__)}:\d+: ", message) and "\n  try: " in message
    assert isinstance(caught.value, RuntimeError)  # torch raises the one or the other, by the op


def test_a_module_is_called_by_its_op() -> None:
    table = genesis.nn.Embedding(3, 2)
    y = table(genesis.tensor(ROWS))
    with pytest.raises(IndexError, match="embedding: index 5 is out of bounds for dimension 0 with size 3"):
        y.tolist()


@pytest.mark.parametrize("options", [{}, {"mode": "sum"}, {"mode": "max"}, {"max_norm": 1.0}])
def test_a_bag_behind_a_module_is_called_by_its_function(options: dict[str, Any]) -> None:
    table, other = (genesis.nn.EmbeddingBag(3, 2, **options) for _ in range(2))  # a write that fails spoils a table
    with pytest.raises(IndexError, match=r"^embedding_bag: index 5 is out of bounds for dimension 0 with size 3\n"):
        table(genesis.tensor([ROWS])).tolist()
    with pytest.raises(IndexError, match=r"^embedding_bag: index 7 is out of bounds for dimension 0 with size 3\n"):
        other(genesis.tensor([0, 2]), genesis.tensor([0, 7])).tolist()


@pytest.mark.parametrize(("layer", "name", "rows"), [("Embedding", "embedding", 17),
                                                     ("EmbeddingBag", "embedding_bag", 19)])
def test_in_a_compiled_call_it_is_called_so_too(layer: str, name: str, rows: int) -> None:
    """Of a shape that no other test has: equal ops of two programs are one, with the line of the first."""
    table = getattr(genesis.nn, layer)(rows, 2)
    run = genesis.compile(lambda ids: table(ids) * 3)
    for _ in range(3):
        run(genesis.tensor([[0, 5]])).tolist()
    with pytest.raises(IndexError, match=f"^{name}: index {rows} is out of bounds"):
        run(genesis.tensor([[0, rows]])).tolist()


def test_the_line_is_that_of_the_program_that_failed() -> None:
    """A plan is shared by equal programs of other lines."""
    x, line = table(), 0
    assert x[genesis.tensor([0, 1])].sum().item() == 28.0
    for _ in range(2):
        y = x[genesis.tensor([0, 9])].sum()
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
        with pytest.raises(IndexError, match=rf"index 9 (.|\n)*test_index_errors.py:{line}: "):
            y.item()


def test_only_what_depends_on_it_is_lost() -> None:
    x = genesis.arange(6.0) * 2
    other, wrong = x + 1, x[genesis.tensor([7])]
    with pytest.raises(IndexError, match="index 7"):
        wrong.item()
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0] and other[1].item() == 3.0
    with pytest.raises(IndexError, match="index 7"):
        wrong.item()


def test_an_index_that_is_computed() -> None:
    y = table()[(genesis.arange(3.0).exp() * 2).long()]
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3"):
        genesis.eval(y)


def test_a_training_step() -> None:
    embedding = genesis.nn.Embedding(4, 2)
    optimizer = genesis.optim.SGD(embedding.parameters(), lr=0.1)
    before = embedding.weight.tolist()
    loss = embedding(genesis.tensor([1, 4])).sum()
    with pytest.raises(IndexError, match=r"index 4 is out of bounds for dimension 0 with size 4"):
        loss.backward(), optimizer.step(), loss.item()
    assert embedding.weight.tolist() == before


def test_a_replay_of_a_compiled_call() -> None:
    """Of a shape that no other test has: equal ops of two programs are one, with the line of the first."""
    @genesis.compile
    def rows(x: Any, ids: Any) -> Any:
        return x[ids] * 2
    x = genesis.arange(10.0).reshape(5, 2)
    for _ in range(3):
        rows(x, genesis.tensor([0, 1])).tolist()
    with pytest.raises(IndexError, match=r"indexing: index 7(.|\n)*test_index_errors\.py:\d+: return x\[ids\] \* 2\n"):
        rows(x, genesis.tensor([0, 7])).tolist()
    assert rows(x, genesis.tensor([1])).tolist() == [[4.0, 6.0]]
