"""Hooks of optimizers: a user's functions that run around steps, and around taking and loading their states.

What an optimizer has is in its attribute `_hooks`, made at the first one: a step without hooks asks one question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.frontend import session
from genesis.nn.modules.hooks import RemovableHandle
from genesis.runtime.contexts import Switched, Temporary

Hook = Callable[..., Any]

BEFORE, AFTER = "step_pre", "step_post"
everywhere: dict[str, dict[int, Hook]] = {BEFORE: {}, AFTER: {}}
"""Hooks of all optimizers' steps."""


def add(optimizer: Any, kind: str, hook: Hook, prepend: bool = False) -> RemovableHandle:
    """Register a hook of one optimizer."""
    kinds: dict[str, dict[int, Hook]] = vars(optimizer).setdefault("_hooks", {BEFORE: {}, AFTER: {}})
    return _added(kinds.setdefault(kind, {}), hook, prepend)


def _added(hooks: dict[int, Hook], hook: Hook, prepend: bool = False) -> RemovableHandle:
    return RemovableHandle(hooks, hook, session.rebound, prepend)  # compiled steps are made anew


def of(optimizer: Any, kind: str) -> list[Hook]:
    """The optimizer's own hooks of a kind, in their order."""
    return list(vars(optimizer).get("_hooks", {}).get(kind, {}).values())


def around(optimizer: Any) -> bool:
    """Are there hooks around a step of the optimizer?"""
    return "_hooks" in vars(optimizer) or bool(everywhere[BEFORE] or everywhere[AFTER])


def around_step(optimizer: Any, step: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The step's result, with all hooks before and after it; a step that another one calls has none of its own."""
    own = vars(optimizer)
    if own.get("_in_step"):
        return step(optimizer, *args, **kwargs)
    with Temporary(lambda: Switched([(own.__setitem__, "_in_step", True)], [(own.pop, "_in_step", None)])):
        given: Any = ((optimizer, *args), kwargs)
        for hook in [*everywhere[BEFORE].values(), *of(optimizer, BEFORE)]:
            changed = hook(optimizer, *given)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), "
                                       f"but got {changed}.")
                given = changed
        result = step(*given[0], **given[1])
        for hook in [*of(optimizer, AFTER), *everywhere[AFTER].values()]:
            hook(optimizer, *given)
        return result


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of any optimizer; args begin with the optimizer.

    Returns:
        A handle whose `remove()` takes the hook out. A hook may return new (args, kwargs).

    >>> import genesis
    >>> optimizer = genesis.optim.SGD([genesis.ones(1, requires_grad=True)], lr=0.5)
    >>> with register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: print("stepping")):
    ...     optimizer.step()
    stepping
    """
    return _added(everywhere[BEFORE], hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of any optimizer; what it returns counts for nothing."""
    return _added(everywhere[AFTER], hook)
