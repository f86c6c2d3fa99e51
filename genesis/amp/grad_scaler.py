"""`GradScaler`: a scaled loss keeps float16 gradients from vanishing (Micikevicius et al. 2018)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from itertools import repeat
from operator import mul
from typing import Any

from genesis.frontend.at_once import at_once, changes
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import TensorBase, read
from genesis.frontend.writes import Before, assign_all
from genesis.ir.errors import failure
from genesis.ir.suggest import Suggesting, suggesting
from genesis.ir.types import float16
from genesis.ops.parts import stack


@dataclass
class _Seen:
    """The state of an optimizer since the last `update`.

    Attributes:
        overflow: a 0-d tensor that says whether a gradient was infinite or NaN, once they are unscaled.
        stepped: `step` was called.
    """

    overflow: Any = None
    stepped: bool = False

    def is_unscaled(self) -> bool:
        """Whether gradients are divided: not where that was pending, and its program failed."""
        return self.overflow is not None and self.overflow.storage.error is None


class GradScaler(Suggesting):
    """Scales losses up, and gradients down again before a step; a step with overflown gradients is left out.

    The scale is an input of the plan, so a new one compiles nothing. Whether gradients overflowed is read before the
    step, which computes them: forward and backward are then one plan and the update another.

    Args:
        device: accepted for torch's sake.
        init_scale: what losses are multiplied by at first.
        growth_factor, growth_interval: the scale grows by this after so many steps without overflow.
        backoff_factor: and shrinks by this after one with.
        enabled: False does nothing but step.

    >>> import genesis
    >>> w = genesis.ones(1, requires_grad=True)
    >>> optimizer, scaler = genesis.optim.SGD([w], lr=0.5), genesis.amp.GradScaler()
    >>> scaler.scale((w * w).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.item(), scaler.get_scale()
    (0.0, 65536.0)
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True):
        if enabled and (growth_factor <= 1.0 or backoff_factor >= 1.0):
            raise failure("GradScaler", f"growth_factor {growth_factor} must be above 1 and backoff_factor "
                          f"{backoff_factor} below", error=AssertionError)
        self._enabled, self._scale, self._growth_tracker = enabled, float(init_scale), 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._seen: dict[int, _Seen] = {}

    def scale(self, outputs: Any) -> Any:
        """The tensor, or each of several, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, TensorBase):
            return outputs * self._scale  # type: ignore[operator]
        if isinstance(outputs, Iterable):
            return type(outputs)(self.scale(x) for x in outputs)  # type: ignore[call-arg]
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, to clip or look at them before `step`.

        Raises:
            RuntimeError: it was done already, or after `step`.
            ValueError: a gradient is float16, which the division would lose bits of.
        """
        if not self._enabled:
            return
        seen = self._seen.setdefault(id(optimizer), _Seen())
        if seen.is_unscaled():
            raise failure("unscale_", "unscale_() has already been called on this optimizer since the last update().")
        if seen.stepped:
            raise failure("unscale_", "unscale_() is being called after step().")
        gradients, divided, overflow = self._unscaled(optimizer)
        _divide(gradients, divided, seen, overflow)

    def _unscaled(self, optimizer: Any) -> tuple[list[Any], list[Any], Any]:
        """The gradients of the optimizer's parameters, these by the scale, and whether one is infinite or NaN."""
        listed = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        gradients = list({id(gradient): gradient for gradient in listed}.values())
        times = Counter(map(id, listed))  # of a parameter that is listed twice it is divided twice, as in torch
        if not gradients:
            raise failure("unscale_", "No inf checks were recorded for this optimizer.", error=AssertionError)
        for gradient in gradients:
            if gradient.dtype is float16:
                raise failure("unscale_", "Attempting to unscale FP16 gradients.", [("gradient", gradient)],
                              hint="keep parameters in float32", error=ValueError)
        with no_grad():
            divided = [reduce(mul, repeat(1.0 / self._scale, times[id(gradient)]), gradient) for gradient in gradients]
            overflow = stack([gradient.isfinite().all().logical_not() for gradient in divided]).any()
        return gradients, divided, overflow

    def step(self, optimizer: Any, *args: Any, **how: Any) -> Any:
        """The optimizer's step, unless gradients overflowed. Unscales them first if that was not done: it raises before
        it divides any, or gradients and step are as they were, unless the division is in memory, which counts as
        `unscale_` then.

        Raises:
            RuntimeError: it was called already since the last `update`.
        """
        if not self._enabled:
            return optimizer.step(*args, **how)
        seen = self._seen.setdefault(id(optimizer), _Seen())
        if seen.stepped:
            raise failure("GradScaler.step", "step() has already been called since the last update().")
        if seen.is_unscaled():
            return self._step(optimizer, seen, bool(seen.overflow.item()), args, how)
        gradients, divided, overflow = self._unscaled(optimizer)
        left_out = bool(overflow.item())  # forward and backward run, and nothing is written yet
        before = Before([gradient.storage for gradient in gradients], [(setattr, seen, "overflow", None)])
        try:
            _divide(gradients, divided, seen, overflow, left_out)
            return self._step(optimizer, seen, left_out, args, how)
        except BaseException:
            if not seen.stepped:
                before.restore()
            raise

    def _step(self, optimizer: Any, seen: _Seen, left_out: bool, args: Any, how: Any) -> Any:
        """`step`, where gradients are divided."""
        noted = (setattr, seen, "stepped", True), partial(setattr, seen, "stepped", False)
        with optimizer.stepping_with(*noted) if hasattr(optimizer, "stepping_with") else nullcontext():
            result = None if left_out else optimizer.step(*args, **how)
        seen.stepped = True  # of a step that was left out, or that notes nothing: an optimizer of the user's
        return result

    def update(self, new_scale: float | None = None) -> None:
        """Grow or shrink the scale by what happened in this iteration, or set it."""
        if not self._enabled:
            return
        scale, grown = self._scale, self._growth_tracker
        if new_scale is not None:
            scale = float(new_scale)
        else:
            overflows = [bool(seen.overflow.item()) for seen in self._seen.values() if seen.overflow is not None]
            if not overflows:
                raise failure("GradScaler.update", "No inf checks were recorded prior to update.",
                              error=AssertionError)
            grown = 0 if any(overflows) else grown + 1
            if any(overflows):
                scale *= self._backoff_factor
            elif grown == self._growth_interval:
                scale, grown = scale * self._growth_factor, 0
        at_once(changes((), [(setattr, self, "_scale", scale), (setattr, self, "_growth_tracker", grown),
                             (setattr, self, "_seen", {})]))

    def get_scale(self) -> float:
        """The factor that losses are multiplied by now; 1 where scaling is not enabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """The factor of growth."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale shrinks after an overflow."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Steps without overflow until the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of steps after which the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale, how it changes, and the steps without overflow."""
        if not self._enabled:
            return {}
        return {"scale": self._scale, "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the state was taken.

        Raises:
            RuntimeError: it is empty: of a scaler that was not enabled.
            KeyError: an entry is missing.
            ValueError: an entry is no number that the scaler could work with. Nothing has changed then.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise failure("GradScaler.load_state_dict", "The source state dict is empty, possibly because it was saved "
                          "from a disabled instance of GradScaler.")
        scale, growth, backoff = (_number(state_dict, name) for name in ("scale", "growth_factor", "backoff_factor"))
        interval, tracker = (_number(state_dict, name, True) for name in ("growth_interval", "_growth_tracker"))
        found = {"_scale": scale, "_growth_factor": growth, "_backoff_factor": backoff,
                 "_growth_interval": int(interval), "_growth_tracker": int(tracker)}
        at_once(changes((), [(setattr, self, name, value) for name, value in found.items()]))


def _divide(gradients: Sequence[Any], divided: Sequence[Any], seen: _Seen, overflow: Any,
            left_out: bool = False) -> None:
    """Write the divided gradients, and note it: both, or neither."""
    with no_grad():
        assign_all(gradients, [read(gradient) for gradient in divided], [
            (setattr, seen, "overflow", overflow), *([(setattr, seen, "stepped", True)] if left_out else [])])


def _number(state: dict[str, Any], name: str, whole: bool = False) -> float:
    """The entry of a state dict, which may be a tensor."""
    value = state[name].item() if hasattr(state[name], "item") else state[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or value < 0 or (
            whole and value != int(value)):
        raise failure("GradScaler.load_state_dict", f"{name} is {value!r}, not a "
                      f"{'count' if whole else 'number of at least 0'}", error=ValueError,
                      hint="the state_dict() of a GradScaler")
    return value

__getattr__ = suggesting(__name__)
