"""Contexts that no exception leaves half entered: collector, locks, grad mode, captures."""

from __future__ import annotations

import ast
import gc
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis.frontend.grad_mode import mode, no_grad
from genesis.frontend.session import Session, running
from genesis.frontend.state import state
from genesis.runtime.contexts import Attempt, importing, uncollected
from genesis.tracing import stance
from genesis.tracing.tracer import Tracer
from tests.faults.events import Traced, injected, was_injected

LOCK = threading.RLock()

CONTEXTS: dict[str, Callable[[], Any]] = {
    "no_grad": no_grad, "uncollected": lambda: uncollected, "importing": lambda: importing,
    "an attempt": lambda: Attempt(LOCK),
    "a session": lambda: running(Session()), "inside": stance.inside, "outside": stance.outside,
    "a tracer": lambda: Tracer(lambda code, names: None, lambda reason: None),
}


def modes() -> tuple[Any, ...]:
    return (mode.enabled, gc.isenabled(), LOCK._is_owned(), state.session,  # type: ignore[attr-defined]
            genesis.compiler.is_compiling(), stance.disabled(), sys.getprofile())


@pytest.mark.parametrize("name", CONTEXTS)
def test_after_an_exception_at_any_opcode_the_mode_is_the_one_before(name: str) -> None:
    def enter_and_leave() -> None:
        with context:
            pass
    before, instants, context = modes(), Traced("opcode"), CONTEXTS[name]()
    there = len(instants.places(enter_and_leave))
    assert there
    for at in range(there):
        context = CONTEXTS[name]()
        with pytest.raises(KeyboardInterrupt) as caught:
            instants.fail(enter_and_leave, at, injected(KeyboardInterrupt))
        assert was_injected(caught.value)
        assert modes() == before, f"opcode {at}, {instants.last}"


@pytest.mark.parametrize("name", [name for name in CONTEXTS if name not in (
    "a tracer",  # it stops at what no guard sees
    "outside",  # of a compiled call, where the test is anyway
)])
def test_inside_the_mode_is_another_one(name: str) -> None:
    before = modes()
    with CONTEXTS[name]():
        assert modes() != before
    assert modes() == before


def test_what_the_user_turned_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_lock_that_another_thread_holds_is_not_taken() -> None:
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with LOCK:
            held.set()
            leave.wait(60)
    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    with (attempt := Attempt(LOCK)):
        assert attempt.taken == [False]
    leave.set()
    thread.join(60)
    with (attempt := Attempt(LOCK)):
        assert attempt.taken == [True] and LOCK._is_owned()  # type: ignore[attr-defined]
    assert not LOCK._is_owned()  # type: ignore[attr-defined]


def test_a_profile_that_the_function_sets_stays() -> None:
    def own(*event: Any) -> None:
        pass
    before = sys.getprofile()
    try:
        with Tracer(lambda code, names: None, lambda reason: None):
            sys.setprofile(own)
        assert sys.getprofile() is own
    finally:
        sys.setprofile(before)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a statement, but for functions that are made there."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from _inside(child)


MODES = re.compile("lock|grad|inference|autocast|uncollected|session|inside|tracer|attempt|compiled")
"""What a context that is a lock or a mode is called."""


def test_no_try_stands_in_a_block_with_a_lock_or_a_mode() -> None:
    """Python's compiler gives the line of `try:` an instruction that no handler protects: an exception that a tracer
    raises there leaves the `with` around it without its `__exit__`. A function of its own with the `try` does not."""
    package = Path(genesis.__file__).parent
    assert not [f"{path.relative_to(package)}:{found.lineno}" for path in package.rglob("*.py")
                for block in ast.walk(ast.parse(path.read_text())) if isinstance(block, ast.With)
                and any(MODES.search(ast.unparse(item.context_expr)) for item in block.items)
                for found in _inside(block) if isinstance(found, ast.Try)]


def test_the_collector_stays_off_until_the_last_thread_leaves() -> None:
    """One that compiles may enter before one that captures, and leave before it."""
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected:
            inside.set()
            leave.wait(60)
    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(60)
    assert not gc.isenabled()
    with uncollected:
        leave.set()
        thread.join(60)
        assert not thread.is_alive() and not gc.isenabled()
    assert gc.isenabled()
