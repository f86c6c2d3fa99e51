"""Sparse matrices beside torch's: values, gradients, and a graph network that learns with torch's numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis

PLACES = [[0, 2, 1, 2, 0], [1, 0, 1, 2, 1]]
VALUES = [1.0, 2.0, 3.0, 4.0, 5.0]
LIBRARIES = pytest.mark.parametrize("T", [torch, genesis], ids=["torch", "genesis"])


def made(T: Any, grad: bool = False) -> tuple[Any, Any]:
    values = T.tensor(VALUES, requires_grad=grad)
    return values, T.sparse_coo_tensor(T.tensor(PLACES), values, (3, 3))


@LIBRARIES
def test_what_it_says_of_itself(T: Any) -> None:
    _, a = made(T)
    assert tuple(a.shape) == (3, 3) and a.size(0) == 3 and a.dim() == 2 and a.is_sparse and a._nnz() == 5
    assert a.dtype is T.float32 and not a.is_coalesced() and a.layout is T.sparse_coo
    assert a.to_dense().tolist() == [[0.0, 6.0, 0.0], [0.0, 3.0, 0.0], [2.0, 0.0, 4.0]]
    b = a.coalesce()
    assert b.indices().tolist() == [[0, 1, 2, 2], [1, 1, 0, 2]] and b.values().tolist() == [6.0, 3.0, 2.0, 4.0]
    assert a.t().to_dense().tolist() == [[0.0, 0.0, 2.0], [6.0, 3.0, 0.0], [0.0, 0.0, 4.0]]
    assert (a * 2).to_dense().sum().item() == 30.0 and (a + a).to_dense()[0, 1].item() == 12.0
    with pytest.raises(RuntimeError, match="uncoalesced"):
        a.indices()


@LIBRARIES
def test_a_dense_tensor_becomes_sparse_and_dense_again(T: Any) -> None:
    x = T.tensor([[0.0, 1.0], [2.0, 0.0]])
    assert x.to_sparse().indices().tolist() == [[0, 1], [1, 0]]
    assert x.to_sparse().to_dense().tolist() == x.tolist() == x.to_dense().tolist()


@pytest.mark.parametrize("product", [lambda T, a, x: T.sparse.mm(a, x), lambda T, a, x: T.spmm(a, x),
                                     lambda T, a, x: a @ x, lambda T, a, x: T.sparse.addmm(x, a, x),
                                     lambda T, a, x: T.mm(a, x), lambda T, a, x: T.matmul(a, x),
                                     lambda T, a, x: a.mm(x), lambda T, a, x: (x.t() @ a.t()).t(),
                                     lambda T, a, x: T.mv(a, x[:, 0]).unsqueeze(1)])
def test_products_and_their_gradients(product: Any) -> None:
    found = []
    for T in (torch, genesis):
        values, a = made(T, grad=True)
        x = T.arange(6.0).reshape(3, 2).requires_grad_()
        y = product(T, a, x)
        (y * T.arange(6.0).reshape(3, 2)).sum().backward()
        found.append([y.tolist(), values.grad.tolist(), x.grad.tolist()])
    assert found[0] == found[1]


@LIBRARIES
def test_sums(T: Any) -> None:
    _, a = made(T)
    assert T.sparse.sum(a).item() == 15.0
    assert T.sparse.sum(a, 1).to_dense().tolist() == [6.0, 3.0, 6.0]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_goes_over_listed_places(dim: int, name: str) -> None:
    theirs, ours = (getattr(T.sparse, name)(made(T)[1].coalesce(), dim).coalesce().values().tolist()
                    for T in (torch, genesis))
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_refusals() -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        genesis.sparse.mm(made(genesis)[1], genesis.ones(4, 2))
    with pytest.raises(RuntimeError, match="number of dimensions must be"):
        genesis.sparse_coo_tensor([[0], [1]], [1.0], (2,))
    with pytest.raises(RuntimeError, match="outside of size"):
        genesis.sparse_coo_tensor([[5]], [1.0], (2,), check_invariants=True)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_graph_network_learns_with_torchs_numbers(compiled: bool) -> None:
    """Two layers of Kipf and Welling's on a ring of six nodes: ten steps, float64."""
    losses = []
    for T in (torch, genesis):
        ring = [[i for i in range(6) for _ in range(3)], [(i + d) % 6 for i in range(6) for d in (-1, 0, 1)]]
        adjacency = T.sparse.FloatTensor(T.tensor(ring), T.ones(18) / 3, T.Size([6, 6])).double()
        x, labels = T.eye(6, dtype=T.float64), T.tensor([0, 0, 1, 1, 2, 2])
        first = T.nn.Parameter(T.arange(48.0, dtype=T.float64).reshape(6, 8).cos())
        second = T.nn.Parameter(T.arange(24.0, dtype=T.float64).reshape(8, 3).sin())
        optimizer = T.optim.Adam([first, second], lr=0.05)

        def step(T: Any = T, adjacency: Any = adjacency, x: Any = x, labels: Any = labels, first: Any = first,
                 second: Any = second, optimizer: Any = optimizer) -> Any:
            hidden = T.relu(T.spmm(adjacency, x @ first))
            loss = T.nn.functional.cross_entropy(T.spmm(adjacency, hidden @ second), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()
        run = genesis.compile(step) if compiled and T is genesis else step
        losses.append([run().item() for _ in range(10)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    assert losses[0][-1] < losses[0][0]
