"""Connectionist temporal classification (Graves et al. 2006): sequences without an alignment."""

from __future__ import annotations

from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import float32, int64
from genesis.nn.functional.losses import check_reduction, reduced
from genesis.ops.common import required
from genesis.ops.comparison import where
from genesis.ops.creation import as_tensor
from genesis.ops.exponential import logaddexp
from genesis.ops.parts import cat
from genesis.ops.ranges import arange
from genesis.ops.reduction import logsumexp

__all__ = ["ctc_loss"]

NEVER = -1e30
"""The logarithm that stands for probability 0: gradients through -inf would be NaN."""


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """-log of the probability of the targets, over all alignments with the inputs.

    The recursion over time is recorded step by step, so the program grows with the longest input.

    Args:
        log_probs: (time, batch, classes) or (time, classes), logarithms of probabilities that add up to 1.
        targets: (batch, longest target) of class numbers, or all targets one after another.
        input_lengths, target_lengths: one integer for each of the batch.
        blank: the class that stands for no output.
        reduction: "none", "sum", or "mean" of the losses over their targets' lengths.
        zero_infinity: count targets that are too long for their inputs as 0, instead of inf.

    Raises:
        RuntimeError: shapes do not fit, the blank is no class, or, on the CPU, a length is negative or an input has
            more steps than there are.

    >>> import genesis
    >>> quarter = genesis.full((2, 1, 4), 0.25).log()
    >>> round(ctc_loss(quarter, genesis.tensor([[1]]), [2], [1]).exp().item(), 2)  # 16 paths, of which 3 are right
    5.33
    """
    op = "ctc_loss"
    check_reduction(op, reduction)
    named = [("log_probs", log_probs), ("targets", targets)]
    if log_probs.spec.dtype.kind != "float" or targets.spec.dtype.kind != "int":
        raise failure(op, "log_probs must be floating-point and targets integers", named)
    alone = log_probs.spec.ndim == 2
    x = log_probs.unsqueeze(1) if alone else log_probs
    if x.spec.ndim != 3 or not x.spec.numel:
        raise failure(op, "log_probs tensor must not be empty and have 2 or 3 dimensions", named)
    steps, batch, classes = x.spec.shape
    if not 0 <= blank < classes:
        raise failure(op, "blank must be in label range", named)
    device = x.spec.device
    inputs, labels = (as_tensor(n, device=device).reshape(-1).to(int64) for n in (input_lengths, target_lengths))
    if inputs.spec.shape != (batch,) or labels.spec.shape != (batch,):
        raise failure(op, "input_lengths and target_lengths must be of size batch_size", named)
    inputs = required(op, inputs, (inputs >= 0) & (inputs <= steps),
                      f"expected input_lengths to have values of 0 to {steps}, as many steps as log_probs has")
    labels = required(op, labels, labels >= 0, "expected target_lengths to have values of at least 0")
    if targets.spec.ndim not in (1, 2) or (targets.spec.ndim == 2 and targets.spec.shape[0] != batch):
        raise failure(op, f"targets must be of shape (batch_size, longest) or one after the other, and batch_size is "
                      f"{batch}", named)
    upcast = x.to(float32) if x.spec.dtype.itemsize < 4 else x
    scale = logsumexp(upcast, -1, True)
    upcast = upcast - (scale - scale.detach())  # torch's gradient is that of probabilities that keep adding up to 1
    ids = _rows(targets.to(device).to(int64), labels, batch)
    loss = _nll(upcast, ids, inputs, labels, blank)
    impossible = loss > -NEVER / 2
    loss = where(impossible, loss.new_full((), 0.0 if zero_infinity else float("inf")), loss).to(x.spec.dtype)
    if reduction == "mean":
        return (loss / labels.clamp(min=1).to(loss.spec.dtype)).mean()
    return reduced(loss[0] if alone and reduction == "none" else loss, reduction)


def _rows(targets: Tensor, lengths: Tensor, batch: int) -> Tensor:
    """The targets as (batch, longest); what is beyond a target's end is any class."""
    if targets.spec.ndim == 2:
        return targets
    if batch == 1:
        return targets.reshape(1, -1)
    longest = int(lengths.max().item())
    places = (lengths.cumsum(0) - lengths).unsqueeze(1) + arange(longest, device=targets.spec.device)
    return targets[places.clamp(max=max(targets.spec.numel - 1, 0))] if longest else targets.new_zeros((batch, 0))


def _nll(x: Tensor, ids: Tensor, inputs: Tensor, labels: Tensor, blank: int) -> Tensor:
    """The losses by the forward variables of Graves' section 4.1: at state 2i + 1 target i was the last output."""
    steps, batch, _ = x.spec.shape
    states = 2 * ids.spec.shape[1] + 1
    extended = ids.new_full((batch, states), blank)
    extended[:, 1::2] = ids
    emitted = x.gather(2, extended.unsqueeze(0).expand(steps, batch, states))
    never = x.new_full((batch, 2), NEVER)
    skips = extended.new_zeros((batch, states)).bool()
    skips[:, 3::2] = ids[:, 1:] != ids[:, :-1]
    state = arange(states, device=x.spec.device)
    alpha = where(state < 2, emitted[0], x.new_full((), NEVER))
    for t in range(1, steps):
        one, two = (cat([never[:, :n], alpha], 1)[:, :states] for n in (1, 2))
        total = logaddexp(logaddexp(alpha, one), where(skips, two, x.new_full((), NEVER)))
        alpha = where((t < inputs).unsqueeze(1), total + emitted[t], alpha)
    last = (2 * labels).unsqueeze(1)
    ends = alpha.gather(1, last)
    before = where(last > 0, alpha.gather(1, (last - 1).clamp(min=0)), x.new_full((), NEVER))
    return -logaddexp(ends, before).squeeze(1)
