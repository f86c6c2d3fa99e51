"""What distributions over integers share: a parameter that is given as probabilities or as log-odds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import genesis
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution, broadcast_all
from genesis.frontend.tensor import Tensor


def clamped(probs: Tensor) -> Tensor:
    """Probabilities that have logarithms, and of which 1 minus them has."""
    eps = genesis.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


class Probabilities(Distribution):
    """What is given by probabilities or by their log-odds: one of them, the other follows."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _set(self, probs: Any, logits: Any, *more: Any) -> tuple[Any, ...]:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if logits is None:
            self.probs, *rest = broadcast_all(probs, *more)
            self._param = self.probs
        else:
            self.logits, *rest = broadcast_all(logits, *more)
            self._param = self.logits
        return tuple(rest)

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        if name == "probs" and "logits" in own:
            self.probs = self._to_probs(own["logits"])
            return self.probs
        if name == "logits" and "probs" in own:
            self.logits = self._to_logits(own["probs"])
            return self.logits
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

    @staticmethod
    def _to_probs(logits: Tensor) -> Tensor:
        return logits.sigmoid()

    @staticmethod
    def _to_logits(probs: Tensor) -> Tensor:
        probs = clamped(probs)
        return probs.log() - (-probs).log1p()

    def _parameters(self) -> tuple[str, ...]:
        return "probs", "logits"

    def _put(self, name: str, value: Tensor) -> None:
        setattr(self, name, value)
        self._param = value

    def _given(self) -> str:
        return "probs" if self._param is vars(self).get("probs") else "logits"

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        name = self._given()
        new = self._expanded(batch_shape, name)
        new._param = getattr(new, name)
        return new


def enumerated(values: Tensor, of: Distribution, expand: bool) -> Tensor:
    """The values, one after the other, of a batch of distributions: expanded to it, or with sizes of 1."""
    values = values.view((-1, *(1,) * len(of._batch_shape)))
    return values.expand((-1, *of._batch_shape)) if expand else values
