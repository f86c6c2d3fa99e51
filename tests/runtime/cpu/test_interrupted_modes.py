"""An exception at any opcode of a plan's run under torch's modes leaves these as the program had them.

Opcodes between a `with` block and the call of its `__exit__`, where Python protects nothing and looks for no signal,
are left out (docs/reliability.md counts them apart).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import genesis
from genesis.runtime.contexts import in_order
from genesis.runtime.cpu import thread_modes
from tests.faults.events import Traced, injected, was_injected


class Passing(TorchFunctionMode):
    """A program's own mode."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class PassingDispatch(TorchDispatchMode):
    """Likewise, of dispatch."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def transformed() -> Iterator[None]:
    """In the middle of a function that `torch.func.grad` runs."""
    level = torch._C._functorch._grad_increment_nesting()
    assert level
    try:
        yield
    finally:
        torch._C._functorch._grad_decrement_nesting()


MODES: dict[str, Callable[[], Any]] = {
    "device": lambda: torch.device("meta"), "function": Passing, "dispatch": PassingDispatch,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16), "inference": torch.inference_mode,
    "no_grad": torch.no_grad, "transformed": transformed}

COMBINED = [names for many in range(1, len(MODES) + 1) for names in combinations(MODES, many) if names != ("no_grad",)]


@contextlib.contextmanager
def switched_on(names: tuple[str, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(MODES[name]())
        yield


def modes() -> tuple[Any, ...]:
    """All that a guard of torch's changes in this thread."""
    return (torch._C._is_torch_function_enabled(), torch._C._len_torch_function_stack(),
            torch._C._len_torch_dispatch_stack(), torch._C._is_any_autocast_enabled(), torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(), torch._C._functorch.maybe_current_level(), torch.get_default_dtype(),
            *map(str, (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())))


def inconsistent(run: Callable[[], object], rooms: tuple[str, ...], names: tuple[str, ...],
                 every: int = 1) -> Iterator[str]:
    """Where an exception leaves other modes than were on."""
    instants = Traced("opcode", rooms)
    with switched_on(names):
        before = modes()
        tried = len(instants.places(run))
        assert tried and modes() == before
    for at in range(0, tried, every):
        with switched_on(names):
            assert modes() == before
            try:
                instants.fail(run, at, injected(KeyboardInterrupt))
            except KeyboardInterrupt as error:
                assert was_injected(error)
                after = modes()  # what the traceback holds is still there
            else:
                raise AssertionError(f"no exception came of opcode {at}")
            if not instants.last.unprotected and after != before:
                yield f"{'+'.join(names)}: {instants.last.place}: {after} for {before}"
        torch._C._EnableTorchFunction().__enter__()


def a_block() -> None:
    with thread_modes.Without():
        pass


@pytest.mark.parametrize("many", range(1, len(MODES) + 1))
def test_entering_and_leaving_in_each_combination_of_modes(many: int) -> None:
    rooms = ("runtime/cpu/thread_modes.py", "runtime/contexts.py")
    assert not [wrong for names in COMBINED if len(names) == many for wrong in inconsistent(a_block, rooms, names)]


def reads() -> None:
    """A plan of one call, and its bytes."""
    (genesis.ones(2, 2) @ genesis.ones(2, 2)).numpy()


def writes() -> None:
    """A plan of several calls, the last of which overwrite memory."""
    a = genesis.ones(2, 2)
    a.tolist()
    a @= a + 1
    a += 3
    a.tolist()


ROOMS = ("runtime/cpu/one_call.py", "runtime/cpu/executor.py", "runtime/cpu/thread_modes.py", "runtime/contexts.py")


@pytest.mark.parametrize("run", [reads, writes])
def test_some_instants_of_plans(run: Callable[[], None]) -> None:
    run()
    assert not list(inconsistent(run, ROOMS, tuple(MODES), 17))


@pytest.mark.sweep
@pytest.mark.parametrize("names", [("autocast", "device"), ("dispatch", "inference"), ("transformed",), tuple(MODES)],
                         ids="+".join)
@pytest.mark.parametrize("run", [reads, writes])
def test_each_instant_of_plans(run: Callable[[], None], names: tuple[str, ...]) -> None:
    run()
    assert not list(inconsistent(run, ROOMS, names))


@pytest.mark.parametrize("names", COMBINED, ids="+".join)
def test_writes_that_are_ready_switch_nothing_before_they_are_made(names: tuple[str, ...]) -> None:
    with switched_on(names):
        before, seen = modes(), []
        ready = thread_modes.without([lambda: seen.append(modes())])
        assert modes() == before
        in_order(call() for call in ready)
        assert modes() == before != seen[0]
        assert not (seen[0][0] or seen[0][3] or seen[0][5])  # functions, autocast, inference mode


def test_a_guard_that_cannot_be_entered_takes_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRoom:
        def __enter__(self) -> None:
            raise MemoryError

        def __exit__(self, *error: object) -> None:
            raise AssertionError("it was not entered")
    monkeypatch.setattr(torch._C, "DisableTorchFunction", NoRoom)
    for names in COMBINED:
        with switched_on(names):
            before = modes()
            with pytest.raises(MemoryError):
                a_block()
            assert modes() == before
