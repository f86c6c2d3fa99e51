"""Hooks on tensors: functions that gradients pass through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from genesis.autograd.backward_engine import content, retaining
from genesis.frontend import session
from genesis.frontend.boundaries import Hooks, RemovableHandle, Renewal, Renewing
from genesis.frontend.recording import leaf_numbers, wrap
from genesis.frontend.state import state
from genesis.ir.errors import failure
from genesis.ir.node import Node


class EndHook(NamedTuple):
    """A hook of the end of a path, `AccumulateGrad.register_hook`'s: it is called as torch calls it.

    Attributes:
        function: is given no gradients of operands, as the end has none, and the gradient that arrived.
    """

    function: Callable[[tuple[()], tuple[Any]], None]

    def called(self, arrived: Node) -> Any:
        """What the function returns."""
        return self.function((), (wrap(arrived),))


def register_hook(tensor: Any, hook: Any) -> RemovableHandle:
    """See `Tensor.register_hook`."""
    if not tensor.requires_grad:
        raise failure("register_hook", "cannot register a hook on a tensor that doesn't require gradient",
                      [("tensor", tensor)])
    _refuse()
    if tensor.is_leaf:
        if tensor._hooks is None:
            tensor._hooks = Hooks()
        state.hooked += 1
        return RemovableHandle(tensor._hooks, hook)
    node = content(tensor)
    if node.hooks is None:
        node.hooks = Hooks()
    tensor._hooked = node  # a view does not hold its node
    return RemovableHandle(node.hooks, hook)


def renew_at(tensors: Iterable[Any], renewals: Sequence[Renewal]) -> None:
    """Have backward make something anew when it comes to one of these tensors, whose nodes are their own.

    Inside of a checkpointed region, which backward goes through as one, it is made where the region's results are.
    """
    if not renewals:
        return
    regions = [region for region in state.regions if region.here()]
    if regions:
        regions[-1].renewals += renewals
        return
    for tensor in tensors:
        if tensor.requires_grad:
            node = content(tensor)
            before = node.hooks
            node.hooks = Renewing((*before.renewals, *renewals) if isinstance(before, Renewing) else renewals)
            node.hooks.update(before or {})


def register_post_accumulate_grad_hook(tensor: Any, hook: Any) -> RemovableHandle:
    """See `Tensor.register_post_accumulate_grad_hook`."""
    if not tensor.requires_grad or not tensor.is_leaf:
        raise failure("register_post_accumulate_grad_hook",
                      "post accumulate grad hooks cannot be registered on non-leaf tensors", [("tensor", tensor)])
    _refuse()
    if tensor._after_hooks is None:
        tensor._after_hooks = {}
    state.hooked += 1
    return RemovableHandle(tensor._after_hooks, hook)


def retain_grad(tensor: Any) -> None:
    """See `Tensor.retain_grad`."""
    if not tensor.requires_grad:
        raise failure("retain_grad", "can't retain_grad on Tensor that has requires_grad=False", [("tensor", tensor)])
    if tensor.is_leaf or tensor.retains_grad:
        return
    _refuse()
    number = next(leaf_numbers)
    tensor.__dict__["_retains"] = number
    retaining[number] = tensor


def _refuse() -> None:
    if state.session is not None and (running := session.active()) is not None:
        running.refuse("it registers a hook")
