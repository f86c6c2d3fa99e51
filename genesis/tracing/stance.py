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

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile")
_NO_STANCES = {"aot_eager_then_compile": "there is no backend between recording and compiling"}


class _Thread(threading.local):
    """What a thread is in.

    Attributes:
        flags: bytes: whether a call of a compiled function runs, whether functions are not to be compiled, and spare
            ones (`frontend/switching.py`).
    """

    def __init__(self) -> None:
        self.flags = bytearray((0, 0, *[0] * SPARE))


_thread = _Thread()
_stance = "default"
unusual = False
"""Whether `disabled` has to be asked at all: a stance was set, or a function disabled."""
untraced: set[CodeType] = set()
"""Code of functions whose Python is not looked into (`allow_in_graph`)."""


class inside(Switch):
    """A context: inside, a call of a compiled function runs."""

    def _mode(self) -> bytearray:
        return _thread.flags

    def _inside(self, mode: bytearray) -> tuple[int, ...]:
        return (1,)


class nothing_compiled(inside):
    """A context: inside, compiled functions run as they are, if `recursive`; a capture around it records its call
    instead."""

    def __init__(self, recursive: bool = True):
        global unusual
        super().__init__()
        if state.session is not None and (running := session.active()) is not None:
            running.refuse("it calls a function that is not to be compiled")
        self._recursive = recursive
        unusual = True

    def _inside(self, mode: bytearray) -> tuple[int, ...]:
        return 0, mode[1] or self._recursive


def disabled() -> bool:
    """Whether compiled functions run as they are."""
    return _thread.flags[1] == 1 or _stance == "force_eager"


def set_to(stance: str) -> None:
    """Make this the stance."""
    global _stance, unusual
    _stance, unusual = stance, True


def captures(name: str, calls: int, captured: bool) -> bool:
    """Whether a call that nothing is replayed for may be captured.

    Args:
        name: of the function.
        calls: how many such calls there were, with this one.
        captured: whether it has captures.

    Raises:
        RuntimeError: the stance is "fail_on_recompile", and it was captured before.
    """
    now = _stance
    if now == "fail_on_recompile" and captured:
        raise failure("compile", f"{name} would be captured again, and the stance is fail_on_recompile",
                      hint="genesis.explain(function) says which guards failed before")
    return not (now == "eager_on_recompile" or (now == "eager_then_compile" and calls == 1))


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
            and nothing is captured; "fail_on_recompile": RuntimeError where a function would be captured again;
            "eager_then_compile": the first call runs as it is.
        skip_guard_eval_unsafe: not here: a replay without guards could give wrong values.
        force_backend: not here: there is one compiler.

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
            raise failure("set_stance", f"force_backend={force_backend!r}: there is one compiler")
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
