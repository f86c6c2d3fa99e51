"""Calling a function and its compiled form side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import genesis


def ramp(*shape: int, start: float = 1.0) -> Any:
    """start, start + 1, ... in this shape."""
    return genesis.tensor(np.arange(start, start + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape))


def values(result: Any) -> Any:
    """A result as plain Python values, with the dtypes and shapes of its tensors."""
    if isinstance(result, genesis.Tensor):
        return (tuple(result.shape), str(result.dtype), str(result.device), result.requires_grad, result.tolist())
    if isinstance(result, (list, tuple)):
        return (type(result).__name__, [values(x) for x in result])
    if isinstance(result, dict):
        return {k: values(x) for k, x in result.items()}
    return result


def counts(function: Any) -> tuple[int, int]:
    """How many captures of a compiled function there are, and how many replays there were."""
    explained = genesis.explain(function)
    return explained.captures, explained.hits


class Pair:
    """A function and its compiled form. `same(...)` calls both with the same arguments and compares."""

    def __init__(self, function: Callable[..., Any]):
        self.plain, self.compiled = function, genesis.compile(function)

    def same(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function, then the other; returns the values."""
        ours = values(self.compiled(*args, **kwargs))
        assert ours == values(self.plain(*args, **kwargs))
        return ours

    def replays(self, *args: Any, **kwargs: Any) -> bool:
        """Call both and compare; True if the compiled one was replayed."""
        before = self.compiled.hits
        self.same(*args, **kwargs)
        return bool(self.compiled.hits > before)

    def settle(self, *args: Any, **kwargs: Any) -> None:
        """Call until it is replayed, which must be soon."""
        assert any(self.replays(*args, **kwargs) for _ in range(4)), genesis.explain(self.compiled)

    @property
    def refused(self) -> str:
        """Why calls are recorded each time, '' if they are not."""
        lines = genesis.explain(self.compiled).splitlines()[1:]
        return "\n".join(line.strip() for line in lines)
