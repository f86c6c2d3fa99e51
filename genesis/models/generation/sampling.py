"""Which token comes next: drawn from the model's probabilities, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import genesis
import genesis.nn.functional as F
from genesis import Tensor


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. Filters apply in this order, as in transformers.

    Attributes:
        repetition_penalty: logits of tokens that occurred are divided by it where positive, multiplied where negative
            (Keskar et al. 2019).
        temperature: logits are divided by it; 0 takes the likeliest token.
        top_k: the k likeliest tokens remain; None for all.
        top_p: the fewest likeliest tokens remain that have this probability together (Holtzman et al. 2020).
        min_p: tokens remain that have this fraction of the likeliest one's probability (Nguyen et al. 2024).
        min_tokens_to_keep: how many of the likeliest tokens `min_p` leaves, however unlikely they are.

    Raises:
        ValueError: a number is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens_to_keep: int = 1

    def __post_init__(self) -> None:
        for name, good, where in (
                ("temperature", self.temperature >= 0, "0 or more"),
                ("top_k", self.top_k is None or self.top_k >= 0, "0 or more, or None"),
                ("top_p", 0 < self.top_p <= 1, "more than 0, and 1 at most"),
                ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
                ("min_tokens_to_keep", self.min_tokens_to_keep >= 1, "1 or more"),
                ("repetition_penalty", self.repetition_penalty > 0, "more than 0")):
            if not good:
                raise ValueError(f"{name}={getattr(self, name)} is out of range: it is {where}")

    @property
    def greedy(self) -> bool:
        """Is the likeliest token taken, always?"""
        return self.temperature == 0 or self.top_k == 1

    def scores(self, logits: Tensor, seen: Tensor | None = None) -> Tensor:
        """The logits of what remains, -inf elsewhere.

        Args:
            logits: (B, V), floating point.
            seen: (B, V) bool, tokens that occurred; for the penalty.

        Returns:
            (B, V), float32.

        >>> Sampling(top_k=2).scores(genesis.tensor([[1.0, 3.0, 2.0]]))
        tensor([[-inf, 3., 2.]])
        """
        scores = logits.float()
        if self.repetition_penalty != 1 and seen is not None:
            punished = genesis.where(scores > 0, scores / self.repetition_penalty, scores * self.repetition_penalty)
            scores = genesis.where(seen, punished, scores)
        if self.greedy:
            return scores
        scores = scores / self.temperature
        if self.top_k and self.top_k < scores.shape[-1]:
            least = scores.topk(self.top_k, dim=-1)[0][:, -1:]
            scores = scores.masked_fill(scores < least, float("-inf"))
        if self.top_p < 1:
            scores = self._nucleus(scores)
        if self.min_p > 0:
            probabilities = F.softmax(scores, dim=-1)
            unlikely = probabilities < self.min_p * probabilities.amax(-1, keepdim=True)
            if (kept := min(self.min_tokens_to_keep, scores.shape[-1])) > 1:
                unlikely = unlikely & (scores < scores.topk(kept, dim=-1)[0][:, -1:])
            scores = scores.masked_fill(unlikely, float("-inf"))
        return scores

    def _nucleus(self, scores: Tensor) -> Tensor:
        """Tokens go, from the unlikeliest on, while those that went have at most 1 - top_p together."""
        ordered, places = scores.sort(dim=-1, descending=False)
        gone = F.softmax(ordered, dim=-1).cumsum(-1) <= 1 - self.top_p
        keeps = genesis.zeros_like(gone).scatter(-1, places, ~gone)
        last = places[:, -1:]
        keeps = keeps.scatter(-1, last, genesis.ones_like(last).to(genesis.bool))
        return scores.masked_fill(~keeps, float("-inf"))

    def choose(self, logits: Tensor, seen: Tensor | None = None, generator: Any = None) -> tuple[Tensor, Tensor]:
        """Tokens, and the scores that they were drawn by.

        Args:
            logits: (B, V).
            seen: (B, V) bool, tokens that occurred.
            generator: of the draws; the device's own by default.

        Returns:
            (B,) int64, and (B, V) float32, of which `log_softmax` gives the logarithms of the probabilities.
        """
        scores = self.scores(logits, seen)
        if self.greedy:
            return scores.argmax(-1), scores
        return genesis.multinomial(F.softmax(scores, dim=-1), 1, generator=generator).squeeze(-1).clone(), scores
