"""What compiled functions do now, whatever they did before: the stance, and where a call runs inside one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import CodeType
from typing import Any

from genesis.frontend import session
from genesis.frontend.at_once import Change
from genesis.frontend.state import state
from genesis.frontend.switching import SPARE, Switch
from genesis.ir.errors import failure
from genesis.runtime.contexts import Switched, Temporary
from genesis.tracing.options import check_backend

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile")
_NO_STANCES = {"aot_eager_then_compile": "there is no backend between recording and compiling"}


class _Thread(threading.local):
    """What a thread is in.

    Attributes:
        flags: bytes: whether a call of a compiled function runs, and spare ones (`frontend/switching.py`).
    """

    def __init__(self) -> None:
        self.flags = bytearray((0, *[0] * SPARE))


_thread = _Thread()
_stance = "default"
unusual = False
"""Whether the stance has to be asked for at all: one was set."""
untraced: set[CodeType] = set()
"""Code of functions whose Python is not looked into (`allow_in_graph`)."""


class inside(Switch):
    """A context: inside, a call of a compiled function runs."""

    def _mode(self) -> bytearray:
        return _thread.flags

    def _inside(self, mode: bytearray) -> tuple[int, ...]:
        return (1,)


class outside(inside):
    """A context: inside, no call of a compiled function runs; a capture around it records its call instead.

    Args:
        reason: why, for readers.
    """

    def __init__(self, reason: str | None = None):
        super().__init__()
        if state.session is not None and (running := session.active()) is not None:
            why = f" ({reason})" if reason else ""
            running.refuse(f"it calls a function that is not to be compiled{why}")

    def _inside(self, mode: bytearray) -> tuple[int, ...]:
        return (0,)


def disabled() -> bool:
    """Whether compiled functions run as they are."""
    return _stance == "force_eager"


def set_to(stance: str) -> None:
    """Make this the stance."""
    global _stance, unusual
    _stance, unusual = stance, True


def stands_back(calls: int) -> bool:
    """Whether a call that nothing is replayed for runs as if its function were not compiled.

    Args:
        calls: how many such calls of the function there were, with this one.
    """
    return _stance == "eager_on_recompile" or (_stance == "eager_then_compile" and calls == 1)


def check_capture(name: str, refused: bool, difference: Callable[[], str]) -> None:
    """Raise RuntimeError where the stance is "fail_on_recompile".

    Args:
        name: of the function whose call would be captured.
        refused: whether such calls are recorded one by one.
        difference: tells what this one has otherwise than those that were captured.
    """
    if _stance == "fail_on_recompile" and not refused:
        raise failure("compile", f"{name} would be captured, and the stance is fail_on_recompile: {difference()}",
                      hint="call it once under the stance default")


def is_compiling() -> bool:
    """Whether a call of a compiled function runs in this thread.

    >>> import genesis
    >>> f = genesis.compile(lambda x: x + genesis.compiler.is_compiling())
    >>> f(genesis.zeros(1)), genesis.compiler.is_compiling()
    (tensor([1.]), False)
    """
    return _thread.flags[0] == 1


class set_stance(Temporary):  # a name of torch's
    """Set what compiled functions do from now on; in a `with`, or as a decorator, until its end.

    Args:
        stance: "default"; "force_eager": functions run as they are; "eager_on_recompile": what is captured is replayed,
            and all else runs as it is; "fail_on_recompile": RuntimeError where a call would be captured, with what has
            changed; "eager_then_compile": the first call runs as it is.
        skip_guard_eval_unsafe: not here: a replay without guards could give wrong values.
        force_backend: "inductor" or "genesis" change nothing; "eager": functions run as they are.

    Raises:
        RuntimeError: another stance or option, or inside a compiled function.

    >>> import genesis
    >>> f = genesis.compile(lambda x: x * 2)
    >>> with genesis.compiler.set_stance("force_eager"):
    ...     _ = f(genesis.ones(1)), f(genesis.ones(1))
    >>> f.hits
    0
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
                 force_backend: str | Callable[..., Any] | None = None):
        if is_compiling():
            raise failure("set_stance", "it is called inside a compiled function", hint="call it around that one")
        if stance not in STANCES:
            raise failure("set_stance", _NO_STANCES.get(stance, f"stance {stance!r} is unknown"),
                          hint=f"one of {', '.join(STANCES)}")
        if skip_guard_eval_unsafe:
            raise failure("set_stance", "skip_guard_eval_unsafe=True: a replay without guards could give wrong values")
        if force_backend is not None:
            if stance != "default":
                raise failure("set_stance", f"force_backend={force_backend!r} is taken with the stance default alone")
            check_backend(force_backend)
            stance = "force_eager" if force_backend == "eager" else stance
        self._before = before = _stance
        super().__init__(lambda: Switched([_to(stance)], [_to(before)]))
        self._stance = stance
        set_to(stance)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run under the stance; outside of it the one before holds."""
        set_to(self._before)
        stance = self._stance
        return Temporary(lambda: Switched([_to(stance)], [_to(_stance)]))(function)


def _to(stance: str) -> Change:
    """The change that makes this the stance."""
    return globals().update, {"_stance": stance, "unusual": True}
