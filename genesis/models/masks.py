"""Which keys a query sees."""

from __future__ import annotations

from dataclasses import dataclass

import genesis
from genesis import Tensor


@dataclass(frozen=True)
class Mask:
    """What attention is told: the plain causal triangle, or a boolean mask that is true where a key is seen.

    Attributes:
        is_causal: query i sees keys 0..i, and `visible` is None.
        visible: (B or 1, 1, queries, keys), or None where all are seen.
        own: the keys are those of the queries' tokens, whatever else a cache has room for.
    """

    is_causal: bool
    visible: Tensor | None = None
    own: bool = False


def attention_mask(queries: Tensor, keys: Tensor, causal: bool, window: int | None = None,
                   present: Tensor | None = None, documents: Tensor | None = None, padding: Tensor | None = None,
                   whole: bool = False) -> Mask:
    """The mask of one layer.

    Every query sees itself at least, so that padding gives no NaN.

    Args:
        queries: (T,) or (B, T) places of the queries in the text, int64.
        keys: (S,) or (B, S) places of the keys.
        causal: keys behind the query are hidden.
        window: how many tokens a query looks back, itself included.
        present: (B, S) whether a key is a token of the text; zero or False for padding.
        padding: (B,) how many places of each row come before its text.
        documents: (B, S), with S = T, a number for each text that is packed into a row: they do not see each other.
        whole: the queries are the keys, in order: the plain triangle will do where nothing else hides anything.
    """
    narrow = window is not None and not (whole and window >= keys.shape[-1])
    if present is None and documents is None and padding is None and not narrow:
        if not causal:
            return Mask(False, own=whole)
        if whole:
            return Mask(True, own=True)
    q, k = queries.unsqueeze(-1), keys.unsqueeze(-2)                    # (.., T, 1), (.., 1, S)
    itself = q == k
    visible = (k <= q) if causal else genesis.ones_like(itself)
    if window is not None:
        visible = visible & (k > q - window)
        if not causal:
            visible = visible & (k < q + window)
    if visible.ndim == 2:
        visible, itself = visible.unsqueeze(0), itself.unsqueeze(0)     # (1, T, S)
    if padding is not None:
        visible = visible & (keys >= padding.unsqueeze(-1)).unsqueeze(1)
    if present is not None:
        visible = visible & present.to(genesis.bool).unsqueeze(1)
    if documents is not None:
        visible = visible & (documents.unsqueeze(2) == documents.unsqueeze(1))
    return Mask(False, (visible | itself).unsqueeze(1), whole)
