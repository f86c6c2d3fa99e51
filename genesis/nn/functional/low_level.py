"""Functions that `torch` has under the names of `torch.nn.functional`, with other arguments, or in another order."""

from __future__ import annotations

from collections.abc import Sequence

from genesis.frontend.tensor import Tensor
from genesis.nn.functional import channel_norms, lookup, norms

__all__ = ["batch_norm", "embedding", "group_norm", "instance_norm", "layer_norm"]


def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
              sparse: bool = False) -> Tensor:
    """Rows of a (count, size) table: `nn.functional.embedding` with the table first.

    >>> import genesis
    >>> genesis.embedding(genesis.tensor([[1.0], [2.0]]), genesis.tensor([1, 0, 1])).tolist()
    [[2.0], [1.0], [2.0]]
    """
    padding = None if padding_idx == -1 else padding_idx
    return lookup.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
               running_var: Tensor | None, training: bool, momentum: float, eps: float,
               cudnn_enabled: bool = False) -> Tensor:
    """`nn.functional.batch_norm` with weight and bias before the running statistics.

    >>> import genesis
    >>> genesis.batch_norm(genesis.tensor([[1.0], [3.0]]), None, None, None, None, True, 0.1, 0.0, False).tolist()
    [[-1.0], [1.0]]
    """
    return channel_norms.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
                  running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
                  cudnn_enabled: bool = False) -> Tensor:
    """`nn.functional.instance_norm` with weight and bias before the running statistics.

    >>> import genesis
    >>> x = genesis.tensor([[[1.0, 3.0]]])
    >>> genesis.instance_norm(x, None, None, None, None, True, 0.1, 0.0, False).tolist()
    [[[-1.0, 1.0]]]
    """
    return channel_norms.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5, cudnn_enable: bool = True) -> Tensor:
    """`nn.functional.layer_norm`; `cudnn_enable` changes nothing.

    >>> import genesis
    >>> genesis.layer_norm(genesis.tensor([1.0, 3.0]), (2,), None, None, 0.0, True).tolist()
    [-1.0, 1.0]
    """
    return norms.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5, cudnn_enabled: bool = True) -> Tensor:
    """`nn.functional.group_norm`; `cudnn_enabled` changes nothing.

    >>> import genesis
    >>> genesis.group_norm(genesis.tensor([[[1.0, 3.0]]]), 1, None, None, 0.0, True).tolist()
    [[[-1.0, 1.0]]]
    """
    return channel_norms.group_norm(input, num_groups, weight, bias, eps)
