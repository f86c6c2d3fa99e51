"""Optimizers as people write them by torch's protocol, for the library that is given."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any


def adam(L: Any) -> type:
    """State made in the step, a count in it that the update reads, math under no_grad, a closure."""
    class Adam(L.optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.01, betas: Any = (0.9, 0.99), decay: float = 0.01,
                     eps: float = 1e-8):
            super().__init__(params, {"lr": lr, "betas": betas, "decay": decay, "eps": eps})

        @L.no_grad()
        def step(self, closure: Callable | None = None) -> Any:
            loss = None
            if closure is not None:
                with L.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                b1, b2 = group["betas"]
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"] = 0
                        state["first"] = L.zeros_like(p, memory_format=L.preserve_format)
                        state["second"] = L.zeros_like(p, memory_format=L.preserve_format)
                    state["step"] += 1
                    state["first"].mul_(b1).add_(p.grad, alpha=1 - b1)
                    state["second"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                    size = (state["second"].sqrt() / math.sqrt(1 - b2 ** state["step"])).add_(group["eps"])
                    p.mul_(1 - group["lr"] * group["decay"])
                    p.addcdiv_(state["first"], size, value=-group["lr"] / (1 - b1 ** state["step"]))
            return loss
    return Adam


def lookahead(L: Any) -> type:
    """Zhang et al. 2019, around another optimizer, whose groups it shares: slow weights follow every k steps."""
    class Lookahead(L.optim.Optimizer):
        def __init__(self, base: Any, k: int = 3, alpha: float = 0.5):
            self.optimizer, self.k, self.alpha = base, k, alpha
            self.param_groups = self.optimizer.param_groups
            self.defaults, self.state = self.optimizer.defaults, defaultdict(dict)
            for group in self.param_groups:
                group["counter"] = 0

        def update(self, group: Any) -> None:
            for fast in group["params"]:
                state = self.state[fast]
                if "slow_param" not in state:
                    state["slow_param"] = L.zeros_like(fast.data)
                    state["slow_param"].copy_(fast.data)
                slow = state["slow_param"]
                slow += (fast.data - slow) * self.alpha
                fast.data.copy_(slow)

        def step(self, closure: Any = None) -> Any:
            loss = self.optimizer.step(closure)
            for group in self.param_groups:
                if group["counter"] == 0:
                    self.update(group)
                group["counter"] = (group["counter"] + 1) % self.k
            return loss
    return Lookahead
