"""The call of a module that has hooks, in torch's order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from genesis.nn.modules.backward_hooks import Passage
from genesis.nn.modules.hooks import of


def call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """forward, with the pre-hooks before it and the hooks after it; hooks of backward see what forward itself gets, and
    what the caller gets.

    A pre-hook returns the new positional arguments (one that is no tuple is wrapped) or None, one with keywords a pair
    of both; a hook returns the new result or None. Where something raises, hooks that are always called still are.
    """
    result, left = None, of(module, "forward")
    try:
        for before in of(module, "forward_pre"):
            if getattr(before, "keywords", False):
                changed = before(module, args, kwargs)
                if changed is not None:
                    args, kwargs = changed
                continue
            changed = before(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        passage = Passage.of(module)
        if passage is not None:
            args = passage.entering(args)
        result = module.forward(*args, **kwargs)
        while left:
            result = _after(left.pop(0), module, args, kwargs, result)
        return result if passage is None else passage.leaving(result)
    except Exception:
        for after in left:
            if getattr(after, "always", False):
                try:
                    result = _after(after, module, args, kwargs, result)
                except Exception as error:
                    warnings.warn("module forward hook with ``always_call=True`` raised an exception that was silenced "
                                  f"as another error was raised in forward: {error}", stacklevel=3)
        raise


def _after(hook: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """What a hook makes of the result."""
    if getattr(hook, "keywords", False):
        changed = hook(module, args, kwargs, result)
    else:
        changed = hook(module, args, result)
    return result if changed is None else changed
