"""Losses that `torch` has under the names of `nn.functional`, whose reduction is a number: 0 none, 1 mean, 2 sum.

Who names no reduction gets none, as in torch, where the functions of `nn.functional` take the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from genesis.frontend.tensor import Tensor
from genesis.nn.functional import ctc, distances, losses

__all__ = ["binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss", "hinge_embedding_loss", "kl_div",
           "margin_ranking_loss", "poisson_nll_loss", "triplet_margin_loss"]

_WORDS: Final[dict[int | str, str]] = {0: "none", 1: "mean", 2: "sum"}


def _word(reduction: int | str) -> str:
    return _WORDS.get(reduction, str(reduction))


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                     pos_weight: Tensor | None = None, reduction: int | str = 0) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits` with the weights before the reduction.

    >>> import genesis
    >>> x = genesis.zeros(2)
    >>> [round(loss, 3) for loss in genesis.binary_cross_entropy_with_logits(x, x, None, None, 0).tolist()]
    [0.693, 0.693]
    """
    return losses.binary_cross_entropy_with_logits(input, target, weight, reduction=_word(reduction),
                                                   pos_weight=pos_weight)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                          reduction: int | str = 0) -> Tensor:
    """`nn.functional.cosine_embedding_loss`.

    >>> import genesis
    >>> x = genesis.eye(2)
    >>> genesis.cosine_embedding_loss(x, x, genesis.ones(2), 0.0, 2).item()
    0.0
    """
    return distances.cosine_embedding_loss(input1, input2, target, margin, reduction=_word(reduction))


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int],
             target_lengths: Tensor | Sequence[int], blank: int = 0, reduction: int | str = 0,
             zero_infinity: bool = False) -> Tensor:
    """`nn.functional.ctc_loss`.

    >>> import genesis
    >>> genesis.ctc_loss(genesis.zeros(2, 1, 3), genesis.tensor([[1]]), [2], [1], 0, 2).shape
    genesis.Size([])
    """
    return ctc.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _word(reduction), zero_infinity)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int | str = 0) -> Tensor:
    """`nn.functional.hinge_embedding_loss`.

    >>> import genesis
    >>> genesis.hinge_embedding_loss(genesis.tensor([1.0, 2.0]), genesis.ones(2), 1.0, 2).item()
    3.0
    """
    return losses.hinge_embedding_loss(input, target, margin, reduction=_word(reduction))


def kl_div(input: Tensor, target: Tensor, reduction: int | str = 0, *, log_target: bool = False) -> Tensor:
    """`nn.functional.kl_div`.

    >>> import genesis
    >>> genesis.kl_div(genesis.zeros(2), genesis.ones(2), 2).item()
    0.0
    """
    return losses.kl_div(input, target, reduction=_word(reduction), log_target=log_target)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                        reduction: int | str = 0) -> Tensor:
    """`nn.functional.margin_ranking_loss`.

    >>> import genesis
    >>> genesis.margin_ranking_loss(genesis.zeros(2), genesis.ones(2), genesis.ones(2), 0.0, 2).item()
    2.0
    """
    return losses.margin_ranking_loss(input1, input2, target, margin, reduction=_word(reduction))


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float,
                     reduction: int | str) -> Tensor:
    """`nn.functional.poisson_nll_loss`.

    >>> import genesis
    >>> genesis.poisson_nll_loss(genesis.zeros(2), genesis.ones(2), True, False, 1e-8, 2).item()
    2.0
    """
    return losses.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_word(reduction))


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, reduction: int | str = 0) -> Tensor:
    """`nn.functional.triplet_margin_loss`.

    >>> import genesis
    >>> x = genesis.zeros(1, 2)
    >>> genesis.triplet_margin_loss(x, x, x, 1.0, 2, 1e-6, False, 2).item()
    1.0
    """
    return distances.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_word(reduction))
