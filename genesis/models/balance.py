"""The term of a loss that keeps experts equally busy (Fedus et al. 2021, "Switch Transformers", equations 4 to 6).

A router that sends all tokens to few experts teaches these alone. The term is least where each expert gets as many
tokens as the others: how many it gets, which has no gradient, times how likely the router finds it, which has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import genesis
import genesis.nn.functional as F
from genesis import Tensor, nn
from genesis.models.parts import MixtureOfExperts


@contextmanager
def routers_heard(model: nn.Module) -> Iterator[list[Tensor]]:
    """What the routers of a model compute inside: (tokens, experts) logits of each layer that has experts."""
    heard: list[Tensor] = []
    hooks = [module.gate.register_forward_hook(lambda gate, given, logits: heard.append(logits))
             for module in model.modules() if isinstance(module, MixtureOfExperts)]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


def balance_loss(logits: Sequence[Tensor], chosen: int, present: Tensor | None = None) -> Tensor:
    """The term, over all layers together; `chosen` where all experts are equally busy.

    Args:
        logits: (tokens, experts) of each layer.
        chosen: how many experts a token goes through.
        present: (B, T) whether each of the tokens counts; zero for padding.

    >>> balance_loss([genesis.zeros(6, 4)], chosen=2).item()
    2.0
    """
    layers = [F.softmax(layer, dim=-1, dtype=genesis.float32) for layer in logits]
    experts = layers[0].shape[-1]
    weights = genesis.ones(layers[0].shape[0], 1, device=layers[0].device) if present is None else (
        present.reshape(-1, 1).to(genesis.float32))
    tokens = weights.sum() * len(layers)
    # Layer by layer: together they would be a copy of all.
    busy = [(F.one_hot(p.topk(chosen, dim=-1)[1], experts).sum(1) * weights).sum(0) for p in layers]
    likely = [(p * weights).sum(0) for p in layers]
    return (genesis.stack(busy).sum(0) / tokens * (genesis.stack(likely).sum(0) / tokens)).sum() * experts
