"""`genesis.sparse`: matrices by the places and values of their elements, enough for graph networks.

In: places, values and dense tensors. Out: sparse matrices, and dense tensors where one was multiplied.

`sparse_coo_tensor` makes one; `mm` multiplies it with a dense matrix, with gradients by both. It is written with dense
tensors: a product gathers rows, multiplies them with values, and adds them up where they belong.

>>> import genesis
>>> edges = genesis.tensor([[0, 0, 1], [0, 1, 1]])
>>> adjacency = genesis.sparse_coo_tensor(edges, genesis.tensor([1.0, 2.0, 3.0]), (2, 2))
>>> genesis.sparse.mm(adjacency, genesis.tensor([[1.0], [10.0]]))
tensor([[21.],
        [30.]])
"""

from genesis.ir.suggest import suggesting
from genesis.sparse.functions import FloatTensor, addmm, log_softmax, mm, softmax, spdiags, sum
from genesis.sparse.tensor import SparseTensor, sparse_coo_tensor

__all__ = ["FloatTensor", "SparseTensor", "addmm", "log_softmax", "mm", "softmax", "sparse_coo_tensor", "spdiags",
           "sum"]

__getattr__ = suggesting(__name__)
