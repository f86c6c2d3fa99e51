"""What stands in Triton's modules while a kernel is interpreted, for a launch at a time.

The interpreter looks through the language at each call of a function in a kernel, and makes a function of each builtin:
a sixth of the time that small kernels took. What it puts there depends on no kernel. It is looked at once a process; a
launch sets what was found and takes it away again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import starmap
from types import ModuleType
from typing import TYPE_CHECKING

from genesis.runtime.fake_cuda.plain_operands import plain

if TYPE_CHECKING:
    from triton.runtime.interpreter import _LangPatchScope

    Patch = Callable[[Callable], _LangPatchScope]

Change = tuple[object, str, object]
"""A module or class, a name in it, and what the name stands for."""

_MISSING = object()


class Patches:
    """Changes of modules and classes, which `undo` takes back whatever else was set there since.

    A launch makes hundreds and takes them back: loops of C, a fiftieth of the time of a test that trains. An exception
    between two lines leaves something to take back, or to take back twice, which is the same.
    """

    def __init__(self) -> None:
        self._before: list[Change] = []

    def set(self, changes: Sequence[Change]) -> None:
        """Make these changes."""
        self._before += [(place, name, vars(place).get(name, _MISSING)) for place, name, _ in changes]
        deque(starmap(setattr, changes), maxlen=0)

    def undo(self) -> None:
        """Put back what was there, the last change first."""
        deque(starmap(setattr, [change for change in reversed(self._before) if change[2] is not _MISSING]), maxlen=0)
        deque(starmap(delattr, [(place, name) for place, name, value in self._before
                                if value is _MISSING and name in vars(place)]), maxlen=0)
        self._before.clear()


class LanguagePatches:
    """The interpreter's own patches of the language, for what a function sees of it.

    It patches each module that the globals of a function hold, and takes the patches of a launch back after it, but
    those of functions that the kernel calls never. Here all stay until `Patches.undo`.

    Attributes:
        there: the modules whose patches are in place now, in their order.
    """

    def __init__(self) -> None:
        self.there: tuple[tuple[ModuleType, ...], ...] = ()
        self._changes: dict[tuple[tuple[ModuleType, ...], ...], list[Change]] = {}

    def patch_lang(self, original: Patch, patches: Patches) -> Callable[[Callable], _Kept]:
        """`interpreter._patch_lang`, which makes its changes among these patches."""
        import triton.language as tl
        seen: dict[int, dict[str, object]] = {}

        def patch_lang(function: Callable) -> _Kept:
            names = function.__globals__
            if id(names) not in seen:
                seen[id(names)] = names
                modules = tuple([value for value in names.values() if value is tl or value is tl.core])
                if modules not in self.there:
                    patches.set(self._changes_for(modules, original, function))
                    self.there = *self.there, modules
            return _Kept()
        return patch_lang

    def _changes_for(self, modules: tuple[ModuleType, ...], original: Patch, function: Callable) -> list[Change]:
        """What the interpreter changes for a function that sees these modules, beside what it has changed already."""
        key = *self.there, modules
        if key not in self._changes:
            scope = original(function)
            found = {(id(place), name): (place, name, vars(place)[name]) for place, name, _ in scope._changes}
            scope.restore()
            self._changes[key] = list(found.values())
        return self._changes[key]


class _Kept:
    """What the interpreter asks to take its patches of a launch back."""

    def restore(self) -> None:
        """Do nothing: `Patches.undo` does it."""


def patch_attr(place: object, name: str, member: Callable, builder: object, scope: _LangPatchScope) -> None:
    """`interpreter._patch_attr`: a builtin of the language that is given the interpreter. The interpreter's own one
    takes the named arguments apart at each call, and the builtin looks for the interpreter among them."""
    import triton.language as tl
    from triton.runtime.interpreter import interpreter_semantic
    checks = getattr(member, "__code__", None) is tl.core.builtin(patch_attr).__code__
    function = member.__wrapped__ if checks else member  # type: ignore[attr-defined]

    def call(*arguments: object, _semantic: object = None, **named: object) -> object:
        return function(*arguments, _semantic=interpreter_semantic, **named)
    scope.set_attr(place, name, plain(place, name, call))
